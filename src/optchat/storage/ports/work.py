"""The queue, the meter, and what an oversized payload is read in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

from optchat.core.tree import SessionTree, Tree
from optchat.refs import BlobHash, ScopeId, SessionId, Span, TurnId
from optchat.storage.ports.values import Chunk, Job, JobKind, JobState, ModelCall, Spent


class Jobs(Protocol):
    """The durable queue: unique jobs, leases with fencing tokens, dependencies, outbox."""

    def put(self, job: Job, waits_for: Sequence[tuple[Tree, Span]] = ()) -> bool:
        """Enqueue; False when (kind, target, input_hash) is there already, in whatever state.

        Without a dependency that is still missing it becomes READY, else WAITING.
        """
        ...

    def resolve(self, tree: Tree, span: Span) -> int:
        """A node became durable: drop it from what waits for it; jobs without any left get READY.

        Returns:
            The number of jobs that became ready.
        """
        ...

    def claim(
        self,
        worker: str,
        now_ms: int,
        lease_ms: int,
        scopes: Collection[ScopeId] | None = None,
    ) -> Job | None:
        """Lease the next job: READY and due, or LEASED, nothing missing, and the lease run out.

        The queue served longest ago comes first, by queue (a session's, else a scope's); in it
        turns before nodes, then oldest first. ``scopes`` leaves out the jobs of others. The claim
        raises the token, counts an attempt, and sends the queue to the end of the line. To take
        over a lease that ran out is no new attempt: the machine may have slept.
        """
        ...

    def end_leases(self) -> int:
        """Give back what the owner before held, its attempts counted; how many jobs that were.

        For a new owner of the store: nobody whom it does not know can hold a lease.
        """
        ...

    def lease(self, job_id: str, worker: str, now_ms: int, lease_ms: int) -> Job | None:
        """Lease a certain job to go with one that was claimed.

        READY (due or not), WAITING, or LEASED with the lease run out; None in another state. What
        it waits for is to be made by its holder.
        """
        ...

    def open_in(self, queue: str, now_ms: int, limit: int) -> tuple[Job, ...]:
        """The jobs of a queue that ``lease`` would give, oldest first."""
        ...

    def waits(self, job_id: str) -> tuple[tuple[str, Span], ...]:
        """What a job still waits for: (name of the tree, span), in order."""
        ...

    def hurry(self, queue: str, now_ms: int, *, first: bool) -> int:
        """Make due what was put off when it was enqueued and never tried; how many that were.

        ``first`` sends the queue to the head of the line.
        """
        ...

    def postpone(self, job_id: str, token: int, *, not_before_ms: int, error: str) -> bool:
        """Give a job back without counting the attempt, because the fault is not the job's."""
        ...

    def retry(self, now_ms: int, job_id: str | None = None) -> int:
        """Make FAILED jobs READY with their attempts forgotten: one of them, or all."""
        ...

    def release_put_off(self, reason: str, now_ms: int) -> int:
        """Make due what waits with an error that begins with ``reason``; how many that were."""
        ...

    def redo(self, job: Job, waits_for: Sequence[tuple[Tree, Span]]) -> bool:
        """As ``put``, but wait for the next commit of each node, also of one that is there."""
        ...

    def remove(self, kind: JobKind, target: str) -> int:
        """Remove the jobs of a target; a result that comes late finds none. How many there were."""
        ...

    def remove_queue(self, queue: str) -> tuple[Job, ...]:
        """Remove every job of a queue; those that were not done, oldest first."""
        ...

    def move_waits(self, tree: SessionTree, to: SessionTree) -> None:
        """Let what waits for nodes of ``tree`` wait for those of ``to``."""
        ...

    def listed(self, state: JobState, limit: int) -> tuple[Job, ...]:
        """The jobs in a state, newest first."""
        ...

    def renew(self, job_id: str, token: int, until_ms: int) -> bool:
        """Extend a lease; False when the token is no longer the job's or the job not leased."""
        ...

    def finish(self, job_id: str, token: int) -> bool:
        """Mark DONE; False, writing nothing, when the token is old or the job not leased.

        The caller commits the result in the same transaction only when this is True.
        """
        ...

    def release(
        self, job_id: str, token: int, *, not_before_ms: int, error: str, failed: bool
    ) -> bool:
        """Give a job back: READY again after ``not_before_ms``, or FAILED for good."""
        ...

    def job(self, job_id: str) -> Job | None: ...
    def of_target(self, kind: JobKind, target: str) -> Job | None:
        """The newest job for a target."""
        ...

    def counts(self, session_id: SessionId | None = None) -> dict[JobState, int]:
        """Jobs by state, every state named."""
        ...

    def failed(self, limit: int) -> tuple[Job, ...]:
        """The failed jobs, newest first."""
        ...

    def next_due_ms(self) -> int | None:
        """When the earliest unfinished claimable job is due; None when there is none."""
        ...


class Ledger(Protocol):
    """The meter: every call to a summary model, and what the checks on the answers found (I12)."""

    def open(self, call: ModelCall) -> None:
        """Write a call before it is sent. Raises Conflict when the id is taken."""
        ...

    def close(self, call: ModelCall) -> None:
        """Replace the row of a call by what came of it; a row that is gone stays gone."""
        ...

    def drop(self, call_id: str) -> None:
        """Take back the row of a call that never left the process."""
        ...

    def spent(
        self,
        since_ms: int,
        *,
        day: str | None = None,
        turn_id: TurnId | None = None,
        idle: bool | None = None,
    ) -> Spent:
        """The sum of the calls at or after ``since_ms`` that all the given conditions fit."""
        ...

    def table(
        self, by: Literal["day", "session", "purpose", "model"], since_ms: int
    ) -> tuple[tuple[str, Spent], ...]:
        """Sums by one column, in its order; calls of no session are under ""."""
        ...

    def unfinished(self) -> int:
        """How many calls are still marked as sent."""
        ...

    def disown(self, *, session_id: SessionId | None = None, turn_id: TurnId | None = None) -> None:
        """Keep what the calls of a session or a turn cost, and not whose they were."""
        ...

    def count(self, model: str, prompt_version: str, finding: str, times: int) -> None:
        """Add to how often the checks found something in a model's answers."""
        ...

    def findings(self) -> tuple[tuple[str, str, str, int], ...]:
        """(model, prompt version, finding, times), in that order."""
        ...


class Chunks(Protocol):
    """The recorded pieces of oversized payloads; they go when their payload goes (I8)."""

    def put(self, chunk: Chunk) -> None:
        """Insert or replace. Raises IntegrityError when the payload is not kept."""
        ...

    def of(self, payload: BlobHash, plan: str) -> tuple[Chunk, ...]:
        """All that is recorded of a plan, by level and position."""
        ...
