"""memory_search: literal text in the originals and summaries that a reader may see (§8).

Ranks are made from the visible hits alone, so that nothing outside the snapshot moves them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime

from optchat.core.context import escape
from optchat.core.tree import SessionTree
from optchat.engine.answers import Answer, Cursor, decode_cursor, encode_cursor
from optchat.engine.nodes import digest, record_label
from optchat.engine.retrieve import iso
from optchat.engine.search_rank import Ranked, narrow, rank_records
from optchat.engine.visible import Reader, not_found
from optchat.errors import BadInput
from optchat.limits import EXCERPT_CHARS, QUERY_BYTES_MAX, QUERY_TERMS_MAX, SEARCH_PAGE_HITS
from optchat.refs import PublicationRef, SessionId, SessionRef, Span
from optchat.storage.ports import NodeHit, SearchQuery

_TOKEN = re.compile(r'(-?)"([^"]*)"|(\S+)')


def parse_query(
    text: str,
    *,
    session_id: SessionId | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> SearchQuery:
    """Words, quoted phrases and ``-words``; every other character is literal text.

    Raises:
        BadInput: nothing to look for, or over the bounds.
    """
    if len(text.encode("utf-8", "surrogatepass")) > QUERY_BYTES_MAX:
        raise BadInput(
            f"the query is over {QUERY_BYTES_MAX} bytes; nothing was searched.",
            hint="search for a few words of it",
        )
    terms: list[str] = []
    phrases: list[str] = []
    excluded: list[str] = []
    for minus, phrase, word in _TOKEN.findall(text.lower()):
        if word:
            bare = word.lstrip("-")
            target = excluded if word.startswith("-") and bare else terms
            value = bare
        else:
            target = excluded if minus else phrases
            value = phrase
        if any(c.isalnum() for c in value) and value not in target:
            target.append(value)
    if not terms and not phrases:
        raise BadInput(
            "the query has no word to look for; nothing was searched.",
            hint="give at least one word or number",
        )
    if len(terms) + len(phrases) + len(excluded) > QUERY_TERMS_MAX:
        raise BadInput(
            f"the query has more than {QUERY_TERMS_MAX} words; nothing was searched.",
            hint="keep the words that matter most",
        )
    return SearchQuery(
        terms=tuple(terms),
        phrases=tuple(phrases),
        excluded=tuple(excluded),
        session_id=session_id,
        since_ms=since_ms,
        until_ms=until_ms,
    )


def parse_time(text: str, name: str) -> int:
    """A date or time in ISO form, local unless it says otherwise, in milliseconds."""
    try:
        return int(datetime.fromisoformat(text.strip()).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # the last two: a year that no clock reaches
        raise BadInput(
            f"{name} is {text[:40]!r}, which is no date; nothing was searched.",
            hint="write it as 2026-11-30 or 2026-11-30T14:05",
        ) from None


_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_time_or_age(text: str, name: str, now_ms: int) -> int:
    """A date, or an age before now such as ``7d``, in milliseconds."""
    age = _AGE.fullmatch(text.strip())
    return now_ms - int(age[1]) * _UNIT_MS[age[2]] if age else parse_time(text, name)


def _bound(
    given: tuple[tuple[str | None, str], ...],
    narrower: Callable[[list[int]], int],
    now_ms: int | None,
) -> int | None:
    """The narrower of several times."""
    now = now_ms if now_ms is not None else int(time.time() * 1000)
    times = [parse_time_or_age(text, name, now) for text, name in given if text]
    return narrower(times) if times else None


def search(
    reader: Reader,
    *,
    query: str,
    session: str | None = None,
    before: str | None = None,
    after: str | None = None,
    cursor: str | None = None,
    since: str | None = None,
    until: str | None = None,
    directory: str | None = None,
    role: str | None = None,
    kind: str | None = None,
    tool: str | None = None,
    group: str = "record",
    include_current: bool = False,
    now_ms: int | None = None,
) -> Answer:
    """Find records by the words in their originals, best first, a page at a time (§8).

    ``since`` and ``until`` are dates or ages such as ``7d``. The asking session and its family are
    left out unless the search is of one session, or ``include_current`` asks for them.
    """
    reader.check_epoch()
    session_id = _session_id(reader, session) if session else None
    parsed = parse_query(
        query,
        session_id=session_id,
        since_ms=_bound(((after, "after"), (since, "since")), max, now_ms),
        until_ms=_bound(((before, "before"), (until, "until")), min, now_ms),
    )
    if group not in ("record", "session"):
        raise BadInput("group is record or session; nothing was searched.")
    narrowed = [since, until, directory, role, kind, tool, group]
    question = digest(
        query, session or "", before or "", after or "", str(include_current), *map(str, narrowed)
    )[:16]
    start = 0
    if cursor:
        start = decode_cursor(cursor, kind="search", of=question, visibility=reader.visibility)
    left_out = frozenset[SessionId]()
    if session_id is None and not include_current:
        left_out = family(reader)
    found, searched = rank_records(reader, query, parsed, left_out=left_out)
    found = narrow(reader, found, directory=directory, role=role, kind=kind, tool=tool)
    if group == "session":
        found = list({h.session.session_id: h for h in reversed(found)}.values())[::-1]
        found.sort(key=lambda h: -round(h.score, 9))
    originals = {(hit.tree, hit.seq) for hit in found}
    summaries: list[NodeHit] = []
    if group != "session" and (directory, role, kind, tool) == (None, None, None, None):
        summaries = [
            hit
            for hit in reader.tx.search.node_hits(reader.visibility, parsed)
            if (hit.node.span.count > 1 or (hit.node.tree, hit.node.span.start) not in originals)
            and not _is_of(hit, left_out)
        ]
        summaries.sort(key=_summary_order)
    hits: list[Ranked | NodeHit] = [*found, *summaries]
    answer = Answer(f"search: {query[:60]}", reader.visibility, [], [], {})
    answer.lines.append(f"{len(found)} of {searched} records match, and {len(summaries)} summaries")
    answer.data = {
        "searched": searched,
        "records": len(found),
        "summaries": len(summaries),
        "hits": [],
    }
    if not hits:
        answer.lines.append(
            "nothing holds these words; try fewer or other words, without session or dates"
        )
    for hit in hits[start : start + SEARCH_PAGE_HITS]:
        _add_hit(reader, answer, hit)
    if start + SEARCH_PAGE_HITS < len(hits):
        answer.cursor = encode_cursor(
            Cursor(
                kind="search",
                of=question,
                at=start + SEARCH_PAGE_HITS,
                snapshot=reader.visibility.served,
            )
        )
    return answer


def _session_id(reader: Reader, name: str) -> SessionId:
    match = re.fullmatch(r"s?(\d{1,9})", name.strip(), re.ASCII)
    if match is None:
        raise BadInput(
            f"{name[:40]!r} is no session; nothing was searched.", hint="write it as s12"
        )
    ref = SessionRef(int(match[1]), 0, Span(0, 1))
    found = reader.tx.sessions.session_numbered(reader.visibility.scope_id, ref.number)
    visible = found is not None and (
        found.session_id == reader.visibility.session_id
        or reader.tx.publications.of_session(reader.visibility, found.session_id, None, 1)
    )
    if found is None or not visible:
        raise not_found(ref)
    return found.session_id


def family(reader: Reader) -> frozenset[SessionId]:
    """The asking session, its parent and its subagents: a question does not find itself."""
    asking = reader.visibility.session_id
    own = reader.tx.sessions.session(asking) if asking is not None else None
    if own is None:
        return frozenset()
    root = own.parent_host_session or own.host_session
    return frozenset(
        s.session_id
        for s in reader.tx.sessions.sessions(reader.visibility.scope_id)
        if s.session_id == own.session_id
        or (s.host == own.host and root in (s.host_session, s.parent_host_session))
    )


def _is_of(hit: NodeHit, sessions: frozenset[SessionId]) -> bool:
    return isinstance(hit.node.tree, SessionTree) and hit.node.tree.session_id in sessions


def _summary_order(hit: NodeHit) -> tuple[int, int, str, int]:
    """More matches first, then the shorter span."""
    return (-len(hit.matched), hit.node.span.count, str(hit.node.tree), -hit.node.span.start)


def _add_hit(reader: Reader, answer: Answer, hit: Ranked | NodeHit) -> None:
    if isinstance(hit, NodeHit):
        _add_summary(reader, answer, hit)
        return
    if hit.seq < 0:
        _add_title(reader, answer, hit)
        return
    record = reader.tx.records.record(hit.tree, hit.seq)
    if record is None:
        return
    ref = str(SessionRef(hit.session.number, hit.tree.generation, Span(hit.seq, 1)))
    excerpt = excerpt_of(reader.tx.search.text(hit.tree, hit.seq), list(hit.matched))
    when = iso(record.host_time_ms)
    answer.refs.append(ref)
    answer.lines.append(f"{ref} {escape(record_label(record))} {when} | {escape(excerpt)}")
    answer.data["hits"].append(
        {
            "ref": ref,
            "kind": record.kind.value,
            "tool": record.tool,
            "time": when,
            "excerpt": excerpt,
            "matched": list(hit.matched),
            "evidence": hit.evidence,
            "session": f"s{hit.session.number}",
            "title": hit.session.title,
        }
    )


def _add_title(reader: Reader, answer: Answer, hit: Ranked) -> None:
    of = reader.tx.publications.of_session(reader.visibility, hit.session.session_id, None, 1)
    if not of:
        return
    ref = str(PublicationRef(Span(of[0].seq, 1)))
    answer.refs.append(ref)
    answer.lines.append(f"{ref} title of s{hit.session.number} | {escape(hit.session.title)}")
    answer.data["hits"].append(
        {
            "ref": ref,
            "kind": "title",
            "tool": None,
            "time": iso(of[0].completed_ms),
            "excerpt": hit.session.title,
            "matched": list(hit.matched),
            "evidence": "title",
            "session": f"s{hit.session.number}",
            "title": hit.session.title,
        }
    )


def _add_summary(reader: Reader, answer: Answer, hit: NodeHit) -> None:
    node = hit.node
    ref = str(PublicationRef(node.span))
    if isinstance(node.tree, SessionTree):
        session = reader.tx.sessions.session(node.tree.session_id)
        if session is None:
            return
        ref = str(SessionRef(session.number, node.tree.generation, node.span))
    label = f"summary {node.label}".strip()
    excerpt = excerpt_of(node.text, sorted(hit.matched))
    answer.refs.append(ref)
    answer.lines.append(f"{ref} {escape(label)} | {escape(excerpt)}")
    answer.data["hits"].append(
        {
            "ref": ref,
            "kind": "summary",
            "label": node.label,
            "excerpt": excerpt,
            "matched": sorted(hit.matched),
        }
    )


def excerpt_of(text: str, matched: list[str]) -> str:
    """The text around its first match, on one line, cut at code points and marked where cut."""
    lowered = text.lower()
    places = [at for at in (lowered.find(term) for term in matched) if at >= 0]
    # Lower-casing can change lengths; the place is only where the excerpt is taken from.
    at = min(places, default=0)
    start = max(0, at - EXCERPT_CHARS // 3)
    end = min(len(text), start + EXCERPT_CHARS)
    cut = re.sub(r"\s+", " ", text[start:end]).strip()
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"
