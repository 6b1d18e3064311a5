"""The job queue and the store's counters in dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from optchat.core.tree import SessionTree, Tree
from optchat.errors import Conflict
from optchat.refs import Csn, ScopeId, SessionId, Span
from optchat.storage.memory.state import Changes, NodeKey
from optchat.storage.ports import Job, JobKind, JobState, Removal


class MemoryJobs:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def put(self, job: Job, waits_for: Sequence[tuple[Tree, Span]] = ()) -> bool:
        keys = ((str(tree), span.start, span.count) for tree, span in waits_for)
        missing = frozenset(
            key for key in keys if not any(n.died is None for n in self._tables.nodes.get(key, ()))
        )
        return self._enqueue(job, missing)

    def redo(self, job: Job, waits_for: Sequence[tuple[Tree, Span]]) -> bool:
        keys = ((str(tree), span.start, span.count) for tree, span in waits_for)
        return self._enqueue(job, frozenset(keys))

    def _enqueue(self, job: Job, missing: frozenset[NodeKey]) -> bool:
        identity = (job.kind, job.target, job.input_hash)
        for other in self._tables.jobs.values():
            if (other.kind, other.target, other.input_hash) == identity:
                return False
        if job.job_id in self._tables.jobs:
            raise Conflict("that job id is taken; nothing was enqueued.")
        if job.queue not in self._tables.job_queues:
            self._changes.put(self._tables.job_queues, job.queue, self._served_last() + 1)
        state = JobState.WAITING if missing else JobState.READY
        ordinal = self._tables.counters["job"] + 1
        self._changes.put(self._tables.counters, "job", ordinal)
        self._changes.put(self._tables.jobs, job.job_id, replace(job, state=state))
        self._changes.put(self._tables.job_order, job.job_id, ordinal)
        self._changes.put(self._tables.job_waits, job.job_id, missing)
        return True

    def resolve(self, tree: Tree, span: Span) -> int:
        key = (str(tree), span.start, span.count)
        ready = 0
        for job_id, waits in tuple(self._tables.job_waits.items()):
            if key not in waits:
                continue
            self._changes.put(self._tables.job_waits, job_id, waits - {key})
            job = self._tables.jobs[job_id]
            if job.state is JobState.WAITING and not waits - {key}:
                self._put(replace(job, state=JobState.READY))
                ready += 1
        return ready

    def claim(
        self,
        worker: str,
        now_ms: int,
        lease_ms: int,
        scopes: Collection[ScopeId] | None = None,
    ) -> Job | None:
        due = [
            job
            for job in self._tables.jobs.values()
            if (scopes is None or job.scope_id in scopes)
            and (
                (job.state is JobState.READY and job.not_before_ms <= now_ms)
                or (
                    job.state is JobState.LEASED
                    and job.lease_until_ms <= now_ms
                    and not self._tables.job_waits[job.job_id]
                )
            )
        ]
        if not due:
            return None
        heads: dict[str, Job] = {}
        for job in sorted(due, key=lambda j: (j.kind is not JobKind.TURN, self._order(j))):
            heads.setdefault(job.queue, job)
        served = self._tables.job_queues
        job = min(heads.values(), key=lambda j: (served[j.queue], self._order(j)))
        self._changes.put(served, job.queue, self._served_last() + 1)
        return self._leased(job, worker, now_ms + lease_ms)

    def end_leases(self) -> int:
        held = [j for j in self._tables.jobs.values() if j.state is JobState.LEASED]
        for job in held:
            self._put(
                replace(
                    job,
                    state=self._unheld(job),
                    token=job.token + 1,
                    lease_until_ms=0,
                    worker="",
                )
            )
        return len(held)

    def lease(self, job_id: str, worker: str, now_ms: int, lease_ms: int) -> Job | None:
        job = self._tables.jobs.get(job_id)
        if job is None or not _is_open(job, now_ms):
            return None
        return self._leased(job, worker, now_ms + lease_ms)

    def _leased(self, job: Job, worker: str, until_ms: int) -> Job:
        return self._put(
            replace(
                job,
                state=JobState.LEASED,
                token=job.token + 1,
                attempts=job.attempts + (job.state is not JobState.LEASED),
                lease_until_ms=until_ms,
                worker=worker,
            )
        )

    def open_in(self, queue: str, now_ms: int, limit: int) -> tuple[Job, ...]:
        found = [j for j in self._tables.jobs.values() if j.queue == queue and _is_open(j, now_ms)]
        return tuple(sorted(found, key=self._order)[:limit])

    def waits(self, job_id: str) -> tuple[tuple[str, Span], ...]:
        waits = sorted(self._tables.job_waits.get(job_id, ()))
        return tuple((tree, Span(start, count)) for tree, start, count in waits)

    def hurry(self, queue: str, now_ms: int, *, first: bool) -> int:
        if first and queue in self._tables.job_queues:
            self._changes.put(self._tables.job_queues, queue, 0)
        held = [
            j
            for j in self._tables.jobs.values()
            if j.queue == queue
            and j.state in (JobState.READY, JobState.WAITING)
            and not j.attempts
            and j.not_before_ms > now_ms
        ]
        for job in held:
            self._put(replace(job, not_before_ms=now_ms))
        return len(held)

    def release_put_off(self, reason: str, now_ms: int) -> int:
        found = [
            j
            for j in self._tables.jobs.values()
            if j.state in (JobState.READY, JobState.WAITING)
            and j.not_before_ms > now_ms
            and j.error.startswith(reason)
        ]
        for job in found:
            self._put(replace(job, not_before_ms=now_ms))
        return len(found)

    def retry(self, now_ms: int, job_id: str | None = None) -> int:
        found = [
            j
            for j in self._tables.jobs.values()
            if j.state is JobState.FAILED and job_id in (None, j.job_id)
        ]
        for job in found:
            self._put(
                replace(job, state=self._unheld(job), attempts=0, not_before_ms=now_ms, error="")
            )
        return len(found)

    def renew(self, job_id: str, token: int, until_ms: int) -> bool:
        job = self._held(job_id, token)
        return job is not None and bool(self._put(replace(job, lease_until_ms=until_ms)))

    def finish(self, job_id: str, token: int) -> bool:
        job = self._held(job_id, token)
        if job is None:
            return False
        self._put(replace(job, state=JobState.DONE, lease_until_ms=0, error=""))
        return True

    def release(
        self, job_id: str, token: int, *, not_before_ms: int, error: str, failed: bool
    ) -> bool:
        job = self._held(job_id, token)
        if job is None:
            return False
        self._put(
            replace(
                job,
                state=JobState.FAILED if failed else self._unheld(job),
                not_before_ms=not_before_ms,
                error=error,
                lease_until_ms=0,
                worker="",
            )
        )
        return True

    def postpone(self, job_id: str, token: int, *, not_before_ms: int, error: str) -> bool:
        job = self._held(job_id, token)
        if job is None:
            return False
        self._put(
            replace(
                job,
                state=self._unheld(job),
                not_before_ms=not_before_ms,
                error=error,
                lease_until_ms=0,
                worker="",
                attempts=job.attempts - 1,
            )
        )
        return True

    def remove(self, kind: JobKind, target: str) -> int:
        return len(self._remove(lambda j: (j.kind, j.target) == (kind, target)))

    def remove_queue(self, queue: str) -> tuple[Job, ...]:
        self._changes.drop(self._tables.job_queues, queue)
        found = self._remove(lambda j: j.queue == queue)
        return tuple(job for job in found if job.state is not JobState.DONE)

    def _remove(self, is_wanted: Callable[[Job], bool]) -> list[Job]:
        found = sorted(filter(is_wanted, self._tables.jobs.values()), key=self._order)
        for job in found:
            self._changes.drop(self._tables.jobs, job.job_id)
            self._changes.drop(self._tables.job_order, job.job_id)
            self._changes.drop(self._tables.job_waits, job.job_id)
        return found

    def move_waits(self, tree: SessionTree, to: SessionTree) -> None:
        for job_id, waits in tuple(self._tables.job_waits.items()):
            moved = frozenset(
                (str(to) if of == str(tree) else of, start, count) for of, start, count in waits
            )
            self._changes.put(self._tables.job_waits, job_id, moved)

    def job(self, job_id: str) -> Job | None:
        return self._tables.jobs.get(job_id)

    def of_target(self, kind: JobKind, target: str) -> Job | None:
        found = [j for j in self._tables.jobs.values() if (j.kind, j.target) == (kind, target)]
        return max(found, key=self._order, default=None)

    def counts(self, session_id: SessionId | None = None) -> dict[JobState, int]:
        found = dict.fromkeys(JobState, 0)
        for job in self._tables.jobs.values():
            if session_id is None or job.session_id == session_id:
                found[job.state] += 1
        return found

    def failed(self, limit: int) -> tuple[Job, ...]:
        return self.listed(JobState.FAILED, limit)

    def listed(self, state: JobState, limit: int) -> tuple[Job, ...]:
        found = [j for j in self._tables.jobs.values() if j.state is state]
        return tuple(sorted(found, key=self._order, reverse=True)[: max(limit, 0)])

    def next_due_ms(self) -> int | None:
        due = [
            job.not_before_ms if job.state is JobState.READY else job.lease_until_ms
            for job in self._tables.jobs.values()
            if job.state in (JobState.READY, JobState.LEASED)
        ]
        return min(due, default=None)

    def _held(self, job_id: str, token: int) -> Job | None:
        job = self._tables.jobs.get(job_id)
        held = job is not None and job.state is JobState.LEASED and job.token == token
        return job if held else None

    def _unheld(self, job: Job) -> JobState:
        return JobState.WAITING if self._tables.job_waits[job.job_id] else JobState.READY

    def _served_last(self) -> int:
        return max(self._tables.job_queues.values(), default=0)

    def _order(self, job: Job) -> int:
        return self._tables.job_order[job.job_id]

    def _put(self, job: Job) -> Job:
        self._changes.put(self._tables.jobs, job.job_id, job)
        return job


def _is_open(job: Job, now_ms: int) -> bool:
    ran_out = job.state is JobState.LEASED and job.lease_until_ms <= now_ms
    return ran_out or job.state in (JobState.READY, JobState.WAITING)


class MemoryRemovals:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def bury(self, key: str) -> None:
        self._changes.put(self._tables.tombstones, key, None)

    def has_buried(self) -> bool:
        return bool(self._tables.tombstones)

    def buried(self, keys: Collection[str]) -> frozenset[str]:
        return frozenset(key for key in keys if key in self._tables.tombstones)

    def log(self, removal: Removal) -> None:
        self._changes.put(self._tables.removals, len(self._tables.removals), removal)

    def logged(self, limit: int) -> tuple[Removal, ...]:
        found = [removal for _, removal in sorted(self._tables.removals.items(), reverse=True)]
        return tuple(found[: max(limit, 0)])


class MemoryMeta:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables
        self._taken: Csn | None = None

    def csn(self) -> Csn:
        return Csn(self._tables.counters["csn"])

    def next_csn(self) -> Csn:
        if self._taken is None:
            self._taken = Csn(self._raise("csn"))
        return self._taken

    def epoch(self) -> int:
        return self._tables.counters["epoch"]

    def raise_epoch(self) -> int:
        return self._raise("epoch")

    def get(self, key: str) -> str | None:
        return self._tables.meta.get(key)

    def put(self, key: str, value: str) -> None:
        self._changes.put(self._tables.meta, key, value)

    def _raise(self, name: str) -> int:
        self._changes.put(self._tables.counters, name, self._tables.counters[name] + 1)
        return self._tables.counters[name]
