"""What a reader may see, as columns: what a search filters, counts and ranks (§8, I4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from optchat.core.evidence import Evidence, evidence_class
from optchat.core.records import RecordKind
from optchat.core.tree import SessionTree
from optchat.refs import ProjectId, SessionId

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.int8]
Counts = NDArray[np.uint16 | np.int32]

KINDS = tuple(RecordKind)
EVIDENCE = tuple(Evidence)
OUTCOMES = ("", "completed", "interrupted", "failed", "error")
"""What the codes in a frame's columns stand for; an outcome of "" is none yet."""


def kind_code(kind: RecordKind) -> int:
    return KINDS.index(kind)


def evidence_code(
    kind: RecordKind, tool: str | None, status: str | None, *, subagent: bool | None
) -> int:
    return EVIDENCE.index(evidence_class(kind, tool, status, subagent=subagent))


def outcome_code(status: str | None) -> int:
    """Of a call's own state; a message's marks are none."""
    return OUTCOMES.index(status) if status in OUTCOMES else 0


@dataclass(frozen=True, slots=True)
class Titled:
    """A session's title as the snapshot has it: of its last visible publication."""

    title: str
    publication: int
    completed_ms: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Summaries:
    """The visible summary nodes: of a frame's trees, or of the shared one where ``tree`` is -1.

    A session's node is visible when all that it covers is; one that crosses the point where its
    generation began is left out, for its halves are found.
    """

    tree: Ints
    start: Ints
    count: Ints
    revision: Ints
    row_of: Ints

    def rows(self, docs: Ints) -> Ints:
        return _rows(self.row_of, docs)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Columns:
    """Records that have words, a row each, ordered by tree and seq.

    So neighbours in a conversation are neighbours here; which tree comes first says nothing.
    ``tree``, ``session``, ``project`` and ``tool`` are numbers of those names, ``length`` a
    payload's bytes.
    """

    tree: Ints
    seq: Ints
    session: Ints
    project: Ints
    time_ms: Longs
    kind: Bytes
    evidence: Bytes
    tool: Ints
    outcome: Bytes
    length: Ints

    @property
    def count(self) -> int:
        return len(self.seq)

    @property
    def keys(self) -> Longs:
        """Tree and seq as one number, ascending."""
        return keys_of(self.tree, self.seq)


def keys_of(tree: Ints, seq: Ints) -> Longs:
    return (tree.astype(np.int64) << 32) | seq


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Frame(Columns):
    """The visible records that have words, and the visible titles, at one snapshot.

    The columns' numbers are places in the tuples of names. ``row_of`` leads from a store's document
    number to the row, or to -1 for what is not to be seen.
    """

    trees: tuple[SessionTree, ...]
    sessions: tuple[SessionId, ...]
    projects: tuple[ProjectId, ...]
    tools: tuple[str, ...]
    row_of: Ints
    titles: dict[SessionId, Titled]
    summaries: Summaries
    unindexed: int = 0
    derived: dict[str, object] = field(default_factory=dict[str, object])
    """What a reader has worked out of this frame and wants again with it."""

    def rows(self, docs: Ints) -> Ints:
        """The row of each document; -1 where it is not visible."""
        return _rows(self.row_of, docs)


def _rows(row_of: Ints, docs: Ints) -> Ints:
    """``docs`` ascend."""
    known = int(np.searchsorted(docs, len(row_of)))
    found = np.full(len(docs), -1, np.int32)
    found[:known] = row_of[docs[:known]]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where a stem stands: documents, ascending, and the numbers of the words in each, ascending.

    ``offsets`` are those of all documents one after another, in each so many as ``times`` says.
    """

    docs: Ints
    times: Counts
    offsets: Counts

    @classmethod
    def of(cls, docs: Ints, offsets: Ints) -> Places:
        """From a document and a word number for each place, in order."""
        new = np.ones(len(docs), bool)
        new[1:] = docs[1:] != docs[:-1]
        first = np.flatnonzero(new)
        return cls(docs[first], _narrow(np.diff(first, append=len(docs))), _narrow(offsets))

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        return self.docs.nbytes + self.times.nbytes + self.offsets.nbytes

    def __add__(self, later: Places) -> Places:
        """These with those behind them, which may begin in the last document of these."""
        meet = int(len(self) > 0 and len(later) > 0 and self.docs[-1] == later.docs[0])
        kept = len(self.docs) - meet
        times = np.concatenate((self.times[:kept], later.times)).astype(np.int32)
        if meet:
            times[kept] += self.times[kept]
        return Places(
            np.concatenate((self.docs[:kept], later.docs)),
            _narrow(times),
            np.concatenate((self.offsets, later.offsets)),
        )


def _narrow(values: Ints | NDArray[np.intp]) -> Counts:
    """The same numbers in half of the room, if they are small."""
    small = int(values.max(initial=0)) < 2**16
    return values.astype(np.uint16 if small else np.int32)
