"""Which jobs go together in one call (§10).

A batch is made around a job that was claimed: the contiguous small nodes of its turn, the nodes
over them whose members are all in hand, and the turn itself. Each companion is leased on its own,
so that what fails of a batch is given back alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from optchat.compactor import results
from optchat.compactor.items import (
    LEAF_BYTES_MAX,
    Batch,
    Item,
    MergeTarget,
    leaf_item,
    merge_item,
    turn_item,
)
from optchat.core.records import Record
from optchat.core.tree import Node, ScopeTree, SessionTree, Tree
from optchat.engine.forest import Forest
from optchat.engine.nodes import fits, is_retired, joined, leaf_text
from optchat.errors import IntegrityError
from optchat.refs import Span, TurnId
from optchat.storage.ports import Job, JobKind, JobState, Tx

CANDIDATES_MAX = 400
"""Open jobs of one queue that are looked at for one batch."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A job whose line is there without a call."""

    job: Job
    text: str
    node: Node | None  # the only child that is left, whose line is taken over


@dataclass(frozen=True, slots=True)
class Oversized:
    """A leaf whose payload is read through a chunk tree."""

    job: Job
    record: Record
    turn_id: TurnId


@dataclass(slots=True)
class Planned:
    """A batch with what it belongs to. ``context_end`` is where its causal context ends (§4)."""

    batch: Batch = field(default_factory=Batch)
    tree: Tree | None = None
    turn_id: TurnId | None = None
    start: int = 0
    end_exclusive: int = 0
    context_end: int = 0

    @property
    def evidence(self) -> str:
        return f"{self.start}..{self.end_exclusive}"


@dataclass(slots=True)
class Planner:
    """Makes one batch in one transaction."""

    tx: Tx
    worker: str
    now_ms: int
    lease_ms: int
    lines_max: int
    bytes_max: int
    mask: bool
    _made: dict[tuple[str, Span], Item] = field(default_factory=dict[tuple[str, Span], Item])
    _planned: Planned = field(default_factory=Planned)
    _bytes: int = 0
    _full: bool = False

    def plan(self, job: Job) -> Planned | Ready | Oversized:
        """The batch around a claimed job.

        Raises:
            IntegrityError: something that the job needs is not there.
        """
        first = self._first(job)
        if isinstance(first, Ready | Oversized):
            return first
        self._take(first)
        if not has_failed(job) and self.lines_max > 1:
            self._companions(job)
        self._planned.batch.items.sort(key=_order)
        return self._planned

    # --- the claimed job ---

    def _first(self, job: Job) -> Item | Ready | Oversized:
        if job.kind is JobKind.TURN:
            item = turn_item(self.tx, job, {})
            if item is None:
                raise IntegrityError(f"a node of the source cover of {job.target} is missing.")
            return item
        tree, span = results.target(job)
        if span.count == 1:
            if isinstance(tree, ScopeTree):
                raise IntegrityError(f"a publication's leaf has no job of its own: {job.target}")
            return self._leaf(job, tree, span)
        forest = results.forest_of(self.tx, tree)
        ready = self._without_call(job, results.children_of(forest, span))
        if ready is not None:
            return ready
        item = merge_item(job, forest, span, {})
        assert item is not None
        return item

    def _leaf(self, job: Job, tree: SessionTree, span: Span) -> Item | Ready | Oversized:
        record = self.tx.records.record(tree, span.start)
        if record is None:
            raise IntegrityError(f"the record {job.target} of a job is missing.")
        if record.payload_bytes > LEAF_BYTES_MAX:
            return Oversized(job, record, record.turn_id)
        item = leaf_item(self.tx, job, record, self._codes(), mask=self.mask)
        verbatim = leaf_text(record, item.own_text)
        return item if verbatim is None else Ready(job, verbatim, None)

    def _without_call(self, job: Job, children: tuple[Node, Node]) -> Ready | None:
        text = joined(children)
        if text is not None:
            return Ready(job, text, None)
        left = [c for c in children if not is_retired(c)]
        if len(left) == 1:
            # What is left of the range is one line, and there is nothing to merge it with.
            told = f"{left[0].label}: {left[0].text}" if left[0].span.count == 1 else left[0].text
            return Ready(job, told if fits(told) else left[0].text, left[0])
        return None

    # --- what goes along ---

    def _companions(self, job: Job) -> None:
        turn_id = self._planned.turn_id
        candidates = self.tx.jobs.open_in(job.queue, self.now_ms, CANDIDATES_MAX)
        for other in candidates:
            if len(self._planned.batch.items) >= self.lines_max:
                return
            if has_failed(other) or not self._is_in_hand(other):
                continue  # it has failed in company, or misses what this call does not make
            item = self._companion(other, turn_id)
            if item is None:
                continue
            leased = self.tx.jobs.lease(other.job_id, self.worker, self.now_ms, self.lease_ms)
            if leased is not None:
                item.job = leased
                self._take(item)

    def _is_in_hand(self, job: Job) -> bool:
        return all((tree, span) in self._made for tree, span in self.tx.jobs.waits(job.job_id))

    def _companion(self, job: Job, turn_id: TurnId | None) -> Item | None:
        room = self.bytes_max - self._bytes
        if job.kind is JobKind.TURN:
            if job.target != turn_id:
                return None
            return turn_item(self.tx, job, self._made)
        tree, span = results.target(job)
        if tree != self._planned.tree:
            return None
        if isinstance(tree, SessionTree):
            last = self.tx.records.record(tree, span.end_exclusive - 1)
            if last is None or last.turn_id != turn_id:
                return None
            if span.count == 1:
                if last.payload_bytes > LEAF_BYTES_MAX:
                    return None
                if self._full or last.payload_bytes > room:
                    self._full = True  # contiguous: nothing behind it is taken either
                    return None
                item = leaf_item(self.tx, job, last, self._codes(), mask=self.mask)
                return item if leaf_text(last, item.own_text) is None else None
        item = merge_item(job, self._forest(tree), span, self._made)
        if item is None or item.source_bytes > room:
            return None
        if isinstance(item.target, MergeTarget):
            left, right = item.target.children
            both = (left, right) if left is not None and right is not None else None
            if both is not None and self._without_call(job, both) is not None:
                return None  # it needs no call, and gets its own turn for nothing
        return item

    def _take(self, item: Item) -> None:
        planned = self._planned
        if item.job.kind is JobKind.TURN:
            turn = self.tx.turns.turn(TurnId(item.job.target))
            assert turn is not None
            assert turn.end_seq_exclusive is not None
            tree: Tree = SessionTree(turn.session_id, turn.generation)
            start, end = turn.start_seq, turn.end_seq_exclusive
            turn_id: TurnId | None = turn.turn_id
            context_end = start
        else:
            tree, span = results.target(item.job)
            start, end = span.start, span.end_exclusive
            turn_id = self._turn_of(tree, span)
            context_end = end - 1
            self._made[(str(tree), span)] = item
        if planned.tree is None:
            planned.tree, planned.turn_id = tree, turn_id
            planned.start, planned.end_exclusive = start, end
            planned.context_end = context_end
        planned.start = min(planned.start, start)
        planned.end_exclusive = max(planned.end_exclusive, end)
        planned.context_end = min(planned.context_end, context_end)
        planned.batch.items.append(item)
        self._bytes += item.source_bytes

    def _turn_of(self, tree: Tree, span: Span) -> TurnId | None:
        if isinstance(tree, ScopeTree):
            return None
        last = self.tx.records.record(tree, span.end_exclusive - 1)
        return last.turn_id if last is not None else None

    def _forest(self, tree: Tree) -> Forest:
        return results.forest_of(self.tx, tree)

    def _codes(self) -> list[str]:
        return [i.code for i in self._planned.batch.items]


def has_failed(job: Job) -> bool:
    """Whether a job has been given back at its own fault. One whose holder vanished has not."""
    return bool(job.attempts > (job.state is JobState.LEASED) and job.error)


def _order(item: Item) -> tuple[int, int, int]:
    """By where it ends; members, being shorter, before what is over them; turns last."""
    if item.job.kind is JobKind.TURN:
        return (2**62, 0, 0)
    _, span = results.target(item.job)
    return (span.end_exclusive, span.count, span.start)
