"""The data of a search's answer, as programs read it (§8)."""

from __future__ import annotations

import msgspec


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One place that answers the query.

    ``kind`` is a record's, or "summary" or "title"; ``evidence`` says who wrote it. ``time`` is of
    the record, ISO in UTC. ``matched`` are the query's words and phrases that it holds, ``why`` how
    it came here, in words. ``score`` compares hits of one answer and nothing else. ``more`` are
    refs of the session's next best places when hits are grouped by session, ``label`` a summary's.
    """

    ref: str
    session: str | None
    title: str = ""
    project: str | None = None
    directory: str | None = None
    time: str | None = None
    kind: str
    evidence: str | None = None
    tool: str | None = None
    excerpt: str
    matched: list[str]
    score: float = 0.0
    why: list[str]
    more: list[str] = []
    label: str | None = None


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at, counted from what was ranked.

    ``eligible`` records the reader may see; ``ranked`` of them were compared with the query,
    ``skipped`` were not, by reason; the two sum up to it. ``unindexed`` of the ranked are not in
    the index yet. ``limited_by`` says in words what else bounds the answer.
    """

    eligible: int
    ranked: int
    skipped: dict[str, int]
    unindexed: int
    limited_by: list[str]


class Relax(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint that stands between the query and ``records`` that would match without it."""

    without: str
    records: int
