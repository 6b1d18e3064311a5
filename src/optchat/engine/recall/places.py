"""Places of stems inside a frame: cut to what is visible, joined, and one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from optchat.storage.ports import Places
from optchat.storage.ports.frame import Ints

Number = TypeVar("Number", np.int32, np.int64)
Keys = NDArray[np.int64]
Flags = NDArray[np.bool_]

Form = tuple[str, ...]
"""Stems that stand one after another."""


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Where something stands: keys of row and word number, ascending and each once."""

    keys: Keys

    @property
    def rows(self) -> Ints:
        """The row of each place, ascending; a row with several places several times."""
        return (self.keys >> 32).astype(np.int32)

    @property
    def offsets(self) -> Ints:
        return self.keys.astype(np.int32)

    def counted(self) -> tuple[Ints, Ints]:
        """The rows, each once, and how often it stands in each."""
        rows = self.rows
        if not len(rows):
            return rows, rows
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        return rows[first], np.diff(np.append(first, len(rows))).astype(np.int32)

    def in_row(self, row: int) -> list[int]:
        """The word numbers in one row."""
        low, high = np.searchsorted(self.keys, (row << 32, (row + 1) << 32))
        return self.keys[low:high].astype(np.int32).tolist()

    def in_rows(self, rows: Ints) -> list[list[int]]:
        """``in_row`` of each."""
        edges = np.stack((rows, rows + 1)).astype(np.int64) << 32
        low, high = np.searchsorted(self.keys, edges).tolist()
        return [
            self.keys[start:end].astype(np.int32).tolist() if end > start else []
            for start, end in zip(low, high, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.keys)


RowsOf = Callable[[Ints], Ints]
"""Leads from documents to their rows; -1 for one that is not visible."""

NOWHERE = Standing(np.empty(0, np.int64))


def joined(several: Iterable[Standing]) -> Standing:
    """Wherever one of them stands."""
    found = [standing.keys for standing in several if len(standing)]
    if len(found) < 2:
        return Standing(found[0]) if found else NOWHERE
    return Standing(ascending(np.concatenate(found)))


def ascending(values: NDArray[Number]) -> NDArray[Number]:
    """The values in order and each once. NumPy's own goes over a table of hashes, and is slow."""
    values = np.sort(values, kind="stable")
    new = np.ones(len(values), bool)
    new[1:] = values[1:] != values[:-1]
    return values[new]


def in_sequence(several: Sequence[Places], rows_of: RowsOf) -> Standing:
    """Where stems stand one after another in visible documents, as the place of the first.

    The rarest is looked at first and the others only in rows that are left: of a common word in a
    phrase little is kept.
    """
    keys: Keys | None = None
    for at in sorted(range(len(several)), key=lambda at: len(several[at])):
        if keys is None:
            keys = _visible(several[at], rows_of)
            keys = keys[keys.astype(np.int32) >= at] - at
        elif len(keys):
            among = np.zeros(int(keys[-1] >> 32) + 2, bool)  # the last is for every other row
            among[keys >> 32] = True
            there = _visible(several[at], rows_of, among)
            keys = keys[np.isin(keys + at, there, assume_unique=True)]
    return Standing(keys) if keys is not None else NOWHERE


def _visible(places: Places, rows_of: RowsOf, among: Flags | None = None) -> Keys:
    """The keys of the places that are in visible documents, and in one of the rows ``among``."""
    rows = rows_of(places.docs)
    seen = np.flatnonzero(rows >= 0 if among is None else among[np.minimum(rows, len(among) - 1)])
    seen = seen[np.argsort(rows[seen], kind="stable")]
    times = places.times[seen].astype(np.int64)
    before = np.cumsum(places.times, dtype=np.int64)[seen] - times  # places of earlier documents
    at = np.repeat(before - np.cumsum(times) + times, times)
    at += np.arange(len(at))
    return (np.repeat(rows[seen].astype(np.int64), times) << 32) | places.offsets[at]
