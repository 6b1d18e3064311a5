"""Taking in what a host has kept: asked for, or by itself once a project is used.

One import runs at a time, in a thread of its own, in transactions that are short enough to let live
turns pass between them. It can end at any point: what was taken in is skipped by the next one.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import structlog

from optchat.coordinator.taking import Run, Taking
from optchat.core.records import Session
from optchat.engine.deps import Deps
from optchat.errors import NotFound, OptChatError
from optchat.hosts.opencode.transcript import place
from optchat.hosts.opencode.transcript.memory_tree import MemoryTree
from optchat.hosts.opencode.transcript.messages import GLOBAL, HostSession
from optchat.hosts.opencode.transcript.source import (
    HOST,
    SETTLED_MS,
    Source,
    mark_of,
    open_source,
    project_key,
)
from optchat.storage.ports import Store
from optchat.wire import (
    ErrorInfo,
    ImportRequest,
    ImportStatus,
    ImportStatusRequest,
    SessionInfo,
)

log = structlog.get_logger()

CHUNK_SESSIONS = 20
"""How many are read between two looks at the clock, where there is a time to be kept."""


@dataclass(slots=True)
class Importing:
    """The routes of an import, and what happens without one. Thread-safe."""

    store: Store
    deps: Deps
    _runs: list[Run] = field(default_factory=list[Run])
    _queue: queue.SimpleQueue[Run | None] = field(default_factory=queue.SimpleQueue[Run | None])
    _thread: threading.Thread | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _taking: Taking = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _live: set[str] = field(default_factory=set[str])
    _used: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def __post_init__(self) -> None:
        self._taking = Taking(self.store, self.deps, self._stopping)

    # --- the thread ---

    def begin(self) -> None:
        """Have imports done from now on."""
        self._thread = threading.Thread(target=self._work, name="import", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End after the transaction that is going on."""
        self._stopping.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()

    @property
    def is_busy(self) -> bool:
        return any(run.status.running for run in self._runs)

    def _work(self) -> None:
        while (run := self._queue.get()) is not None:
            self.run(run)

    # --- asking ---

    def ask(self, request: ImportRequest) -> ImportStatus:
        """Queue an import, or join the same one; ``status`` tells how it gets on."""
        with self._lock:
            for run in self._runs:
                is_asked = run.project_key is None and run.only is None
                if run.status.running and run.request == request and is_asked:
                    return _told(run)
            return _told(self._queued(Run(self._new(request), request)))

    def status(self, request: ImportStatusRequest) -> ImportStatus:
        """How an import is getting on.

        Raises:
            NotFound: there was none of that number since the coordinator started.
        """
        with self._lock:
            for run in self._runs:
                if run.status.id == request.id:
                    return _told(run)
        raise NotFound(
            "the coordinator was started anew since that import began; what it took in is kept.",
            hint="optchat import opencode, which goes on from there",
        )

    def heard(self, info: SessionInfo) -> None:
        """A host speaks of a session: it is the host's to tell, and its project is in use."""
        if info.host != HOST:
            return
        self._live.add(info.id)
        path = place.path_of(info.store)
        known = (info.store, info.project_key)
        if not self.deps.config.import_.auto or path is None or known in self._used:
            return
        self._used.add(known)
        request = ImportRequest(path=str(path))
        run = Run(self._new(request), request, project_key=info.project_key, settled_only=True)
        with self._lock:
            self._queued(run)

    def _new(self, request: ImportRequest) -> ImportStatus:
        return ImportStatus(
            id=len(self._runs) + 1, path=request.path, running=True, dry_run=request.dry_run
        )

    def _queued(self, run: Run) -> Run:
        run.status.id = len(self._runs) + 1
        self._runs.append(run)
        self._queue.put(run)
        return run

    # --- the work ---

    def take(self, request: ImportRequest) -> ImportStatus:
        """Do an import here and now."""
        run = Run(self._new(request), request)
        self.run(run)
        return _told(run)

    def run(self, run: Run) -> None:
        """Do one import to its end, its first error or the coordinator's end."""
        try:
            source = self._opened(run.request)
            try:
                self._take_all(run, source)
            finally:
                source.close()
        except OptChatError as error:
            run.status.error = ErrorInfo(
                code=error.code, message=error.message, hint=error.hint, retryable=error.retryable
            )
        except Exception:
            log.exception("import failed")
            run.status.error = ErrorInfo(
                code="coordinator",
                message="the import failed; what was taken in until then is kept.",
                hint="the coordinator's log has the reason: optchat status",
                retryable=False,
            )
        finally:
            run.status.running = False

    def _opened(self, request: ImportRequest) -> Source:
        path = Path(request.path)
        if request.form == "opencode":
            return open_source(path)
        directory = request.project or str(path)
        projects = self.store.read(lambda tx: tx.sessions.projects())
        keys = [p.host_key for p in projects if (p.host, p.directory) == (HOST, directory)]
        own = [key for key in keys if not key.startswith("dir:")]
        return MemoryTree(path, directory=directory, project_id=own[0] if own else GLOBAL)

    def _take_all(self, run: Run, source: Source) -> None:
        sessions = source.sessions()
        known = {s.host_session: s for s in self.known()}
        alive = alive_stores(known.values())
        run.status.total = len(sessions)
        wanted: list[HostSession] = []
        for session in sessions:
            reason = self._reason(run, source, session, known.get(session.id), alive)
            if reason:
                run.skipped[reason] += 1
                run.status.done += 1
            else:
                wanted.append(session)
        if run.request.dry_run:
            run.status.sessions, run.status.done = len(wanted), run.status.total
            return
        self._taking.take(run, source, wanted, sessions)

    def _reason(
        self,
        run: Run,
        source: Source,
        session: HostSession,
        known: Session | None,
        alive: frozenset[str],
    ) -> str:
        """Why a session is not taken in, if it is not."""
        request, now_ms = run.request, self.deps.clock.now_ms()
        if never := self.never(session):
            return never
        if session.updated_ms < request.since_ms:
            return "older"
        if not _is_of(session, request.project, run.project_key):
            return "other project"
        if run.only is not None and session.id not in run.only:
            return "not changed"
        if session.id in self._live:
            return "in use"
        if run.settled_only and now_ms - session.updated_ms <= SETTLED_MS:
            return "in use"
        if known is not None and known.disabled is not None:
            return "memory off"
        if known is not None and known.host_store != source.name:
            if known.host_store in alive or not source.name:
                return "known from another store"
            if session.updated_ms < known.updated_ms:
                return "older copy"
        if known is not None and known.host_mark == mark_of(source, session, now_ms):
            return "unchanged"
        return ""

    def never(self, session: HostSession) -> str:
        """Why a session is not taken in by anybody, if so."""
        if session.internal:
            return "made by optchat"
        if session.parent_id is not None and not self.deps.config.sharing.subagents:
            return "subagent"
        return "" if session.messages else "empty"

    # --- what a start leaves for later ---

    def read_again(
        self,
        source: Source,
        changed: Sequence[HostSession],
        sessions: Sequence[HostSession],
        until_ms: int,
    ) -> None:
        """Read sessions of a store here and now, and those that are left at a time behind it."""
        request = ImportRequest(path=str(source.path))
        run = Run(self._new(request), request)
        for at in range(0, len(changed), CHUNK_SESSIONS):
            if self.deps.clock.now_ms() >= until_ms:
                only = frozenset(session.id for session in changed[at:])
                with self._lock:
                    self._queued(Run(self._new(request), request, only=only))
                return
            self._taking.take(run, source, changed[at : at + CHUNK_SESSIONS], sessions)

    def unread(self) -> frozenset[str]:
        """The sessions that are known to have changed, by the host's ids, while that is so."""
        waiting = (run.only for run in self._runs if run.only and run.status.running)
        return frozenset[str]().union(*waiting)

    def known(self) -> tuple[Session, ...]:
        """Every session of the host that is held."""
        return self.store.read(lambda tx: tx.sessions.of_host(HOST))


def _told(run: Run) -> ImportStatus:
    return msgspec.structs.replace(run.status, skipped=dict(run.skipped))


def alive_stores(known: Iterable[Session]) -> frozenset[str]:
    """The stores that sessions are from and that are still there."""
    return frozenset(name for name in {s.host_store for s in known} if place.is_there(name))


def _is_of(session: HostSession, directory: str | None, key: str | None) -> bool:
    if key is not None:
        return project_key(session) == key
    if directory is None:
        return True
    within = f"{directory.rstrip('/')}/"
    return directory in (session.directory, session.project_directory) or (
        session.directory.startswith(within)
    )
