"""What the coordinator does, a method for each route, over a store and without any HTTP.

Each method is one unit of work, or a read that becomes a write only when there is something to
decide. Model calls are not made here.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from optchat import __version__
from optchat.coordinator.compaction import Compaction
from optchat.coordinator.doctor import examine
from optchat.coordinator.forgetting import Forgetting
from optchat.coordinator.tools import call_tool
from optchat.core.budget import calibrate, tokens, usable_tokens
from optchat.core.records import Session
from optchat.core.scopes import Scope, scope_of
from optchat.core.snapshots import Visibility, pinned
from optchat.engine import assemble, export, native, prune, scopes, subagent, sync
from optchat.engine.answers import Answer
from optchat.engine.deps import Deps
from optchat.engine.sessions import follow, own_lineage, scope_for, session_of
from optchat.engine.sizes import sizes_of, window
from optchat.engine.visible import Reader
from optchat.errors import (
    BadInput,
    CoordinatorError,
    EventConflict,
    NotFound,
    NotReady,
    OptChatError,
    SnapshotExpired,
)
from optchat.refs import Csn, ScopeId, SessionId
from optchat.storage.ports import JobState, Store, Tx
from optchat.wire import (
    PROTOCOL,
    AssembleRequest,
    AssembleResponse,
    CheckRequest,
    CheckResponse,
    DoctorRequest,
    DoctorResponse,
    ExportRequest,
    ExportResponse,
    FollowRequest,
    FollowResponse,
    ForgetRequest,
    ForgetResponse,
    ForgottenRequest,
    ForgottenResponse,
    Health,
    JobsRequest,
    JobsResponse,
    PresentRequest,
    PresentResponse,
    RebuildRequest,
    RebuildResponse,
    ResumeResponse,
    ResyncRequest,
    ScopeStatus,
    SessionCounts,
    ShareRequest,
    ShareResponse,
    SpendRequest,
    SpendResponse,
    StatusResponse,
    SyncRequest,
    SyncResponse,
    ToolRequest,
    ToolResponse,
    WorkDone,
    WorkDoneResponse,
    WorkRequest,
    WorkResponse,
)

T = TypeVar("T")


@dataclass(slots=True)
class Sent:
    """What was estimated for a session's last request, to compare with the provider's count."""

    model: str
    raw_tokens: int
    known: bool
    base_tokens: int = 0


@dataclass(slots=True)
class Service:
    """The routes' work. Thread-safe: shared state is the store's, or guarded by the condition."""

    store: Store
    deps: Deps
    home: Path
    epoch: int = 0
    on_work: Callable[[], None] = lambda: None
    on_activity: Callable[[], None] = lambda: None
    compaction: Compaction | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _version: int = 0
    _factors: dict[str, float] = field(default_factory=dict[str, float])
    _sent: dict[str, Sent] = field(default_factory=dict[str, Sent])
    _used: dict[str, str] = field(default_factory=dict[str, str])

    # --- waking ---

    def changed(self) -> None:
        """A summary or publication was committed: whoever waits for memory looks again."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    # --- routes ---

    def health(self) -> Health:
        return Health(
            version=__version__,
            protocol=PROTOCOL,
            epoch=self.epoch,
            pid=os.getpid(),
            home=str(self.home),
            subagents=self.deps.config.sharing.subagents,
        )

    def start(self) -> None:
        """Hold to the rules as they are by now, before anybody reads (§12)."""
        self.store.write(lambda tx: scopes.revoke_isolated(tx, self.deps))

    def sync(self, request: SyncRequest) -> SyncResponse:
        """Bring a session up to its host, and wake the workers."""
        commit = observed_commit(request.session.directory)
        try:
            response = self.store.write(lambda tx: sync.sync(tx, self.deps, request, commit))
        except EventConflict as error:
            # Whoever delivers two contents of one reading cannot be relied on for this session.
            reason = error.message
            self.store.write(lambda tx: sync.disable(tx, request.session, reason))
            raise
        self.on_activity()
        if response.sealed or request.idle:
            self.on_work()
        # That no host is there to make summaries is no news to the one that speaks.
        if self.compaction is not None:
            response.notice = self.compaction.desk.trouble()
        return response

    def _waiting(self) -> list[str]:
        """Why summaries are not being made, if they are not."""
        return self.compaction.desk.notices() if self.compaction is not None else []

    def assemble(self, request: AssembleRequest) -> AssembleResponse:
        """What to put into a request; waits for memory that is not ready, within the bound (§6)."""
        if request.purpose == "compaction":
            return self.store.read(lambda tx: native.compaction(tx, request))
        self._learn(request)
        model = model_key(request.model.provider, request.model.id)
        factor = self._factors.get(model, 1.0)
        if request.session.parent_id is not None:
            return self.store.read(lambda tx: subagent.subagent(tx, self.deps, request, factor))
        try:
            response = self.store.read(
                lambda tx: assemble.continuation(tx, self.deps, request, factor)
            )
            if response is None:
                response = self._admit(request, factor)
        except OptChatError as error:
            return AssembleResponse(state="stop", error=assemble.error_info(error))
        if response.state == "ready":
            overhead = tokens(sizes_of(request.overhead))
            self._sent[request.session.id] = Sent(
                model=model,
                raw_tokens=int(response.estimated_tokens / factor),
                known=request.overhead_known,
                base_tokens=response.estimated_tokens - int(overhead * factor),
            )
        return response

    def _admit(self, request: AssembleRequest, factor: float) -> AssembleResponse:
        remaining_ms = self.deps.config.memory.readiness_timeout_ms
        while True:
            version = self._version
            started_ms = self.deps.clock.now_ms()
            try:
                return self.store.write(lambda tx: assemble.admit(tx, self.deps, request, factor))
            except NotReady:
                self.store.write(lambda tx: assemble.hurry(tx, self.deps, request))
                self.on_work()
                with self._changed:
                    moved = self._changed.wait_for(
                        lambda seen=version: self._version != seen, remaining_ms / 1000
                    )
                remaining_ms -= max(1, self.deps.clock.now_ms() - started_ms)
                if not moved or remaining_ms <= 0:
                    raise

    def _learn(self, request: AssembleRequest) -> None:
        """Scale the model's token counts by what its provider reported for the last request."""
        usage, sent = request.usage, self._sent.get(request.session.id)
        if usage is None or sent is None:
            return
        # A guess at the instructions is too high, and what was refused for all that is too low.
        if not sent.known and usage.input_tokens < request.model.context_tokens:
            return
        if self._used.get(request.session.id) == usage.message_id:
            return
        self._used[request.session.id] = usage.message_id
        factor = self._factors.get(sent.model, 1.0)
        self._factors[sent.model] = calibrate(
            factor, estimated=int(sent.raw_tokens * factor), reported=usage.input_tokens
        )

    def check(self, request: CheckRequest) -> CheckResponse:
        """The final check of a request whose instructions turned out larger than announced."""
        sent = self._sent.get(request.session.id)
        usable = usable_tokens(window(request.model))
        factor = self._factors.get(model_key(request.model.provider, request.model.id), 1.0)
        overhead = tokens(sizes_of(request.overhead), factor)
        estimated = overhead + (sent.base_tokens if sent is not None else 0)
        error = None
        if estimated > usable:
            error = assemble.error_info(
                NotReady(
                    f"the request needs about {estimated} tokens of the {usable} that "
                    f"{request.model.id} takes; it was not sent and nothing is lost.",
                    hint="send it again: its true size is known now; or use a larger window",
                )
            )
        return CheckResponse(error=error, estimated_tokens=estimated, limit_tokens=usable)

    def tool(self, request: ToolRequest) -> ToolResponse:
        """A retrieval call under the caller's snapshot (§8)."""
        try:
            args = msgspec.json.decode(request.args_json or "{}")
        except msgspec.DecodeError as error:
            raise BadInput(f"the arguments are no JSON ({error}); nothing was read.") from None

        def work(tx: Tx) -> Answer:
            reader = Reader(tx, self._visibility(tx, request))
            return call_tool(reader, request.tool, args)

        return self.store.read(work).response()

    def _visibility(self, tx: Tx, request: ToolRequest) -> Visibility:
        """The pinned snapshot of the asking turn, or the newest one for a person."""
        if request.session is not None:
            session = tx.sessions.session_of_host(request.host or "", request.session)
            if session is None:
                raise NotFound(
                    "this conversation is not known to optchat yet; nothing was read.",
                    hint="ask again in the next turn",
                )
            turn = tx.records.last_pinned(session.session_id, session.generation)
            if turn is None or turn.pin is None or turn.pin.scope_id != session.scope_id:
                raise SnapshotExpired(
                    "this turn has no memory snapshot; nothing was read.",
                    hint="the next request of this conversation takes one",
                )
            own = own_lineage(tx, session)
            return pinned(turn.pin, session.session_id, own, turn.folded_end)
        return newest(tx, self._chosen_scope(tx, request.scope, request.directory))

    def _chosen_scope(self, tx: Tx, scope: str | None, directory: str | None) -> Scope:
        """The scope that a person names, by id, name or a directory inside it."""
        if scope is not None:
            for found in tx.sessions.scopes():
                if scope in (found.scope_id, found.name):
                    return found
            raise NotFound(f"there is no scope {scope[:80]!r}.", hint="optchat status")
        where = directory or ""
        rules = self.deps.config.sharing.rules()
        inside = [
            p
            for p in tx.sessions.projects()
            if where == p.directory or where.startswith(p.directory.rstrip("/") + "/")
        ]
        for project in sorted(inside, key=lambda p: -len(p.directory)):
            scope_id = scope_of(
                rules, session_id=SessionId(""), project_id=project.project_id, directory=where
            )
            found = tx.sessions.scope(scope_id)
            if found is not None:
                return found
        raise NotFound(
            f"no conversation of {where[:200]!r} is in the memory yet.",
            hint="start one there, or name a scope from: optchat status",
        )

    def status(self) -> StatusResponse:
        """Counts of everything, the queue, and what is wrong."""
        return self.store.read(self._status)

    def _status(self, tx: Tx) -> StatusResponse:
        rows_of: list[ScopeStatus] = []
        notices = self._waiting()
        for scope in tx.sessions.scopes():
            visibility = newest(tx, scope)
            published = {
                row[0].session_id: row[1] for row in tx.publications.visible_sessions(visibility)
            }
            rows: list[SessionCounts] = []
            for session in tx.sessions.sessions(scope.scope_id):
                rows.append(_counts(tx, session, published.get(session.session_id, 0)))
                if session.disabled is not None:
                    notices.append(
                        f"memory is off for s{session.number} ({session.title}): "
                        f"{session.disabled}. To enable it: optchat resync {session.host_session}"
                    )
            rows_of.append(
                ScopeStatus(
                    scope=scope.scope_id,
                    name=scope.name,
                    publications=scope.publications,
                    retention_epoch=scope.retention_epoch,
                    policy_revision=scope.policy_revision,
                    sessions=rows,
                )
            )
        failed = tx.jobs.failed(20)
        told = "; its line only says: needs inspection" if self.deps.config.memory.fallback else ""
        notices += [f"a summary failed for good: {j.target} ({j.error}){told}" for j in failed]
        return StatusResponse(
            health=self.health(),
            records=tx.records.count(),
            jobs={s.value: tx.jobs.counts().get(s, 0) for s in JobState},
            failed_jobs=[job.target for job in failed],
            scopes=rows_of,
            summariser=self.deps.config.compactor.model,
            notices=notices,
        )

    def export(self, request: ExportRequest) -> ExportResponse:
        """Write a scope as Markdown (§9: exports are for inspection, never for coordination)."""

        def work(tx: Tx) -> ExportResponse:
            scope = self._chosen_scope(tx, request.scope, request.directory)
            return export.export(Reader(tx, newest(tx, scope)), scope, Path(request.folder))

        return self.store.read(work)

    def rebuild(self, request: RebuildRequest) -> RebuildResponse:
        """Make summaries anew under the configured model and prompt."""
        scope = self.store.read(lambda tx: self._chosen_scope(tx, request.scope, request.directory))
        response = self.compactor.rebuild(request, scope)
        if response.queued:
            self.on_work()
        return response

    def resume(self) -> ResumeResponse:
        """Let the caps count anew."""
        response = self.compactor.resume()
        self.on_work()
        return response

    def jobs(self, request: JobsRequest) -> JobsResponse:
        """The queue, and trying again what failed."""
        response = self.compactor.jobs(request)
        if response.retried:
            self.on_work()
        return response

    def spend(self, request: SpendRequest) -> SpendResponse:
        """The bill."""
        return self.compactor.spend(request)

    def work(self, request: WorkRequest) -> WorkResponse:
        """A summary for the asking host's model to make; a host that only asks is not active."""
        return self.compactor.work(request)

    def work_lost(self, response: WorkResponse) -> None:
        """A summary that was given to a host that had gone."""
        self.compactor.work_lost(response)

    def work_done(self, done: WorkDone) -> WorkDoneResponse:
        """The answer of a host's model."""
        return self.compactor.work_done(done)

    @property
    def compactor(self) -> Compaction:
        """The compactor's own routes.

        Raises:
            CoordinatorError: this service runs without one.
        """
        if self.compaction is None:
            raise CoordinatorError("this coordinator runs without a compactor.")
        return self.compaction

    def doctor(self, request: DoctorRequest) -> DoctorResponse:
        """What is wrong with the store; see ``coordinator.doctor``."""
        response = examine(self.store, self.deps, request)
        if response.repaired:
            self.on_work()
        return response

    def tidy(self) -> int:
        """Prune what nothing shows any more, a scope a transaction; how many rows went."""
        found = self.store.read(lambda tx: tx.sessions.scopes())
        return sum(self.store.write(lambda tx, s=scope: prune.prune(tx, s)) for scope in found)

    def follow(self, request: FollowRequest) -> FollowResponse:
        """Take over a session's title and archive state, if it is known; writes only a change."""
        info = request.session

        def work(tx: Tx) -> FollowResponse:
            known = tx.sessions.session_of_host(info.host, info.id)
            if known is not None:
                follow(tx, known, info)
            return FollowResponse(known=known is not None)

        return self.store.write(work)

    def share(self, request: ShareRequest) -> ShareResponse:
        """Decide who shares with a session; see ``engine.scopes.choose``."""

        def work(tx: Tx) -> ShareResponse:
            session = self._named(tx, request)
            withdrawn = scopes.choose(tx, self.deps, session, request.sharing)
            decided = replace(session, sharing=request.sharing)
            return ShareResponse(
                session=f"s{session.number}",
                host_session=session.host_session,
                scope=session.scope_id,
                next_scope=scope_for(tx, self.deps, decided),
                withdrawn=withdrawn,
            )

        response = self.store.write(work)
        self.on_work()
        return response

    def _named(self, tx: Tx, request: ShareRequest) -> Session:
        """A session by the host's id, or as s12 of the scope that is in question."""
        numbered = re.fullmatch(r"s(\d{1,9})", request.session, re.ASCII)
        if numbered is None:
            return session_of(tx, request.session)
        scope = self._chosen_scope(tx, request.scope, request.directory)
        found = tx.sessions.session_numbered(scope.scope_id, int(numbered[1]))
        session = tx.sessions.session(found.session_id) if found is not None else None
        if session is None:
            raise NotFound(
                f"there is no session {request.session} in {scope.name}; nothing was changed.",
                hint="optchat status",
            )
        return session

    def forget(self, request: ForgetRequest) -> ForgetResponse:
        """Remove what was remembered; see ``coordinator.forgetting``."""
        answer = self.forgetting.forget(request)
        self.on_work()  # what stood over the removed is made again
        return answer

    def forgotten(self, request: ForgottenRequest) -> ForgottenResponse:
        """The removals so far."""
        return self.forgetting.forgotten(request)

    def present(self, request: PresentRequest) -> PresentResponse:
        """Compare a host's sessions with ours."""
        answer = self.forgetting.present(request)
        if answer.forgotten:
            self.on_work()
        return answer

    def scrub_when_needed(self) -> bool:
        """Overwrite what removals have left in the store's files; whether nothing is left."""
        return self.forgetting.is_scrubbed() or self.forgetting.scrub()

    @property
    def forgetting(self) -> Forgetting:
        """What removes, over this service's store."""
        return Forgetting(self.store, self.deps, self._chosen_scope)

    def resync(self, request: ResyncRequest) -> SyncResponse:
        """Enable memory of a session again; see ``engine.sync.resync``."""
        response = self.store.write(lambda tx: sync.resync(tx, self.deps, request.session))
        self.on_work()
        return response


def _counts(tx: Tx, session: Session, published: int) -> SessionCounts:
    generation = tx.sessions.generation(session.session_id, session.generation)
    return SessionCounts(
        ref=f"s{session.number}",
        title=session.title,
        host_session=session.host_session,
        turns=len(tx.records.turns(session.session_id)),
        records=generation.length if generation is not None else 0,
        published=published,
        disabled=session.disabled,
        archived=session.archived,
        sharing=session.sharing,
    )


def newest(tx: Tx, scope: Scope) -> Visibility:
    """The newest state of a scope, for a reader that is no session."""
    return Visibility(
        scope_id=ScopeId(scope.scope_id),
        csn=Csn(tx.meta.csn()),
        publication_end=scope.publications,
        policy_revision=scope.policy_revision,
        retention_epoch=scope.retention_epoch,
    )


def model_key(provider: str, model: str) -> str:
    return f"{provider}/{model}"


def observed_commit(directory: str) -> str | None:
    """The commit that a directory's checkout is at, when git knows one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--verify", "--quiet", "HEAD"],  # noqa: S607
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=2,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
