"""The routes of the compactor: the host's model, the bill, the queue, resuming and rebuilding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optchat.compactor.desk import Desk
from optchat.compactor.items import LEAF_BYTES_MAX
from optchat.compactor.models import Outcome, Reply, SummaryModel, Usage
from optchat.compactor.models.host import HostModel
from optchat.compactor.money import RESUMED
from optchat.compactor.prompts import prompts
from optchat.coordinator.bill import bill
from optchat.core.scopes import Scope, scope_of
from optchat.core.tree import ScopeTree, SessionTree, Tree
from optchat.engine import rebuild, summarise
from optchat.engine.deps import Deps
from optchat.errors import NotFound
from optchat.refs import ScopeId, SessionId
from optchat.storage.ports import Job, JobState, Store, Tx
from optchat.wire import (
    JobInfo,
    JobsRequest,
    JobsResponse,
    RebuildRequest,
    RebuildResponse,
    ResumeResponse,
    SpendRequest,
    SpendResponse,
    SummariseRequest,
    SummariseResponse,
    Work,
    WorkDone,
    WorkDoneResponse,
    WorkMessage,
    WorkRequest,
    WorkResponse,
)

CAP_REASON = "cap:"
LINE_TOKENS = 100
"""About what a model writes for one line."""


@dataclass(slots=True)
class Compaction:
    """What a person and a host may ask of the compactor. Thread-safe."""

    store: Store
    deps: Deps
    model: SummaryModel
    desk: Desk

    # --- the host's own model ---

    def work(self, request: WorkRequest) -> WorkResponse:
        """A call for the asking host, if there is one for its scope."""
        if not isinstance(self.model, HostModel):
            return WorkResponse(wanted=False)
        scope_id = self.store.read(lambda tx: self._scope_of(tx, request))
        if scope_id is None:
            return WorkResponse(wanted=True)
        offer = self.model.poll(f"{request.host} {request.instance}", scope_id, request.wait_ms)
        if offer is None:
            return WorkResponse(wanted=True)
        call = offer.call
        work = Work(
            id=offer.work_id,
            purpose=call.purpose,
            system=call.system,
            messages=[WorkMessage(role=m.role, text=m.text) for m in call.messages],
            output_tokens_max=call.output_tokens_max,
            timeout_ms=offer.timeout_ms,
            model=self.deps.config.compactor.small_model or None,
        )
        return WorkResponse(wanted=True, work=work)

    def work_lost(self, response: WorkResponse) -> None:
        """The asking host was gone when its answer was ready: the call is anybody's again."""
        if isinstance(self.model, HostModel) and response.work is not None:
            self.model.give_back(response.work.id)

    def _scope_of(self, tx: Tx, request: WorkRequest) -> ScopeId | None:
        project = tx.sessions.project(request.host, request.project_key)
        if project is None:
            return None  # nothing of it has been sealed, so that there is nothing to summarise
        rules = self.deps.config.sharing.rules()
        return scope_of(
            rules,
            session_id=SessionId(""),
            project_id=project.project_id,
            directory=request.directory,
        )

    def work_done(self, done: WorkDone) -> WorkDoneResponse:
        """Take an answer back, if it is still waited for."""
        if not isinstance(self.model, HostModel):
            return WorkDoneResponse(accepted=False)
        usage = done.usage
        reply = Reply(
            outcome=Outcome(done.outcome),
            text=done.text if done.outcome == "answer" else "",
            usage=None
            if usage is None
            else Usage(
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                output_tokens=usage.output_tokens,
            ),
            retry_after_ms=done.retry_after_ms,
            detail=done.detail[:200],
            sent=done.sent,
            model=done.model[:200],
        )
        if reply.outcome is Outcome.ANSWER and not reply.text.strip():
            reply = Reply(outcome=Outcome.EMPTY, usage=reply.usage, model=reply.model)
        return WorkDoneResponse(accepted=self.model.done(done.id, reply))

    # --- money ---

    def spend(self, request: SpendRequest) -> SpendResponse:
        """The meter in tables."""
        now_ms = self.deps.clock.now_ms()
        return self.store.read(lambda tx: bill(tx, self.desk, request.days, now_ms))

    def resume(self) -> ResumeResponse:
        """Let caps count anew from now on, and ask the model again at once."""
        now_ms = self.deps.clock.now_ms()

        def work(tx: Tx) -> int:
            tx.meta.put(RESUMED, str(now_ms))
            return tx.jobs.release_put_off(CAP_REASON, now_ms)

        released = self.store.write(work)
        self.desk.stop = None
        self.desk.breaker.succeeded()
        return ResumeResponse(released=released)

    # --- the queue ---

    def jobs(self, request: JobsRequest) -> JobsResponse:
        """The queue; after trying failed jobs again, where that is asked."""
        now_ms = self.deps.clock.now_ms()
        retried = 0
        if request.retry is not None:
            job_id = None if request.retry == "all" else request.retry
            retried = self.store.write(lambda tx: tx.jobs.retry(now_ms, job_id))
            if job_id is not None and not retried:
                raise NotFound(
                    f"there is no failed job {job_id[:80]!r}; nothing was changed.",
                    hint="optchat jobs",
                )
        return self.store.read(lambda tx: self._jobs(tx, request, retried))

    def _jobs(self, tx: Tx, request: JobsRequest, retried: int) -> JobsResponse:
        limit = max(0, min(request.limit, 1_000))
        counts = tx.jobs.counts()
        tried = [j for j in tx.jobs.listed(JobState.READY, limit) if j.attempts or j.error]
        return JobsResponse(
            counts={state.value: count for state, count in counts.items()},
            retried=retried,
            failed=[_job(tx, j) for j in tx.jobs.failed(limit)],
            waiting=[_job(tx, j) for j in tried],
            notices=self.desk.notices(),
        )

    # --- rebuilding ---

    def rebuild(self, request: RebuildRequest, scope: Scope) -> RebuildResponse:
        """Schedule new revisions of a scope's or a session's summaries, or estimate that."""
        # A host's model is chosen by the host, so that only the prompt can be compared.
        model = None if isinstance(self.model, HostModel) else self.model.name
        version = getattr(self.model, "prompt_version", prompts().version)

        def work(tx: Tx) -> RebuildResponse:
            trees = _trees(tx, scope, request.session)
            stale = rebuild.stale_of(tx, trees, model=model, prompt_version=version)
            nodes = sum(len(s.nodes) for s in stale)
            queued = 0
            if request.confirmed:
                queued = sum(
                    rebuild.enqueue(tx, self.deps, s, scope.scope_id, stale) for s in stale
                )
            sources = sum(_source_bytes(tx, s) for s in stale)
            calls = -(-nodes // max(1, self.deps.config.compactor.batch_lines // 2))
            prefix = len(prompts().system) + self.deps.config.compactor.context_bytes // 2
            return RebuildResponse(
                nodes=nodes,
                calls=calls,
                input_tokens=(sources + calls * prefix) // 3,
                queued=queued,
            )

        return self.store.write(work) if request.confirmed else self.store.read(work)

    # --- the past ---

    def summarise(self, request: SummariseRequest) -> SummariseResponse:
        """Queue the summaries of history that was taken in, or estimate that."""

        def work(tx: Tx) -> SummariseResponse:
            found = [
                summarise.wanted(
                    tx,
                    scope,
                    since_ms=request.since_ms,
                    directory=request.project,
                    bytes_max=LEAF_BYTES_MAX,
                )
                for scope in tx.sessions.scopes()
            ]
            answer = self._estimated(found)
            if request.confirmed:
                answer.queued = sum(summarise.enqueue(tx, self.deps, w) for w in found if w.turns)
            return answer

        return self.store.write(work) if request.confirmed else self.store.read(work)

    def _estimated(self, found: Sequence[summarise.Wanted]) -> SummariseResponse:
        compactor = self.deps.config.compactor
        lines = sum(w.lines for w in found)
        calls = -(-lines // max(1, compactor.batch_lines // 2))
        prefix = len(prompts().system) + compactor.context_bytes // 2
        input_tokens = (sum(w.source_bytes for w in found) + calls * prefix) // 3
        output_tokens = lines * LINE_TOKENS
        caps, prices = self.desk.meter.caps, self.desk.meter.prices
        cost = None
        if prices is not None:
            cost = (input_tokens * prices.input + output_tokens * prices.output) / 1_000_000
        days = max(
            -(-calls // caps.day_calls) if caps.day_calls else 0,
            -(-(input_tokens + output_tokens) // caps.day_tokens) if caps.day_tokens else 0,
        )
        return SummariseResponse(
            turns=sum(w.turns for w in found),
            lines=lines,
            calls=calls,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cost=cost,
            currency=prices.currency if prices is not None else "",
            days=days,
            queued=0,
        )


def _trees(tx: Tx, scope: Scope, session: str | None) -> list[Tree]:
    held = [
        s
        for s in tx.sessions.sessions(scope.scope_id)
        if session is None or f"s{s.number}" == session
    ]
    if session is not None and not held:
        raise NotFound(f"there is no session {session[:40]!r} here.", hint="optchat sessions")
    trees: list[Tree] = [g.tree for s in held for g in tx.sessions.generations(s.session_id)]
    return trees if session is not None else [*trees, ScopeTree(scope.scope_id)]


def _source_bytes(tx: Tx, stale: rebuild.Stale) -> int:
    """About what has to be read again: originals of leaves, lines of the rest."""
    total = 0
    for node in stale.nodes:
        if isinstance(stale.tree, SessionTree) and node.span.count == 1:
            record = tx.records.record(stale.tree, node.span.start)
            total += min(record.payload_bytes, LEAF_BYTES_MAX) if record is not None else 0
        else:
            total += 800
    return total


def _job(tx: Tx, job: Job) -> JobInfo:
    session = tx.sessions.session(job.session_id) if job.session_id is not None else None
    return JobInfo(
        id=job.job_id,
        kind=job.kind.value,
        target=job.target,
        session=f"s{session.number}" if session is not None else "",
        state=job.state.value,
        attempts=job.attempts,
        error=job.error,
        due_ms=job.not_before_ms,
    )
