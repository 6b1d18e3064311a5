"""Taking in what a host has kept: asked for, or by itself once a project is used.

One import runs at a time, in a thread of its own, in transactions that are short enough to let live
turns pass between them. It can end at any point: what was taken in is skipped by the next one.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import structlog

from optchat.coordinator.reading import Item, Order, Unread, read_ahead, read_here
from optchat.core.records import Session
from optchat.engine import payloads
from optchat.engine.deps import Deps
from optchat.engine.intake import Reading, take_in
from optchat.engine.keys import kept_digest
from optchat.errors import BadInput, NotFound, OptChatError
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
from optchat.storage.ports import Store, Tx
from optchat.wire import (
    ErrorInfo,
    ImportRequest,
    ImportStatus,
    ImportStatusRequest,
    MessageInfo,
    SessionInfo,
)

log = structlog.get_logger()

BATCH_CHARS = 4_000_000
"""About how much content one transaction takes."""
BATCH_SESSIONS = 100
AHEAD_MESSAGES_MIN = 2_000
"""Fewer are read here: a process takes half a second to begin."""
CHUNK_SESSIONS = 20
"""How many are read between two looks at the clock, where there is a time to be kept."""
UNREADABLE_MAX = 20
"""How many sessions that cannot be read are named; the rest is counted."""


@dataclass(slots=True)
class Run:
    """One import. ``project_key``, ``settled_only`` and ``only`` are of one nobody asked for."""

    status: ImportStatus
    request: ImportRequest
    project_key: str | None = None
    settled_only: bool = False
    only: frozenset[str] | None = None
    skipped: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True)
class Importing:
    """The routes of an import, and what happens without one. Thread-safe."""

    store: Store
    deps: Deps
    _runs: list[Run] = field(default_factory=list[Run])
    _queue: queue.SimpleQueue[Run | None] = field(default_factory=queue.SimpleQueue[Run | None])
    _thread: threading.Thread | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _live: set[str] = field(default_factory=set[str])
    _used: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

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
        self._take(run, source, wanted, sessions)

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

    def _take(
        self,
        run: Run,
        source: Source,
        wanted: Sequence[HostSession],
        sessions: Sequence[HostSession],
    ) -> None:
        """Read sessions and seal them, small ones together: some are read while others are sealed.

        Raises:
            BadInput: the store is gone.
            CoordinatorError: who read it was killed. What was sealed is kept.
        """
        batch: list[Reading] = []
        chars = 0
        sealed: Future[None] | None = None
        items = self._items(run, source, wanted, sessions)
        with closing(items), ThreadPoolExecutor(1, "sealing") as sealing:
            for item in items:
                if self._stopping.is_set():
                    return
                if isinstance(item, Unread):
                    if source.name and not place.is_there(source.name):
                        raise BadInput(item.message, hint=item.hint)
                    self._unreadable(run, item.id, item.code)
                    continue
                batch.append(item)
                chars += sum(map(_chars, item.prepared.values()))
                if chars >= BATCH_CHARS or len(batch) >= BATCH_SESSIONS:
                    if sealed is not None:
                        sealed.result()
                    sealed = sealing.submit(self._seal, run, batch)
                    batch, chars = [], 0
            if sealed is not None:
                sealed.result()
            self._seal(run, batch)

    def _items(
        self,
        run: Run,
        source: Source,
        wanted: Sequence[HostSession],
        sessions: Sequence[HostSession],
    ) -> Generator[Item]:
        mask = self.deps.config.privacy.mask
        if run.request.form == "opencode" and sum(s.messages for s in wanted) >= AHEAD_MESSAGES_MIN:
            return read_ahead(Order(str(source.path), [s.id for s in wanted], mask))
        return read_here(source, wanted, sessions, self.deps.clock, mask=mask)

    def _seal(self, run: Run, batch: Sequence[Reading]) -> None:
        """Seal sessions in one transaction; if one of them cannot be, each in its own."""
        try:
            self._seal_together(run, batch)
        except OptChatError as error:
            if len(batch) <= 1:
                for reading in batch:
                    self._unreadable(run, reading.request.session.id, error.code)
                return
            for one in batch:
                self._seal(run, [one])

    def _seal_together(self, run: Run, batch: Sequence[Reading]) -> None:
        left = list(batch)
        while left:
            sealed, left = self.store.write(lambda tx, part=left: self._portion(tx, part))
            run.status.records += sealed
            if self._stopping.is_set():
                return
        run.status.sessions += len(batch)
        run.status.done += len(batch)

    def _portion(self, tx: Tx, batch: Sequence[Reading]) -> tuple[int, list[Reading]]:
        """One transaction's worth; how many records are new, and which sessions have more."""
        readings = [_lacking(reading, _held(tx, reading)) for reading in batch]
        answers = take_in(tx, self.deps, readings)
        more = [one for one, a in zip(batch, answers, strict=True) if a.need and a.sealed]
        return sum(a.sealed for a in answers), more

    def _unreadable(self, run: Run, host_session: str, code: str) -> None:
        log.warning("not taken in", session=host_session, code=code)
        run.skipped["unreadable"] += 1
        run.status.done += 1
        if len(run.status.unreadable) < UNREADABLE_MAX:
            run.status.unreadable.append(host_session)

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
            self._take(run, source, changed[at : at + CHUNK_SESSIONS], sessions)

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


def _held(tx: Tx, reading: Reading) -> dict[str, str]:
    """The digests of a session's messages that are sealed."""
    info = reading.request.session
    session = tx.sessions.session_of_host(info.host, info.id)
    if session is None:
        return {}
    return {m.message_id: m.digest for m in tx.records.messages(session.session_id)}


def _lacking(reading: Reading, held: dict[str, str]) -> Reading:
    """The reading with the content that is not sealed yet, as far as one transaction takes."""
    left = BATCH_CHARS
    if not held and sum(map(_chars, reading.prepared.values())) <= left:
        return reading
    messages: list[MessageInfo] = []
    for message in reading.request.messages:
        is_new = held.get(message.id) != kept_digest(message.digest)
        if left > 0 and is_new and message.final:
            left -= _chars(reading.prepared.get(message.id, ()))
            messages.append(message)
        else:
            messages.append(msgspec.structs.replace(message, parts=None))
    return msgspec.structs.replace(
        reading, request=msgspec.structs.replace(reading.request, messages=messages)
    )


def _chars(sources: Sequence[payloads.Source]) -> int:
    """About how much a message holds."""
    return 200 + sum(len(source.payload) for source in sources)
