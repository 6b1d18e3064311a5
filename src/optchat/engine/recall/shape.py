"""Neighbours and lengths in a frame: what of it every query needs (§8, I4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optchat.core.tree import SessionTree
from optchat.storage.ports import Frame
from optchat.storage.ports.frame import Ints

Floats = NDArray[np.float32]

LENT_TEXTS = 4
"""So many typical texts a record is at most to those beside it, however long it is."""

LENT_UNIT = 256
"""What is lent is counted in parts of a word, so that sums are exact in whatever order."""


@dataclass(frozen=True, slots=True, eq=False)
class Grain:
    """The lengths of the texts of one width, and what of them every word needs."""

    length: Floats
    texts: int
    typical: float  # the median: a few outputs of tools are as long as all that was said

    @classmethod
    def of(cls, length: Floats) -> Grain:
        """A text of no length is none: frames have groups that hold no visible row."""
        there = length[length > 0]
        return cls(length, len(there), float(np.median(there)) if len(there) else 0.0)

    def worth(self, holding: int) -> float:
        """The weight of a word that stands in so many of the texts."""
        return float(np.log(1 + (self.texts - holding + 0.5) / (holding + 0.5)))


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What of a frame every query needs: neighbours and lengths, kept with it."""

    age: NDArray[np.int32]  # the newest row is 0; those of a time by names, as in every store
    begins: NDArray[np.int32]  # the first row of each tree, and one past the last of all
    record: Grain
    near: Grain
    around: Grain
    session: Grain
    project: Grain
    project_of: NDArray[np.int32]  # of each session
    session_of: NDArray[np.int32]  # of each tree; -1 for none, as for the shared tree behind them
    told: NDArray[np.int32]  # the row of which alone a summary tells; -1 for another summary

    @classmethod
    def of(cls, frame: Frame) -> Shape:
        found = frame.derived.get("shape")
        if isinstance(found, Shape):
            return found
        joined = np.zeros(frame.count, np.float32)
        joined[1:] = frame.tree[1:] == frame.tree[:-1]
        length = frame.length.astype(np.float32)
        record = Grain.of(length)
        lent = np.minimum(length, np.float32(LENT_TEXTS * record.typical))
        named = sorted(range(len(frame.trees)), key=lambda at: _name(frame.trees[at]))
        place = np.empty(len(frame.trees), np.int32)
        place[named] = np.arange(len(named), dtype=np.int32)
        age = np.empty(frame.count, np.int32)
        by_age = np.lexsort((frame.seq, place[frame.tree], -frame.time_ms))
        age[by_age] = np.arange(frame.count, dtype=np.int32)
        project_of = np.zeros(len(frame.sessions), np.int32)
        project_of[frame.session] = frame.project
        numbers = {session: at for at, session in enumerate(frame.sessions)}
        session_of = [numbers.get(tree.session_id, -1) for tree in frame.trees]
        trees = np.arange(len(frame.trees) + 1, dtype=np.int32)
        made = cls(
            age=age,
            begins=np.searchsorted(frame.tree, trees).astype(np.int32),
            record=record,
            near=Grain.of(_spread(lent, joined, 1)),
            around=Grain.of(_spread(lent, joined, 3)),
            session=Grain.of(grouped(length, frame.session, len(frame.sessions))),
            project=Grain.of(grouped(length, frame.project, len(frame.projects))),
            project_of=project_of,
            session_of=np.array([*session_of, -1], np.int32),
            told=_told(frame),
        )
        frame.derived["shape"] = made
        return made

    def lent(self, found: Ints, times: Ints) -> NDArray[np.int64]:
        """Of a word that stands in the rows ``found`` so many ``times``, what each lends to others.

        In a long record as much of it as of the record's length counts there. In ``LENT_UNIT``.
        """
        share = LENT_TEXTS * self.record.typical / self.record.length[found]
        return (times * np.minimum(share, 1) * LENT_UNIT).astype(np.int64)

    def beside(self, frame: Frame, rows: Ints, distance: int) -> tuple[Ints, Ints]:
        """Of each row the rows up to ``distance`` from it in its tree: the first, one past last."""
        tree = frame.tree[rows]
        low = np.maximum(rows - distance, self.begins[tree])
        return low, np.minimum(rows + distance + 1, self.begins[tree + 1])


def _told(frame: Frame) -> Ints:
    nodes = frame.summaries
    keys = (frame.tree.astype(np.int64) << 32) | frame.seq
    wanted = (nodes.tree.astype(np.int64) << 32) | nodes.start
    at = np.searchsorted(keys, wanted)
    found = np.append(keys, -1)[at] == wanted
    return np.where((nodes.count == 1) & (nodes.tree >= 0) & found, at, -1).astype(np.int32)


def _name(tree: SessionTree) -> tuple[str, int]:
    return tree.session_id, tree.generation


def _spread(values: Floats, joined: Floats, distance: int) -> Floats:
    """The sum over each row and those up to ``distance`` before and behind it, in its tree."""
    total = values.copy()
    before, behind = values, values
    for _ in range(distance):
        shifted = np.zeros_like(values)
        shifted[1:] = before[:-1] * joined[1:]
        before = shifted
        back = np.zeros_like(values)
        back[:-1] = behind[1:] * joined[1:]
        behind = back
        total += before
        total += behind
    return total


def grouped(values: Floats | Ints, groups: Ints, count: int) -> Floats:
    return np.bincount(groups, weights=values, minlength=count).astype(np.float32)
