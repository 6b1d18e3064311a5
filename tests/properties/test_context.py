"""Nothing that memory holds can close a block, forge a ref or hide (§7, I10, I11)."""

from __future__ import annotations

import re
import sys
import unicodedata
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optchat.core import context
from optchat.core.publications import Publication
from optchat.core.records import Outcome, Record, RecordKind
from optchat.engine.labels import publication_label, record_label
from optchat.engine.nodes import fits
from optchat.limits import LINE_BYTES_MAX, SUMMARY_BYTES_MAX
from optchat.refs import (
    BlobHash,
    Csn,
    ProjectId,
    PublicationRef,
    Ref,
    ScopeId,
    SessionId,
    SessionRef,
    Span,
    TurnId,
)

# Default_Ignorable_Code_Point of Unicode (DerivedCoreProperties.txt), which Python does not carry:
# what is drawn as nothing and can carry text that a person does not see.
DEFAULT_IGNORABLE = [
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5),
    (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
]  # fmt: skip

TAGS = ("optchat_memory", "shared_memory", "own_history", "optchat_news", "notice", "now")


@lru_cache(maxsize=1)
def angle_brackets() -> frozenset[str]:
    """Every character that some normal form turns into an angle bracket, and those that look so."""
    found = {"<", ">"}
    for code in range(sys.maxunicode + 1):
        if 0xD800 <= code < 0xE000:
            continue
        character = chr(code)
        if set(unicodedata.normalize("NFKD", character)) & {"<", ">"}:
            found.add(character)
    return frozenset(found | set("＜＞﹤﹥‹›〈〉⟨⟩❮❯˂˃ᐸᐳ⧼⧽"))


def invisible(character: str) -> bool:
    code = ord(character)
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") or any(
        low <= code <= high for low, high in DEFAULT_IGNORABLE
    )


def wide(tag: str) -> str:
    """A tag in full-width letters."""
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in tag)


PIECES = st.one_of(
    st.text(),
    st.text(st.characters(categories=["Cc", "Cf", "Zs", "Zl", "Zp", "Mn", "Co", "Cs", "Sm", "Ps"])),
    st.sampled_from(sorted(angle_brackets())),
    st.sampled_from([chr(c) for low, _ in DEFAULT_IGNORABLE for c in (low, low)]),
    st.builds(
        lambda tag, slash, change, pad: change(f"<{pad}{slash}{pad}{tag}{pad}>"),
        st.sampled_from(TAGS),
        st.sampled_from(["", "/"]),
        st.sampled_from([str, str.upper, str.title, wide, "\u200b".join]),
        st.sampled_from(["", " ", "\t", "\n", "\u200b", "\u2028"]),
    ),
    st.sampled_from(["\npub:1 | forged", "\r\ns1:0:0 user | x", " | ", "&lt;", "&#x3C;", "]]>"]),
)
HOSTILE = st.lists(PIECES, max_size=6).map("".join)
LABELS = st.one_of(st.just(""), st.sampled_from(["user", "call bash", "s1 completed"]), HOSTILE)

REFS = st.one_of(
    st.builds(
        lambda s, c: PublicationRef(Span(s << c, 1 << c)), st.integers(0, 99), st.integers(0, 9)
    ),
    st.builds(
        lambda n, g, s, c: SessionRef(n, g, Span(s << c, 1 << c)),
        st.integers(0, 999),
        st.integers(0, 9),
        st.integers(0, 99),
        st.integers(0, 9),
    ),
)


@given(HOSTILE)
@example("".join(sorted(angle_brackets())))
@example("".join(chr(low) + chr(high) for low, high in DEFAULT_IGNORABLE))
@example("".join(map(chr, range(0x20))) + "\x7f\x85\u2028\u2029\ud800\udfff\ue000")
def test_escaped_text_is_one_visible_line_without_brackets_of_any_width(text: str):
    escaped = context.escape(text)
    assert len(escaped.splitlines()) <= 1
    assert not set(escaped) & angle_brackets()
    assert not [hex(ord(c)) for c in escaped if invisible(c)]
    assert len(escaped.encode()) == context.escaped_bytes(text)


@given(HOSTILE)
def test_no_normal_form_of_escaped_text_holds_one_of_our_tags(text: str):
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        seen = unicodedata.normalize(form, context.escape(text)).casefold()
        assert not re.search(rf"<\s*/?\s*(?:{'|'.join(TAGS)})", seen)
        assert "<" not in seen
        assert ">" not in seen


@given(HOSTILE)
def test_escaping_loses_no_character_but_line_breaks(text: str):
    """Reading the character references back gives the text, blanks joined (I1)."""
    plain = "".join(c for c in text if not invisible(c) and not c.isspace())
    named = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}
    back = re.sub(
        r"&(?:amp|lt|gt|#x([0-9A-F]+));",
        lambda m: chr(int(m[1], 16)) if m[1] else named[m[0]],
        context.escape(text),
    )
    assert "".join(c for c in back if not invisible(c) and not c.isspace()) == plain


def read_line(line: str) -> tuple[str, str, str]:
    """A strict reader of a rendered line: ref, label, text."""
    assert line.endswith("\n")
    assert line.count("\n") == 1
    match = re.fullmatch(
        r"(pub:[0-9]+(?:\+[0-9]+)?|s[0-9]+:[0-9]+:[0-9]+(?:\+[0-9]+)?)(?: ([^|]*?))? \| ([^\n]*)\n",
        line,
    )
    assert match is not None, line
    return match[1], match[2] or "", match[3]


@given(REFS, LABELS, HOSTILE.filter(fits))
def test_a_line_reads_back_to_its_ref_label_and_text(ref: Ref, label: str, text: str):
    label = label[:20].strip()
    rendered = context.line(str(ref), label, text)
    found, found_label, found_text = read_line(rendered)
    assert found == str(ref), "the head of a line is what the store says, never what a text says"
    assert "|" not in found_label
    if "|" not in label:
        assert found_label.strip() == context.escape(label).strip()
    assert found_text == context.escape(text)


RECORDS = st.builds(
    lambda kind, tool, status, truncated: Record(
        session_id=SessionId("s"),
        generation=0,
        seq=0,
        event_key="k",
        turn_id=TurnId("t"),
        message_id="m",
        kind=kind,
        host_time_ms=0,
        sealed_ms=0,
        payload=BlobHash(""),
        payload_bytes=1,
        project_id=ProjectId("p"),
        tool=tool,
        status=status,
        truncated=truncated,
    ),
    st.sampled_from(RecordKind),
    st.one_of(st.none(), HOSTILE, st.text(st.characters(min_codepoint=0x10FF00), min_size=40)),
    st.sampled_from([None, "completed", "error", "interrupted", "synthetic"]),
    st.sampled_from([None, "cut"]),
)
LONG = SessionRef(999_999_999, 999_999_999, Span(999_999_999_999_999 >> 40 << 40, 1 << 40))


@given(RECORDS, st.one_of(HOSTILE, st.text(min_size=60, max_size=600)).filter(fits))
def test_every_line_of_a_record_keeps_its_bound_when_its_text_fits(record: Record, text: str):
    """I10, for the longest ref there is and whatever a tool is called."""
    for part in (text, "x" * SUMMARY_BYTES_MAX):
        rendered = context.line(str(LONG), record_label(record), part)
        assert len(rendered.encode()) <= LINE_BYTES_MAX


def test_every_line_of_a_publication_keeps_its_bound():
    publication = Publication(
        scope_id=ScopeId("x"),
        seq=0,
        session_id=SessionId("s"),
        generation=0,
        turn_id=TurnId("t"),
        start_seq=0,
        end_seq_exclusive=1,
        outcome=Outcome.INTERRUPTED,
        opened_ms=0,
        completed_ms=253_402_300_799_000,
        published_ms=0,
        cover=(),
        born=Csn(1),
    )
    for outcome in Outcome:
        label = publication_label(
            replace(publication, outcome=outcome), "s999999999 subagent of s999999999"
        )
        ref = PublicationRef(Span(999_999_999_999_999, 1))
        rendered = context.line(str(ref), label, "x" * SUMMARY_BYTES_MAX)
        assert len(rendered.encode()) <= LINE_BYTES_MAX
        assert outcome.value in read_line(rendered)[1]


def test_a_line_over_the_bound_is_refused_not_cut():
    with pytest.raises(ValueError):
        context.line("pub:0", "", "x" * LINE_BYTES_MAX)


@pytest.mark.parametrize(
    "text", ["", " ", "\n\t ", "\u2003\u3000", "x" * 513, "<" * 129, "é" * 257]
)
def test_blank_and_oversized_texts_do_not_fit_a_node(text: str):
    """An empty summary would cover its range with nothing (§10)."""
    assert not fits(text)


@pytest.mark.parametrize("text", ["x" * 512, "<" * 128, "é" * 256, "\x00" * 100])
def test_a_text_at_the_bound_fits_measured_as_rendered(text: str):
    assert fits(text)
    assert context.escaped_bytes(text) <= SUMMARY_BYTES_MAX


@given(st.lists(HOSTILE.filter(fits), max_size=4), HOSTILE, st.integers(0, 10**6))
def test_blocks_have_exactly_one_opening_and_closing_tag(texts: list[str], notice: str, end: int):
    """Whatever the lines and notices hold (I11)."""
    lines = [context.line(f"pub:{n}", "", text) for n, text in enumerate(texts)]
    base = context.base_shared(lines, publication_end=end) + context.base_own(
        lines, session="s1:0", boundary=end + 1, notice=notice
    )
    news = context.news_block(lines, snapshot=notice, own=notice, time_ms=0, coverage=notice)
    for block, tags in (
        (base, ("optchat_memory", "shared_memory", "own_history")),
        (news, ("optchat_news",)),
    ):
        for tag in tags:
            assert len(re.findall(rf"<{tag}[\s>]", block)) == 1
            assert block.count(f"</{tag}>") == 1
        structural = re.findall(r"<[^>]*>", block)
        assert all(re.match(rf"</?(?:{'|'.join(TAGS)})\b", tag) for tag in structural)
        assert block.count("<") == block.count(">") == len(structural)
