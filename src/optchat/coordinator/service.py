"""What the coordinator does, a method for each route, over a store and without any HTTP.

Each method is one unit of work, or a read that becomes a write only when there is something to
decide. Model calls are not made here.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from optchat import __version__
from optchat.coordinator.compaction import Compaction
from optchat.coordinator.doctor import examine
from optchat.coordinator.forgetting import Forgetting
from optchat.coordinator.importing import Importing
from optchat.coordinator.readers import chosen_scope, named_session, newest, visibility
from optchat.coordinator.reconciling import Reconciling
from optchat.coordinator.requests import Requests
from optchat.coordinator.status import status
from optchat.coordinator.tools import call_tool, raw_arguments
from optchat.engine import export, prune, scopes, sync
from optchat.engine.answers import Answer
from optchat.engine.deps import Deps
from optchat.engine.payloads import prepare
from optchat.engine.sessions import follow, scope_for
from optchat.engine.visible import Reader
from optchat.errors import (
    CoordinatorError,
    EventConflict,
)
from optchat.storage.ports import Store, Tx
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
    ShareRequest,
    ShareResponse,
    SpendRequest,
    SpendResponse,
    StatusResponse,
    SummariseRequest,
    SummariseResponse,
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
class Service:
    """The routes' work. Thread-safe: shared state is the store's, or guarded by the condition."""

    store: Store
    deps: Deps
    home: Path
    epoch: int = 0
    on_work: Callable[[], None] = lambda: None
    on_activity: Callable[[], None] = lambda: None
    compaction: Compaction | None = None
    requests: Requests = field(init=False)
    importing: Importing = field(init=False)
    reconciling: Reconciling = field(init=False)

    def __post_init__(self) -> None:
        self.importing = Importing(self.store, self.deps)
        self.reconciling = Reconciling(self.store, self.deps, self.importing)
        self.requests = Requests(self.store, self.deps, self._wake_workers)

    # --- waking ---

    def _wake_workers(self) -> None:
        self.on_work()  # looked up when it is called: the workers are made after the service

    def changed(self) -> None:
        """A summary or publication was committed: whoever waits for memory looks again."""
        self.requests.changed()

    # --- routes ---

    def health(self) -> Health:
        return Health(
            version=__version__,
            protocol=PROTOCOL,
            epoch=self.epoch,
            pid=os.getpid(),
            home=str(self.home),
            subagents=self.deps.config.sharing.subagents,
            aliases=self.deps.config.recall.aliases,
        )

    def start(self) -> None:
        """Hold to the hosts' stores and the rules as they are now, before anybody reads (§12)."""
        self.reconciling.run()
        self.store.write(lambda tx: scopes.revoke_isolated(tx, self.deps))

    def sync(self, request: SyncRequest) -> SyncResponse:
        """Bring a session up to its host, and wake the workers."""
        self.reconciling.meet(request.session)
        commit = observed_commit(request.session.directory)
        try:
            prepared = prepare(request, mask=self.deps.config.privacy.mask)
            response = self.store.write(
                lambda tx: sync.sync(tx, self.deps, request, prepared, commit)
            )
        except EventConflict as error:
            # Whoever delivers two contents of one reading cannot be relied on for this session.
            reason = error.message
            self.store.write(lambda tx: sync.disable(tx, request.session, reason))
            raise
        self.on_activity()
        self.importing.heard(request.session)
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
        """What to put into a request; see ``coordinator.requests``."""
        return self.requests.assemble(request)

    def check(self, request: CheckRequest) -> CheckResponse:
        """The final check of a request whose instructions turned out larger than announced."""
        return self.requests.check(request)

    def tool(self, request: ToolRequest) -> ToolResponse:
        """A retrieval call under the caller's snapshot (§8)."""
        args = raw_arguments(request.args_json)

        def work(tx: Tx) -> Answer:
            seen = visibility(tx, self.deps, request)
            unread = self.reconciling.unread(tx, seen.scope_id)
            reader = Reader(tx, seen, self.deps.config.privacy, unread)
            aliases = self.deps.config.recall.aliases
            return call_tool(
                reader,
                request.tool,
                args,
                request.children,
                now_ms=self.deps.clock.now_ms(),
                aliases=aliases,
            )

        return self.store.read(work).response()

    def status(self) -> StatusResponse:
        """Counts of everything, the queue, and what is wrong."""
        return self.store.read(lambda tx: status(tx, self.deps, self.health(), self._waiting()))

    def export(self, request: ExportRequest) -> ExportResponse:
        """Write a scope as Markdown (§9: exports are for inspection, never for coordination)."""

        def work(tx: Tx) -> ExportResponse:
            scope = chosen_scope(tx, self.deps, request.scope, request.directory)
            reader = Reader(tx, newest(tx, scope), self.deps.config.privacy)
            return export.export(reader, scope, Path(request.folder))

        return self.store.read(work)

    def rebuild(self, request: RebuildRequest) -> RebuildResponse:
        """Make summaries anew under the configured model and prompt."""
        scope = self.store.read(
            lambda tx: chosen_scope(tx, self.deps, request.scope, request.directory)
        )
        response = self.compactor.rebuild(request, scope)
        if response.queued:
            self.on_work()
        return response

    def summarise(self, request: SummariseRequest) -> SummariseResponse:
        """Have history that was taken in summarised, or say what that takes."""
        response = self.compactor.summarise(request)
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
                follow(tx, self.deps, known, info)
            return FollowResponse(known=known is not None)

        return self.store.write(work)

    def share(self, request: ShareRequest) -> ShareResponse:
        """Decide who shares with a session; see ``engine.scopes.choose``."""

        def work(tx: Tx) -> ShareResponse:
            session = named_session(tx, self.deps, request)
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
        return Forgetting(self.store, self.deps)

    def resync(self, request: ResyncRequest) -> SyncResponse:
        """Enable memory of a session again; see ``engine.sync.resync``."""
        response = self.store.write(lambda tx: sync.resync(tx, self.deps, request.session))
        self.on_work()
        return response


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
