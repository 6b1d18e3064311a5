"""The visibility rule as SQL (§9, §11; I3, I4).

A record is visible when it lies in a segment of the reader's own lineage, or in what a publication
of the reader's scope is made from, numbered below the snapshot's end and alive at its commit. It is
written once, here; searches and counts put it inside their ``where``, before anything is cut off or
counted.
"""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from optchat.core.snapshots import Visibility
from optchat.core.tree import SessionTree
from optchat.storage.sqlite.connection import Value

ALIVE = "p.seq < :end and p.born <= :csn and (p.died is null or p.died > :csn)"
"""A publication ``p`` of the scope that the snapshot sees."""

CTES = (
    "own (session_id, generation, start, end_exclusive) as materialized ("
    "select value ->> 0, value ->> 1, value ->> 2, value ->> 3 from json_each(:own))"
)
"""What ``VISIBLE`` refers to; to be put after ``with``."""

VISIBLE = (
    "(exists (select 1 from own where own.session_id = t.session_id "
    "and own.generation = t.generation and own.start <= t.seq and t.seq < own.end_exclusive) "
    "or exists (select 1 from generation as g cross join published as c "
    "on c.generation_id = g.id and c.scope_id = :scope "
    "and c.start <= t.seq and c.end_exclusive > t.seq "
    "cross join publication as p on p.scope_id = c.scope_id and p.seq = c.publication "
    f"where g.session_id = t.session_id and g.number = t.generation and {ALIVE}))"
)
"""Whether ``t``, with session_id, generation and seq, is visible."""


def bindings(visibility: Visibility) -> dict[str, Value]:
    """The values that ``ALIVE``, ``CTES`` and ``VISIBLE`` name."""
    segments = () if visibility.own is None else visibility.own.segments
    own = [(s.tree.session_id, s.tree.generation, s.start, s.end_exclusive) for s in segments]
    return {
        "scope": visibility.scope_id,
        "csn": visibility.csn,
        "end": visibility.publication_end,
        "own": msgspec.json.encode(own).decode(),
    }


def union(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same numbers as disjoint half-open ranges, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(r for r in ranges if r[0] < r[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


Ranges = dict[SessionTree, list[tuple[int, int]]]
