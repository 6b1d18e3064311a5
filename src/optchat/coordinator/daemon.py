"""The process: elected by a lock, fenced by an epoch, on a private socket, gone when idle (§9).

Order at start: folders, lock, configuration, store, epoch, socket, workers. Whoever holds the lock
owns the data directory; the epoch fences one that lost it without noticing. Order at the end:
socket, workers, store, lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import stat
import struct
import threading
from pathlib import Path

import filelock
import structlog
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from optchat import config
from optchat.compactor.workers import Workers
from optchat.coordinator.app import make_app
from optchat.coordinator.compaction import Compaction
from optchat.coordinator.ids import CountedIds
from optchat.coordinator.paths import Paths
from optchat.coordinator.service import Service
from optchat.engine.deps import Deps
from optchat.errors import CoordinatorError, NotOwner, OptChatError
from optchat.masking import load_detector
from optchat.storage.ports import Store, Tx
from optchat.storage.sqlite import SqliteStore
from optchat.storage.sqlite.store import SystemClock

log = structlog.get_logger()

IDLE_POLL_S = 0.1
TIDY_IDLE_S = 60.0
"""Quiet for so long, and the store is tidied, once until the next request."""
SCRUB_IDLE_S = 2.0
"""What a removal left in the files goes when nobody waits for the store."""


def run(home: Path) -> None:
    """Own ``home`` and serve until stopped, idle or fenced.

    Raises:
        NotOwner: another coordinator holds the lock; nothing was touched.
        BadInput: the configuration is unreadable; nothing was touched.
        StorageError: the store cannot be opened.
    """
    paths = Paths(home)
    paths.prepare()
    collect_less()
    lock = filelock.FileLock(paths.lock, mode=0o600)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise NotOwner(
            f"another coordinator serves {home}; this one was not started.", hint="optchat status"
        ) from None
    try:
        settings = config.load(home)
        clock = SystemClock()
        store = SqliteStore(paths.store, clock)
        try:
            epoch = store.write(lambda tx: take_over(tx, clock.now_ms()))
            store.owner_epoch = epoch
            _serve(paths, Deps(settings, clock, CountedIds(epoch)), store, epoch)
        finally:
            store.close()
    finally:
        lock.release()


def collect_less() -> None:
    """Look for cycles less often: few objects of ours are in any, and many are made at once."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def take_over(tx: Tx, now_ms: int) -> int:
    """Fence whoever owned the store before; the new epoch.

    What it held is due at once, and so is what was put off: the clock may have been set back since.
    """
    tx.jobs.end_leases()
    tx.jobs.release_put_off("", now_ms)
    return tx.meta.raise_epoch()


def _complete_search(store: Store) -> None:
    # The store may be closed under it: the next start goes on where this one ended.
    with contextlib.suppress(OptChatError):
        store.complete_search()


def _serve(paths: Paths, deps: Deps, store: Store, epoch: int) -> None:
    service = Service(store, deps, paths.home, epoch)
    stopping = threading.Event()
    workers = Workers(store, deps, service.changed, stopping)
    service.on_work = workers.wake
    service.on_activity = workers.active
    service.compaction = Compaction(store, deps, workers.model, workers.desk)
    service.start()
    if deps.config.privacy.mask:
        # Before the first text that needs it: seconds, where its rules have yet to be compiled.
        threading.Thread(target=load_detector, name="detector", daemon=True).start()
    # A no-op, unless the rules of what is searched have changed since the index was made.
    threading.Thread(target=_complete_search, args=(store,), name="indexing", daemon=True).start()
    service.importing.begin()
    listener = bind(paths.socket)
    ours = identity_of(paths.socket)
    try:
        idle_exit_seconds = deps.config.coordinator.idle_exit_seconds
        asyncio.run(_answer(paths, service, listener, stopping, workers, idle_exit_seconds))
    finally:
        listener.close()
        with contextlib.suppress(OSError):
            if identity_of(paths.socket) == ours:
                paths.socket.unlink()
        service.importing.close()
        workers.close()


def bind(path: Path) -> socket.socket:
    """A listening socket with mode 0600 at ``path``; a stale one there is removed.

    Raises:
        CoordinatorError: something that is no socket is in the way; it was not touched.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise CoordinatorError(
                f"{path} is in the way and is no socket; it was not touched.",
                hint=f"look at {path} and move it away",
            )
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    listener.listen(128)
    return listener


def _tidy(service: Service) -> None:
    try:
        log.info("tidied", rows=service.tidy())
    except OptChatError as error:
        log.warning("tidy", code=error.code)


class _SameUserProtocol(H11Protocol):
    """HTTP for callers of the same user only: the socket's mode says so, the kernel confirms it."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        if peer_uid(transport.get_extra_info("socket")) in (os.getuid(), None):
            super().connection_made(transport)
        else:
            log.warning("refused another user")
            transport.abort()


def peer_uid(connection: socket.socket) -> int | None:
    """The user at the other end; None where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", packed)[1]


class _Activity:
    """Counts the requests that pass, so that an idle coordinator can tell.

    A host that only asks for work does nothing: it would keep the coordinator for as long as it is
    open.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.requests = 0
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") == "/v1/work":
            await self.app(scope, receive, send)
            return
        self.requests += 1
        self.running += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.running -= 1


def scrubbed(service: Service) -> bool:
    """Leave no byte of what was removed; True when that is so, or will not be so for now."""
    try:
        return service.scrub_when_needed()
    except OptChatError as error:
        log.warning("not scrubbed", code=error.code)
        return True


def identity_of(path: Path) -> tuple[int, int] | None:
    """What lies at ``path``, told apart from whatever may lie there later; None for nothing."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


async def _answer(
    paths: Paths,
    service: Service,
    listener: socket.socket,
    stopping: threading.Event,
    workers: Workers,
    idle_exit_seconds: int,
) -> None:
    activity = _Activity(make_app(service, stop=stopping.set))
    server = uvicorn.Server(
        uvicorn.Config(
            activity,
            http=_SameUserProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    idle_since = loop.time()
    seen, tidied, is_scrubbed = -1, False, False
    ours = identity_of(paths.socket)
    while not stopping.is_set() and not serving.done():
        await asyncio.sleep(IDLE_POLL_S)
        if identity_of(paths.socket) != ours:
            # Without its socket it serves nobody, and its lock would keep others from serving.
            log.warning("the socket was taken away")
            break
        is_busy = activity.running or workers.busy or service.importing.is_busy
        if activity.requests != seen or is_busy:
            seen, idle_since = activity.requests, loop.time()
            tidied = is_scrubbed = False
        elif not is_scrubbed and loop.time() - idle_since > SCRUB_IDLE_S:
            is_scrubbed = await asyncio.to_thread(scrubbed, service)
        elif not tidied and loop.time() - idle_since > TIDY_IDLE_S:
            tidied = True
            await asyncio.to_thread(_tidy, service)
        elif idle_exit_seconds and loop.time() - idle_since > idle_exit_seconds:
            log.info("idle", seconds=idle_exit_seconds)
            break
    workers.end()
    server.should_exit = True
    await serving
