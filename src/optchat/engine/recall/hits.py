"""The data of a search's answer, as programs read it (§8)."""

from __future__ import annotations

from typing import Any

import msgspec


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One place that answers the query.

    ``kind`` is a record's, or "summary" or "title"; ``evidence`` says who wrote it. ``time`` is of
    the record, local, ISO. ``matched`` are the query's words and phrases that it holds, ``why`` how
    it came here, in words. ``score`` compares hits of one answer and nothing else. ``more`` are the
    refs of the session's next best records when hits are grouped by session.
    """

    ref: str
    session: str | None
    title: str
    project: str | None
    directory: str | None
    time: str | None
    kind: str
    evidence: str | None
    tool: str | None
    excerpt: str
    matched: list[str]
    score: float
    why: list[str]
    more: list[str] = []


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


def as_data(value: msgspec.Struct) -> dict[str, Any]:
    return msgspec.to_builtins(value)
