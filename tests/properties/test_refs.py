"""References name exactly one thing, and nothing else parses as one (§4, §5, I1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optchat.errors import BadInput
from optchat.refs import PublicationRef, Ref, SessionRef, Span, parse_ref


@st.composite
def spans(draw: st.DrawFn) -> Span:
    count = 1 << draw(st.integers(0, 40))
    return Span(draw(st.integers(0, 1000)) * count, count)


REFS = st.one_of(
    st.builds(PublicationRef, spans()),
    st.builds(SessionRef, st.integers(0, 999_999_999), st.integers(0, 999_999_999), spans()),
)


@given(REFS, st.sampled_from(["{}", " {} ", "`{}`", "\n`{}` ", " ` {}`"]))
def test_a_shown_ref_parses_to_itself_also_in_backticks(ref: Ref, frame: str):
    assert parse_ref(frame.format(ref)) == ref


@given(st.integers(0, 10**15 - 1), st.integers(0, 10**15 - 1))
def test_only_aligned_powers_of_two_are_ranges(start: int, count: int):
    dyadic = count > 0 and count & (count - 1) == 0 and start % count == 0
    if dyadic:
        assert parse_ref(f"pub:{start}+{count}") == PublicationRef(Span(start, count))
    else:
        with pytest.raises(BadInput):
            parse_ref(f"pub:{start}+{count}")


@given(st.text(max_size=40))
def test_arbitrary_text_is_a_ref_or_bad_input(text: str):
    try:
        parsed = parse_ref(text)
    except BadInput:
        return
    assert parse_ref(str(parsed)) == parsed, "the name of what parsed leads to the same place"
    bare = text.strip().strip("`").strip()
    assert bare.isascii()
    assert set(bare) <= set("pubs:+0123456789")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pub:",
        "pub:-1",
        "pub:1 2",
        "pub:٣",  # a digit, but not of ours
        "pub:１",
        "PUB:1",
        "pub:1+0",
        "pub:1+2",
        "pub:0+3",
        "pub:1e3",
        "pub:1+1+1",
        "s1:0",
        "s:0:1",
        "s1:0:1:2",
        "s1:0:1+2",
        "S1:0:1",
        "session:C:0:64+8",
        "pub:1\x00",
        "pub:1\npub:2",
        "pub:" + "9" * 16,
        "s1:0:0+" + "9" * 400,
    ],
)
def test_what_is_not_of_the_grammar_is_refused(text: str):
    with pytest.raises(BadInput) as caught:
        parse_ref(text)
    assert caught.value.hint
    assert len(caught.value.message) < 400


@given(spans())
def test_parent_sibling_and_children_agree(span: Span):
    parent = span.parent
    assert set(parent.children) == {span, span.sibling}
    assert span.sibling.sibling == span
    assert parent.start <= span.start < span.end_exclusive <= parent.end_exclusive
    left, right = parent.children
    assert (left.start, left.end_exclusive, right.end_exclusive) == (
        parent.start,
        right.start,
        parent.end_exclusive,
    )


@given(st.integers(-5, 200), st.integers(-5, 200))
def test_a_span_is_aligned_or_not_at_all(start: int, count: int):
    allowed = start >= 0 and count > 0 and count & (count - 1) == 0 and start % count == 0
    if allowed:
        assert Span(start, count).end_exclusive == start + count
    else:
        with pytest.raises(ValueError):
            Span(start, count)
