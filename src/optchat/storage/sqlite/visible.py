"""The visibility rule as SQL (§9, §11; I3, I4).

A record is visible when it lies in a segment of the reader's own lineage, or in what a publication
of the reader's scope is made from, numbered below the snapshot's end and alive at its commit. What
asks for publications puts that part inside its ``where``, before anything is cut off or counted;
``frames`` says the same in arrays, for searches.
"""

from __future__ import annotations

from collections.abc import Iterable

from optchat.core.snapshots import Visibility
from optchat.storage.sqlite.connection import Value

SCOPE = "(select id from scope where scope_id = {})"
"""The number in this file of the scope that an id names."""
OF_SCOPE = SCOPE.format(":scope")
ALIVE = "p.seq < :end and p.born <= :csn and (p.died is null or p.died > :csn)"
"""A publication ``p`` of the scope that the snapshot sees."""


def bindings(visibility: Visibility) -> dict[str, Value]:
    """The values that ``ALIVE`` names, and the scope."""
    return {
        "scope": visibility.scope_id,
        "csn": visibility.csn,
        "end": visibility.publication_end,
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
