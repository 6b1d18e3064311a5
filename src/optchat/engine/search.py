"""memory_search: literal text in the originals and summaries that a reader may see (§8).

Ranks are made from the visible hits alone, so that nothing outside the snapshot moves them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from datetime import datetime

from optchat.core.context import escape
from optchat.core.tree import SessionTree
from optchat.engine.answers import Answer, Cursor, decode_cursor, encode_cursor
from optchat.engine.labels import record_label
from optchat.engine.nodes import digest
from optchat.engine.retrieve import iso
from optchat.engine.visible import Reader, not_found
from optchat.errors import BadInput
from optchat.limits import EXCERPT_CHARS, QUERY_BYTES_MAX, QUERY_TERMS_MAX, SEARCH_PAGE_HITS
from optchat.refs import PublicationRef, SessionId, SessionRef, Span
from optchat.storage.ports import NodeHit, SearchHit, SearchQuery

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


def search(
    reader: Reader,
    *,
    query: str,
    session: str | None = None,
    before: str | None = None,
    after: str | None = None,
    cursor: str | None = None,
) -> Answer:
    """Find records by the words in their originals, best first, a page at a time (§8)."""
    reader.check_epoch()
    session_id = _session_id(reader, session) if session else None
    parsed = parse_query(
        query,
        session_id=session_id,
        since_ms=parse_time(after, "after") if after else None,
        until_ms=parse_time(before, "before") if before else None,
    )
    question = digest(query, session or "", before or "", after or "")[:16]
    start = 0
    if cursor:
        start = decode_cursor(cursor, kind="search", of=question, visibility=reader.visibility)
    searched = reader.tx.search.searchable(reader.visibility)
    found = [*reader.tx.search.hits(reader.visibility, parsed)]
    originals = {(hit.tree, hit.seq) for hit in found}
    summaries = [
        hit
        for hit in reader.tx.search.node_hits(reader.visibility, parsed)
        if hit.node.span.count > 1 or (hit.node.tree, hit.node.span.start) not in originals
    ]
    hits = _ranked([*found, *summaries], searched)
    answer = Answer(f"search: {query}", reader.visibility, [], [], {})
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


def _ranked(hits: list[SearchHit | NodeHit], searched: int) -> list[SearchHit | NodeHit]:
    """Most and rarest matches first; originals before summaries, shorter before longer texts."""
    frequency = Counter(term for hit in hits for term in hit.matched)
    weight = {t: math.log(1 + searched / n) for t, n in frequency.items()}

    def order(hit: SearchHit | NodeHit) -> tuple[float, int, int, str, int]:
        score = sum(weight[t] for t in sorted(hit.matched))
        match hit:
            case SearchHit():
                return (-score, 0, len(hit.text), str(hit.tree), -hit.seq)
            case NodeHit(node=node):
                return (-score, 1, node.span.count, str(node.tree), -node.span.start)

    return sorted(hits, key=order)


def _add_hit(reader: Reader, answer: Answer, hit: SearchHit | NodeHit) -> None:
    if isinstance(hit, NodeHit):
        _add_summary(reader, answer, hit)
        return
    record = reader.tx.records.record(hit.tree, hit.seq)
    session = reader.tx.sessions.session_in(reader.visibility.scope_id, hit.tree.session_id)
    if record is None or session is None:
        return
    ref = str(SessionRef(session.number, hit.tree.generation, Span(hit.seq, 1)))
    excerpt = excerpt_of(hit.text, sorted(hit.matched))
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
            "matched": sorted(hit.matched),
        }
    )


def _add_summary(reader: Reader, answer: Answer, hit: NodeHit) -> None:
    node = hit.node
    ref = str(PublicationRef(node.span))
    if isinstance(node.tree, SessionTree):
        scope_id = reader.visibility.scope_id
        session = reader.tx.sessions.session_in(scope_id, node.tree.session_id)
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
