"""The durable queue as rows: leases with fencing tokens, dependencies, outbox."""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

from collections.abc import Sequence

from optchat.core.tree import Tree
from optchat.refs import SessionId, Span
from optchat.storage.ports import Job, JobKind, JobState
from optchat.storage.sqlite.connection import Args, Row, Sql

_JOB = (
    "job_id, kind, target, session_id, scope_id, input_hash, state, token, attempts, "
    "lease_until_ms, not_before_ms, worker, error"
)


class SqliteJobs:
    """A token is compared in the statement that writes, never before it."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def put(self, job: Job, waits_for: Sequence[tuple[Tree, Span]] = ()) -> bool:
        known = self._sql.one(
            "select 1 from job where kind = ? and target = ? and input_hash = ?",
            (job.kind.value, job.target, job.input_hash),
        )
        if known is not None:
            return False
        missing = {
            (str(tree), span.start, span.count)
            for tree, span in waits_for
            if not self._is_durable(tree, span)
        }
        state = JobState.WAITING if missing else JobState.READY
        row = self._sql.one(
            f"insert into job ({_JOB}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "returning ordinal",
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

    def claim(self, worker: str, now_ms: int, lease_ms: int) -> Job | None:
        row = self._sql.one(
            "select ordinal from job where state in ('ready', 'leased') "
            "and (state = 'ready' and not_before_ms <= ?1 "
            "or state = 'leased' and lease_until_ms <= ?1) "
            "order by kind desc, ordinal limit 1",
            (now_ms,),
        )
        if row is None:
            return None
        rows = self._sql.all(
            "update job set state = 'leased', token = token + 1, attempts = attempts + 1, "
            f"lease_until_ms = ?, worker = ? where ordinal = ? returning {_JOB}",
            (now_ms + lease_ms, worker, row[0]),
        )
        return _job(rows[0])

    def renew(self, job_id: str, token: int, until_ms: int) -> bool:
        return self._held("lease_until_ms = ?", (until_ms,), job_id, token)

    def finish(self, job_id: str, token: int) -> bool:
        return self._held("state = 'done', lease_until_ms = 0, error = ''", (), job_id, token)

    def release(
        self, job_id: str, token: int, *, not_before_ms: int, error: str, failed: bool
    ) -> bool:
        state = JobState.FAILED if failed else JobState.READY
        return self._held(
            "state = ?, not_before_ms = ?, error = ?, lease_until_ms = 0, worker = ''",
            (state.value, not_before_ms, error),
            job_id,
            token,
        )

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
        rows = self._sql.all(
            f"select {_JOB} from job where state = 'failed' order by ordinal desc limit ?",
            (max(limit, 0),),
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
            "select 1 from node where tree = ? and count = ? and start = ? and died is null",
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
