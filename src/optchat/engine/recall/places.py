"""Places of stems inside a frame: cut to what is visible, joined, and one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

    def in_rows(self, rows: NDArray[np.intp]) -> list[list[int]]:
        """``in_row`` of each."""
        edges = np.stack((rows, rows + 1)).astype(np.int64) << 32
        low, high = np.searchsorted(self.keys, edges).tolist()
        return [
            self.keys[start:end].astype(np.int32).tolist() if end > start else []
            for start, end in zip(low, high, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.keys)


NOWHERE = Standing(np.empty(0, np.int64))


def visible(places: Places, rows: Ints) -> Standing:
    """The places that are in visible documents; ``rows`` are those of the documents, or -1."""
    seen = rows >= 0
    keys = (rows[seen].astype(np.int64) << 32) | places.offsets[seen]
    keys.sort(kind="stable")
    return Standing(keys)


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


def in_sequence(several: Sequence[Standing]) -> Standing:
    """Where they stand one after another, as the place of the first."""
    keys = several[0].keys if several else NOWHERE.keys
    for distance, standing in enumerate(several[1:], 1):
        if not len(keys) or not len(standing):
            return NOWHERE
        at = np.searchsorted(standing.keys, keys + distance)
        at[at == len(standing)] = 0
        keys = keys[standing.keys[at] == keys + distance]
    return Standing(keys)
