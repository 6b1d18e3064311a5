"""One job, or a batch of them, from lease to fenced commit (§9, §10).

Claiming, reading the sources, calling the model and committing are separate steps; only the calls
are outside of a transaction. The commit asks whether the lease is still ours and whether what was
read is still what is there; otherwise the result is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from optchat.compactor import results
from optchat.compactor.batching import Oversized, Planned, Planner, Ready, has_failed
from optchat.compactor.chunks import ChunkTree
from optchat.compactor.conversation import LEASE_MARGIN_MS, Conversation
from optchat.compactor.desk import BACKOFF_MS, Desk
from optchat.compactor.earlier import foreign
from optchat.compactor.extract import extract
from optchat.compactor.fallback import stand_in
from optchat.compactor.items import Item
from optchat.compactor.models import (
    Absent,
    Call,
    ChatModel,
    Extractor,
    Outcome,
    Reply,
    SummaryModel,
)
from optchat.compactor.money import Stop
from optchat.compactor.rendering import first_call
from optchat.compactor.results import Made
from optchat.core.tree import SessionTree
from optchat.engine.deps import Deps
from optchat.errors import Fenced, OptChatError
from optchat.limits import JOB_ATTEMPTS_MAX, JOB_LEASE_MS
from optchat.refs import ScopeId, TurnId
from optchat.storage.ports import Job, JobKind, ModelCall, Store, Tx

RETRY_MS = 1_000
ATTEMPTS_MAX = 3
"""Leases of a job whose calls cost money; each may hold a few calls."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A batch that is leased, rendered, and in the meter."""

    planned: Planned
    call: Call
    row: ModelCall
    context: str


class Worker:
    """Runs jobs of one store with one model; several may run side by side with one desk."""

    def __init__(
        self, store: Store, deps: Deps, model: SummaryModel, name: str, desk: Desk | None = None
    ) -> None:
        self.store = store
        self.deps = deps
        self.model = model
        self.name = name
        self.desk = desk or Desk(deps.config.compactor, deps.clock.now_ms)

    def run_one(self) -> bool:
        """Claim and finish one job, or a batch; False when none is due or none may be made.

        A job that fails goes back with a delay, or to FAILED after bounded attempts; nothing of its
        sources is lost either way.
        """
        if hasattr(self.model, "summarise"):
            return self._run_extractor(self.model)  # pyright: ignore[reportArgumentType]
        return self._run_chat(self.model)  # pyright: ignore[reportArgumentType]

    # --- an extractor: local and free, one job at a time ---

    def _run_extractor(self, model: Extractor) -> bool:
        now_ms = self.deps.clock.now_ms()
        job = self.store.write(lambda tx: tx.jobs.claim(self.name, now_ms, JOB_LEASE_MS))
        if job is None:
            return False
        if self._is_used_up(job, JOB_ATTEMPTS_MAX):
            return True
        try:
            extract(self.store, self.deps, model, job)
        except Fenced:
            raise
        except OptChatError as error:
            self._give_back(job, f"{error.code}: {error.message}", JOB_ATTEMPTS_MAX)
        except Exception as error:  # noqa: BLE001  # a library's own: the job must not run for ever
            self._give_back(job, f"{type(error).__name__}: {error}"[:300], JOB_ATTEMPTS_MAX)
        return True

    # --- a model that is asked ---

    def _run_chat(self, model: ChatModel) -> bool:
        scopes = model.scopes()
        self.desk.absent = ""
        if isinstance(scopes, Absent):
            waits = self.store.read(lambda tx: tx.jobs.next_due_ms()) is not None
            self.desk.absent = scopes.reason if waits else ""
            return False
        now_ms = self.deps.clock.now_ms()
        if not self.desk.breaker.admit(now_ms):
            return False
        try:
            job = self.store.write(lambda tx: self._claim(tx, now_ms, scopes))
            self.desk.stop = job if isinstance(job, Stop) else None
            if job is None or isinstance(job, Stop):
                return False
            self._run_job(model, job, now_ms)
            return True
        finally:
            self.desk.breaker.leave()

    def _claim(self, tx: Tx, now_ms: int, scopes: frozenset[ScopeId] | None) -> Job | Stop | None:
        stop = self.desk.meter.stop(tx, now_ms, active_ms=self.desk.active_ms())
        return stop or tx.jobs.claim(self.name, now_ms, self._lease_ms, scopes)

    @property
    def _lease_ms(self) -> int:
        timeout_ms = getattr(self.model, "timeout_ms", 0)
        return max(JOB_LEASE_MS, timeout_ms + LEASE_MARGIN_MS)

    def _run_job(self, model: ChatModel, job: Job, now_ms: int) -> None:
        if self._is_used_up(job, ATTEMPTS_MAX):
            return
        try:
            begun = self.store.write(lambda tx: self._begin(tx, model, job, now_ms))
            match begun:
                case None:
                    pass
                case Stop():
                    pass
                case Oversized():
                    self._read_in_parts(model, begun)
                case _Opened():
                    self._converse(model, begun)
        except Fenced:
            raise
        except OptChatError as error:
            self._give_back(job, f"{error.code}: {error.message}", ATTEMPTS_MAX)
        except Exception as error:  # noqa: BLE001  # whatever it is, the job must not run for ever
            self._give_back(job, f"{type(error).__name__}: {error}"[:300], ATTEMPTS_MAX)

    def _begin(
        self, tx: Tx, model: ChatModel, job: Job, now_ms: int
    ) -> _Opened | Oversized | Stop | None:
        """Plan the batch, lease what goes along, and open its row in the meter.

        A job that needs no call is committed here.
        """
        settings = self.deps.config.compactor
        planner = Planner(
            tx,
            self.name,
            now_ms,
            self._lease_ms,
            lines_max=settings.batch_lines,
            bytes_max=settings.batch_bytes,
            mask=self.deps.config.privacy.mask,
        )
        planned = planner.plan(job)
        match planned:
            case Ready():
                self._put_ready(tx, planned)
                return None
            case Oversized():
                stop = self._turn_stop(tx, [job], planned.turn_id, now_ms)
                return stop or planned
            case Planned():
                jobs = [i.job for i in planned.batch.items]
                stop = self._turn_stop(tx, jobs, planned.turn_id, now_ms)
                return stop or self._open(tx, model, planned)

    def _turn_stop(
        self, tx: Tx, jobs: list[Job], turn_id: TurnId | None, now_ms: int
    ) -> Stop | None:
        """Put a turn's jobs off until its cap's period is over."""
        stop = self.desk.meter.turn_stop(tx, now_ms, turn_id) if turn_id is not None else None
        if stop is not None:
            for job in jobs:
                tx.jobs.postpone(
                    job.job_id, job.token, not_before_ms=stop.until_ms, error=f"cap: {stop.told()}"
                )
        return stop

    def _put_ready(self, tx: Tx, ready: Ready) -> None:
        if ready.node is None:
            made = results.verbatim(ready.text)
        else:
            node = ready.node
            made = Made(
                text=ready.text,
                model=node.model,
                prompt_version=node.prompt_version,
                kind=node.kind,
                evidence=node.evidence,
            )
        tree, span = results.target(ready.job)
        if span.count == 1:
            assert isinstance(tree, SessionTree)
            record = tx.records.record(tree, span.start)
            assert record is not None
            results.commit_leaf(tx, self.deps, ready.job, record, made)
        else:
            results.commit_merge(tx, self.deps, ready.job, made)

    def _open(self, tx: Tx, model: ChatModel, planned: Planned) -> _Opened:
        items = planned.batch.items
        job = items[0].job
        earlier = told = ""
        # What failed is tried without its context, which may be what a filter stumbles over.
        if isinstance(planned.tree, SessionTree) and not has_failed(job):
            earlier = self.desk.earlier.before(tx, planned.tree, planned.context_end)
            if planned.turn_id is not None:
                told = foreign(tx, planned.turn_id, planned.end_exclusive)
        call = first_call(
            items,
            purpose=_purpose(items),
            earlier=earlier,
            foreign=told,
            scope_id=job.scope_id,
            output_tokens_max=self.deps.config.compactor.output_tokens_max,
            again=has_failed(job),
        )
        row = self.desk.row(self.deps, model.name, call, job, planned.turn_id)
        tx.ledger.open(row)
        return _Opened(planned, call, row, f"{earlier}\n{told}")

    def _converse(self, model: ChatModel, opened: _Opened) -> None:
        talk = Conversation(
            store=self.store,
            deps=self.deps,
            desk=self.desk,
            model=model,
            planned=opened.planned,
            call=opened.call,
            row=opened.row,
            context=opened.context,
        )
        try:
            ended = talk.run()
        except Fenced:
            raise
        except OptChatError as error:
            self._give_back_all(talk.unfinished, f"{error.code}: {error.message}")
        except Exception as error:  # noqa: BLE001  # as in _run_job
            self._give_back_all(talk.unfinished, f"{type(error).__name__}: {error}"[:300])
        else:
            self._after(talk.unfinished, ended.reply, talk.error, stopped=ended.stopped)

    def _read_in_parts(self, model: ChatModel, oversized: Oversized) -> None:
        tree = ChunkTree(
            store=self.store, deps=self.deps, desk=self.desk, model=model, oversized=oversized
        )
        ended = tree.run()
        if ended is not None:
            job = oversized.job
            if self._uses_up(ended.reply, stopped=ended.stopped):
                self._give_back(job, tree.error, ATTEMPTS_MAX)
            else:
                self._postpone([job], tree.error)

    # --- giving back ---

    def _after(
        self, unfinished: list[tuple[Item, bool]], reply: Reply, error: str, *, stopped: bool
    ) -> None:
        if self._uses_up(reply, stopped=stopped):
            self._give_back_all(unfinished, error)
        else:
            self._postpone([i.job for i, _ in unfinished], error)

    def _uses_up(self, reply: Reply, *, stopped: bool) -> bool:
        """Note what a reply says of the model; whether its jobs have used up an attempt."""
        if stopped:
            return False
        if reply.outcome.is_models:
            first = self.desk.breaker.failed(reply, self.deps.clock.now_ms())
            # A call that never left, or was turned away at the door, says nothing of its content.
            by_content = reply.outcome in (Outcome.TIMED_OUT, Outcome.UNAVAILABLE)
            return first and reply.sent and by_content
        return True

    def _postpone(self, jobs: list[Job], error: str) -> None:
        if not jobs:
            return
        not_before_ms = max(self.desk.breaker.until_ms, self.deps.clock.now_ms() + BACKOFF_MS)

        def work(tx: Tx) -> None:
            for job in jobs:
                tx.jobs.postpone(
                    job.job_id, job.token, not_before_ms=not_before_ms, error=error[:300]
                )

        self.store.write(work)

    def _give_back_all(self, unfinished: list[tuple[Item, bool]], error: str) -> None:
        """Those at fault with their attempt counted; those that only went along without."""
        for item, at_fault in unfinished:
            if at_fault:
                self._give_back(item.job, error, ATTEMPTS_MAX)
        self._postpone([i.job for i, at_fault in unfinished if not at_fault], error)

    def _is_used_up(self, job: Job, attempts_max: int) -> bool:
        """A job whose holders all vanished without a word has had its attempts as well."""
        if job.attempts <= attempts_max:
            return False
        self._give_back(job, job.error or "its holder ended each time without an answer", 0)
        return True

    def _give_back(self, job: Job, error: str, attempts_max: int) -> None:
        failed = job.attempts >= attempts_max
        delay_ms = RETRY_MS * 2**job.attempts
        not_before_ms = self.deps.clock.now_ms() + delay_ms

        def work(tx: Tx) -> None:
            released = tx.jobs.release(
                job.job_id, job.token, not_before_ms=not_before_ms, error=error, failed=failed
            )
            if released and failed and self.deps.config.memory.fallback:
                stand_in(tx, self.deps, job)

        self.store.write(work)


def _purpose(items: list[Item]) -> str:
    """What a call is mainly for, in the bill."""
    if any(i.job.kind is JobKind.TURN for i in items):
        return "turn"
    return "leaf" if any(i.is_leaf for i in items) else "merge"
