"""memory_search: what the visible originals, titles and summaries hold of a query (§8)."""

from __future__ import annotations

import msgspec

from optchat.core.context import escape
from optchat.engine.answers import Answer, Cursor, decode_cursor, encode_cursor
from optchat.engine.nodes import digest
from optchat.engine.recall.hits import Coverage, Hit, Relax
from optchat.engine.recall.matching import Matching
from optchat.engine.recall.query import parse_query
from optchat.engine.recall.shown import Shown
from optchat.engine.visible import Reader

RELAX_MAX = 5


def search(
    reader: Reader,
    *,
    query: str,
    now_ms: int,
    cursor: str | None = None,
    **given: str | bool | int | None,
) -> Answer:
    """Find what was said by its words, best first, a page at a time (§8).

    ``given`` are fields that may as well stand in the query (``query.FIELDS``).

    Raises:
        BadInput, NotFound, SnapshotExpired: nothing was searched.
    """
    reader.check_epoch()
    parsed = parse_query(query, now_ms=now_ms, **given)
    told = (f"{name}={value}" for name, value in sorted(given.items()) if value is not None)
    question = digest(query, *told)[:16]
    start = 0
    if cursor:
        start = decode_cursor(cursor, kind="search", of=question, visibility=reader.visibility)
    matching = Matching(reader, parsed)
    shown = Shown(reader, matching)
    hits: list[Hit] = []
    end = shown.end
    for place, hit in shown.hits(start):
        hits.append(hit)
        if len(hits) == parsed.limit:
            end = place
            break
    coverage = matching.coverage()
    relax = matching.relaxed()[:RELAX_MAX] if not hits and not cursor else []
    answer = Answer(f"search: {query}", reader.visibility, [], [], {})
    answer.lines += [*_head(matching, coverage), *map(_line, hits)]
    if not hits:
        answer.lines += _nothing(matching, relax)
    answer.refs += dict.fromkeys(ref for hit in hits for ref in (hit.ref, *hit.more))
    answer.data = {
        "records": matching.records,
        "summaries": matching.summaries,
        "hits": msgspec.to_builtins(hits),
        "coverage": msgspec.to_builtins(coverage),
        "relax": msgspec.to_builtins(relax),
    }
    if end < shown.end:
        answer.cursor = encode_cursor(
            Cursor(kind="search", of=question, at=end, snapshot=reader.visibility.served)
        )
    return answer


def _head(matching: Matching, coverage: Coverage) -> list[str]:
    """What was looked at, and which words were taken for others."""
    summaries = f"{matching.summaries} summaries"
    lines = [f"{matching.records} of {coverage.ranked} records match, and {summaries}"]
    if coverage.skipped:
        told = ", ".join(f"{count} for {name}" for name, count in coverage.skipped.items())
        lines.append(f"left out of the {coverage.eligible} that are visible: {told}")
    if coverage.unindexed:
        lines.append(f"{coverage.unindexed} of the visible records are not indexed yet")
    if matching.unread:
        lines.append(f"{matching.unread} conversations have changed and are not read again yet")
    for term in matching.asked.words:
        if term.instead:
            instead = ", ".join(term.instead[:5])
            lines.append(escape(f"{term.told} stands nowhere; taken for {instead}"))
    return lines


def _line(hit: Hit) -> str:
    parts = [hit.kind, hit.tool or "", hit.evidence or "", hit.time or ""]
    more = f" (also {', '.join(hit.more)})" if hit.more else ""
    return f"{hit.ref} {escape(' '.join(p for p in parts if p))} | {escape(hit.excerpt)}{more}"


def _nothing(matching: Matching, relax: list[Relax]) -> list[str]:
    """Why nothing was found, as far as that can be told."""
    wanted = matching.asked.wanted
    absent = sum(not len(term.standing) for term in wanted)
    lines = [f"{absent} of {len(wanted)} words stand nowhere that is visible"] if absent else []
    lines += [escape(f"without {r.without}: {r.records} records") for r in relax]
    return lines or ["nothing was found"]
