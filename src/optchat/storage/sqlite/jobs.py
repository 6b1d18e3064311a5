"""The durable queue as rows: leases with fencing tokens, dependencies, outbox."""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from optchat.core.tree import SessionTree, Tree
from optchat.refs import ScopeId, SessionId, Span
from optchat.storage.ports import Job, JobKind, JobState
from optchat.storage.sqlite.connection import Args, Row, Sql
from optchat.storage.sqlite.trees import TREE

_JOB = (
    "job_id, kind, target, session_id, scope_id, input_hash, state, token, attempts, "
    "lease_until_ms, not_before_ms, worker, error"
)


_OPEN = "iif(exists (select 1 from job_wait where ordinal = job.ordinal), 'waiting', 'ready')"
"""What a job is that nobody holds: one that went along with others may still miss a node."""


class SqliteJobs:
    """A token is compared in the statement that writes, never before it."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def put(self, job: Job, waits_for: Sequence[tuple[Tree, Span]] = ()) -> bool:
        missing = {
            (str(tree), span.start, span.count)
            for tree, span in waits_for
            if not self._is_durable(tree, span)
        }
        return self._put(job, missing)

    def redo(self, job: Job, waits_for: Sequence[tuple[Tree, Span]]) -> bool:
        return self._put(job, {(str(tree), span.start, span.count) for tree, span in waits_for})

    def _put(self, job: Job, missing: set[tuple[str, int, int]]) -> bool:
        known = self._sql.one(
            "select 1 from job where kind = ? and target = ? and input_hash = ?",
            (job.kind.value, job.target, job.input_hash),
        )
        if known is not None:
            return False
        self._sql.run(
            "insert into job_queue (queue, served) "
            "select ?, coalesce(max(served), 0) + 1 from job_queue where true "
            "on conflict do nothing",
            (job.queue,),
        )
        state = JobState.WAITING if missing else JobState.READY
        row = self._sql.one(
            f"insert into job ({_JOB}, queue) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning ordinal",
            (
                job.job_id,
                job.kind.value,
                job.target,
                job.session_id,
                job.scope_id,
                job.input_hash,
                state.value,
                job.token,
                job.attempts,
                job.lease_until_ms,
                job.not_before_ms,
                job.worker,
                job.error,
                job.queue,
            ),
        )
        assert row is not None
        self._sql.many(
            "insert into job_wait (ordinal, tree, start, count) values (?, ?, ?, ?)",
            ((row[0], *key) for key in sorted(missing)),
        )
        return True

    def resolve(self, tree: Tree, span: Span) -> int:
        waiting = self._sql.all(
            "delete from job_wait where tree = ? and start = ? and count = ? returning ordinal",
            (str(tree), span.start, span.count),
        )
        return sum(
            self._sql.run(
                "update job set state = 'ready' where ordinal = ?1 and state = 'waiting' "
                "and not exists (select 1 from job_wait where ordinal = ?1)",
                (ordinal,),
            )
            for (ordinal,) in waiting
        )

    def claim(
        self,
        worker: str,
        now_ms: int,
        lease_ms: int,
        scopes: Collection[ScopeId] | None = None,
    ) -> Job | None:
        allowed = None if scopes is None else msgspec.json.encode(sorted(scopes)).decode()
        # One seek for each queue that has a claimable job, instead of a pass over all of them.
        row = self._sql.one(
            "with recursive found (queue) as ("
            "  select min(queue) from job where state in ('ready', 'leased')"
            "  union all"
            "  select (select min(queue) from job"
            "    where state in ('ready', 'leased') and queue > found.queue)"
            "  from found where found.queue is not null"
            "), next (queue, ordinal) as ("
            "  select queue, (select ordinal from job where state in ('ready', 'leased') "
            "    and queue = found.queue "
            "    and (state = 'ready' and not_before_ms <= ?1 "
            "      or state = 'leased' and lease_until_ms <= ?1 "
            "        and not exists (select 1 from job_wait where ordinal = job.ordinal)) "
            "    and (?2 is null or scope_id in (select value from json_each(?2))) "
            "    order by kind desc, ordinal limit 1) "
            "  from found where queue is not null"
            ") select next.ordinal, next.queue from next join job_queue using (queue) "
            "where next.ordinal is not null order by served, next.ordinal limit 1",
            (now_ms, allowed),
        )
        if row is None:
            return None
        self._sql.run(
            "update job_queue set served = (select max(served) + 1 from job_queue) where queue = ?",
            (row[1],),
        )
        return self._leased("ordinal = ?", row[0], worker, now_ms + lease_ms, now_ms)

    def end_leases(self) -> int:
        return self._sql.run(
            f"update job set state = {_OPEN}, token = token + 1, lease_until_ms = 0, worker = '' "
            "where state = 'leased'"
        )

    def lease(self, job_id: str, worker: str, now_ms: int, lease_ms: int) -> Job | None:
        return self._leased("job_id = ?", job_id, worker, now_ms + lease_ms, now_ms)

    def _leased(
        self, condition: str, key: str | int, worker: str, until_ms: int, now_ms: int
    ) -> Job | None:
        rows = self._sql.all(
            "update job set token = token + 1, attempts = attempts + (state <> 'leased'), "
            "state = 'leased', "
            f"lease_until_ms = ?, worker = ? where {condition} and (state in ('ready', 'waiting') "
            f"or state = 'leased' and lease_until_ms <= ?) returning {_JOB}",
            (until_ms, worker, key, now_ms),
        )
        return _job(rows[0]) if rows else None

    def open_in(self, queue: str, now_ms: int, limit: int) -> tuple[Job, ...]:
        rows = self._sql.all(
            f"select {_JOB} from job where state in ('ready', 'waiting', 'leased') and queue = ?1 "
            "and (state <> 'leased' or lease_until_ms <= ?2) order by ordinal limit ?3",
            (queue, now_ms, limit),
        )
        return tuple(map(_job, rows))

    def waits(self, job_id: str) -> tuple[tuple[str, Span], ...]:
        rows = self._sql.all(
            "select tree, start, count from job_wait join job using (ordinal) where job_id = ? "
            "order by tree, start, count",
            (job_id,),
        )
        return tuple((tree, Span(start, count)) for tree, start, count in rows)

    def hurry(self, queue: str, now_ms: int, *, first: bool) -> int:
        if first:
            self._sql.run("update job_queue set served = 0 where queue = ?", (queue,))
        return self._sql.run(
            "update job set not_before_ms = ?1 where state in ('ready', 'waiting') "
            "and queue = ?2 and attempts = 0 and not_before_ms > ?1",
            (now_ms, queue),
        )

    def release_put_off(self, reason: str, now_ms: int) -> int:
        return self._sql.run(
            "update job set not_before_ms = ?1 where state in ('ready', 'waiting') "
            "and not_before_ms > ?1 and substr(error, 1, length(?2)) = ?2",
            (now_ms, reason),
        )

    def retry(self, now_ms: int, job_id: str | None = None) -> int:
        return self._sql.run(
            "update job set attempts = 0, not_before_ms = ?1, error = '', state = iif("
            "exists (select 1 from job_wait where ordinal = job.ordinal), 'waiting', 'ready') "
            "where state = 'failed' and (?2 is null or job_id = ?2)",
            (now_ms, job_id),
        )

    def renew(self, job_id: str, token: int, until_ms: int) -> bool:
        return self._held("lease_until_ms = ?", (until_ms,), job_id, token)

    def finish(self, job_id: str, token: int) -> bool:
        return self._held("state = 'done', lease_until_ms = 0, error = ''", (), job_id, token)

    def release(
        self, job_id: str, token: int, *, not_before_ms: int, error: str, failed: bool
    ) -> bool:
        state = "'failed'" if failed else _OPEN
        return self._held(
            f"state = {state}, not_before_ms = ?, error = ?, lease_until_ms = 0, worker = ''",
            (not_before_ms, error),
            job_id,
            token,
        )

    def postpone(self, job_id: str, token: int, *, not_before_ms: int, error: str) -> bool:
        return self._held(
            f"state = {_OPEN}, not_before_ms = ?, error = ?, lease_until_ms = 0, worker = '', "
            "attempts = attempts - 1",
            (not_before_ms, error),
            job_id,
            token,
        )

    def remove(self, kind: JobKind, target: str) -> int:
        return self._sql.run("delete from job where kind = ? and target = ?", (kind.value, target))

    def remove_queue(self, queue: str) -> tuple[Job, ...]:
        rows = self._sql.all(f"delete from job where queue = ? returning ordinal, {_JOB}", (queue,))
        self._sql.run("delete from job_queue where queue = ?", (queue,))
        jobs = (_job(row[1:]) for row in sorted(rows, key=lambda r: r[0]))
        return tuple(job for job in jobs if job.state is not JobState.DONE)

    def move_waits(self, tree: SessionTree, to: SessionTree) -> None:
        self._sql.run("update job_wait set tree = ? where tree = ?", (str(to), str(tree)))

    def job(self, job_id: str) -> Job | None:
        return self._job("where job_id = ?", (job_id,))

    def of_target(self, kind: JobKind, target: str) -> Job | None:
        return self._job(
            "where kind = ? and target = ? order by ordinal desc limit 1", (kind.value, target)
        )

    def counts(self, session_id: SessionId | None = None) -> dict[JobState, int]:
        if session_id is None:
            rows = self._sql.all("select state, count(*) from job group by state")
        else:
            rows = self._sql.all(
                "select state, count(*) from job where session_id = ? group by state",
                (session_id,),
            )
        return dict.fromkeys(JobState, 0) | {JobState(state): count for state, count in rows}

    def failed(self, limit: int) -> tuple[Job, ...]:
        return self.listed(JobState.FAILED, limit)

    def listed(self, state: JobState, limit: int) -> tuple[Job, ...]:
        # Said once more for the planner, which has to see that the partial index holds them all.
        open_too = "" if state is JobState.DONE else "and state <> 'done' "
        rows = self._sql.all(
            f"select {_JOB} from job where state = ? {open_too}order by ordinal desc limit ?",
            (state.value, max(limit, 0)),
        )
        return tuple(map(_job, rows))

    def next_due_ms(self) -> int | None:
        row = self._sql.one(
            "select min(iif(state = 'ready', not_before_ms, lease_until_ms)) from job "
            "where state in ('ready', 'leased')"
        )
        return None if row is None or row[0] is None else int(row[0])

    def _is_durable(self, tree: Tree, span: Span) -> bool:
        found = self._sql.one(
            f"select 1 from node where tree = {TREE.format('?')} "
            "and count = ? and start = ? and died is null",
            (str(tree), span.count, span.start),
        )
        return found is not None

    def _held(self, change: str, args: tuple[str | int, ...], job_id: str, token: int) -> bool:
        """Change a job that is leased under ``token``; False when it is not."""
        changed = self._sql.run(
            f"update job set {change} where job_id = ? and token = ? and state = 'leased'",
            (*args, job_id, token),
        )
        return changed == 1

    def _job(self, condition: str, args: Args) -> Job | None:
        row = self._sql.one(f"select {_JOB} from job {condition}", args)
        return None if row is None else _job(row)


def _job(row: Row) -> Job:
    return Job(
        job_id=row[0],
        kind=JobKind(row[1]),
        target=row[2],
        session_id=row[3],
        scope_id=row[4],
        input_hash=row[5],
        state=JobState(row[6]),
        token=row[7],
        attempts=row[8],
        lease_until_ms=row[9],
        not_before_ms=row[10],
        worker=row[11],
        error=row[12],
    )
