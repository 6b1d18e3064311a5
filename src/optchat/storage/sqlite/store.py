"""The SQLite store: one writer thread, a few readers.

The writer thread owns the only writable connection and every checkpoint. Units of work that wait
for it are run one after another, each under a savepoint, and committed together, so that one sync
serves all of them; a result or an exception is given back only after that commit. If the commit
fails, each unit is run again alone: a unit may be run again by contract.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from optchat.errors import Fenced, OptChatError, StorageError
from optchat.storage.ports import Clock, Damage, Tx
from optchat.storage.sqlite import index
from optchat.storage.sqlite.blobs import SqliteBlobs
from optchat.storage.sqlite.chunks import SqliteChunks
from optchat.storage.sqlite.connection import Connection, Sql, make_private
from optchat.storage.sqlite.damage import file_damage, index_damage
from optchat.storage.sqlite.folds import SqliteFolds
from optchat.storage.sqlite.frames import Frames
from optchat.storage.sqlite.jobs import SqliteJobs
from optchat.storage.sqlite.ledger import SqliteLedger
from optchat.storage.sqlite.membership import SqliteMembership
from optchat.storage.sqlite.meta import SqliteMeta
from optchat.storage.sqlite.migrations import backups, migrate
from optchat.storage.sqlite.publications import SqlitePublications
from optchat.storage.sqlite.records import SqliteRecords
from optchat.storage.sqlite.removals import SqliteRemovals
from optchat.storage.sqlite.search import SqliteSearch
from optchat.storage.sqlite.sessions import SqliteSessions
from optchat.storage.sqlite.trees import SqliteTrees
from optchat.storage.sqlite.turns import SqliteTurns
from optchat.storage.sqlite.vocabulary import Vocabulary

T = TypeVar("T")

READERS_MAX = 4
GROUP_UNITS_MAX = 64
GROUP_MS_MAX = 10
"""Nobody waits longer than this for other units to join the commit."""

CHECKPOINT_PAGES = 3_000
TRUNCATE_PAGES = 4_000
"""12 MiB of log are moved without waiting for anybody; at 16 MiB readers are waited for."""


class SqliteTx:
    """One transaction, as families of verbs."""

    def __init__(self, sql: Sql, frames: Frames, vocabulary: Vocabulary) -> None:
        self.sessions = SqliteSessions(sql)
        self.blobs = SqliteBlobs(sql)
        self.records = SqliteRecords(sql, self.blobs)
        self.membership = SqliteMembership(sql)
        self.turns = SqliteTurns(sql)
        self.trees = SqliteTrees(sql)
        self.publications = SqlitePublications(sql)
        self.folds = SqliteFolds(sql)
        self.jobs = SqliteJobs(sql)
        self.ledger = SqliteLedger(sql)
        self.chunks = SqliteChunks(sql, self.blobs)
        self.search = SqliteSearch(sql, frames, vocabulary, self.records)
        self.removals = SqliteRemovals(sql)
        self.meta = SqliteMeta(sql)

    def flush(self) -> None:
        """Put down what was gathered; the transaction ends."""
        self.blobs.end()  # the last pack is compressed while words are indexed
        self.records.flush()
        self.blobs.flush()


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class _Unit(Generic[T]):
    """A piece of work for the writer thread and where its outcome goes."""

    def __init__(self, work: Callable[[Tx], T], committing: Callable[[], None] | None) -> None:
        self.work = work
        self._committing = committing
        self.future: Future[T] = Future()
        self._deliver: Callable[[], None] = lambda: None

    def is_wanted(self) -> bool:
        """False when whoever asked has cancelled it before it was begun."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def run(self, tx: Tx) -> None:
        # Without itself in it: what a unit holds is to go with its last use.
        self._deliver = partial(self.future.set_result, self.work(tx))

    def placed(self) -> None:
        """Nothing is left but to commit."""
        if self._committing is not None:
            self._committing()

    def fail(self, error: BaseException) -> None:
        self._deliver = partial(self.future.set_exception, error)

    def deliver(self) -> None:
        self._deliver()


class _Chore(Generic[T]):
    """What the writer thread does with its connection outside of a transaction."""

    def __init__(self, work: Callable[[Connection], T], *, last: bool = False) -> None:
        self.work = work
        self.last = last
        self.future: Future[T] = Future()

    def run(self, connection: Connection) -> None:
        try:
            result = self.work(connection)
        except BaseException as error:  # noqa: BLE001  # handed to who asked
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class SqliteStore:
    """A store in one file. Open it once a process, and keep it open.

    ``owner_epoch``, once set, fences this store: a write fails with ``Fenced`` when somebody has
    raised the stored epoch since.
    """

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        """Open, making or migrating the file as needed.

        Raises:
            UnsafeSQLite, SchemaTooNew, IntegrityError, StorageError: it was not changed.
        """
        self.path = path
        self.owner_epoch: int | None = None
        self._queue: queue.SimpleQueue[_Unit[Any] | _Chore[Any]] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._inside = threading.local()
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        self._readers: list[Connection] = []
        self._slots = threading.Semaphore(READERS_MAX)
        self._truncate_at = TRUNCATE_PAGES
        self._frames = Frames()
        self._vocabulary = Vocabulary()
        make_private(path)
        self._writer = Connection(path, readonly=False)
        try:
            migrate(self._writer, path, now_ms=(clock or SystemClock()).now_ms())
            if not index.is_current(Sql(self._writer)):
                index.empty(self._writer)
        except BaseException:
            self._writer.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="optchat-writer", daemon=True)
        self._thread.start()

    @property
    def statements(self) -> int:
        """Statements run so far, by the writer and the readers."""
        return self._writer.statements + sum(c.statements for c in tuple(self._readers))

    @property
    def commits(self) -> int:
        """Commits so far that changed something, each with its sync."""
        return self._writer.commits

    def write(self, work: Callable[[Tx], T], committing: Callable[[], None] | None = None) -> T:
        return self.submit(work, committing).result()

    def submit(
        self, work: Callable[[Tx], T], committing: Callable[[], None] | None = None
    ) -> Future[T]:
        """``write`` without waiting: the future is done after the commit, or the failure."""
        self._check_not_nested()
        unit = _Unit(work, committing)
        self._send(unit)
        return unit.future

    def read(self, work: Callable[[Tx], T]) -> T:
        self._check_not_nested()
        with self._slots:
            if self._closed:
                raise StorageError("The store is closed.")
            connection = self._reader()
            try:
                return self._read_on(connection, work)
            finally:
                self._idle.put(connection)

    def scrub(self) -> bool:
        """Leave no byte of what was removed behind; takes as long as a copy of the file does."""
        self.drop_backups()
        return self._do(lambda connection: connection.scrub(self.path.parent))

    def checkpoint(self) -> bool:
        """Move the log into the database and empty it.

        Returns:
            False when a reader of an older state held it up; to be tried again.
        """
        return self._do(lambda connection: connection.checkpoint(truncate=True))

    def damage(self) -> tuple[Damage, ...]:
        # Not a reader of the pool: FTS5's part of the check believes what its connection cached of
        # an index, and would call it corrupt because others have written since.
        connection = Connection(self.path, readonly=True)
        try:
            found = file_damage(connection)
        finally:
            connection.close()
        return (*found, *self._do(index_damage))

    def rebuild_search(self) -> None:
        self._do(index.empty)
        self.complete_search()

    def complete_search(self) -> None:
        while self._do(index.fill):
            pass

    def drop_backups(self) -> int:
        """Remove the copies that migrations made, for they hold what was forgotten since."""
        found = backups(self.path)
        for backup in found:
            backup.unlink(missing_ok=True)
        return len(found)

    def close(self) -> None:
        """Finish what is queued, let readers end, checkpoint and close. Again is a no-op."""
        self._check_not_nested()
        with self._closing:
            if self._closed:
                return
            self._closed = True
            for _ in range(READERS_MAX):
                self._slots.acquire()
            for connection in self._readers:
                connection.close()
            for _ in range(READERS_MAX):
                self._slots.release()
            chore = _Chore(_checkpoint_and_close, last=True)
            self._queue.put(chore)
        self._thread.join()
        chore.future.result()

    def _send(self, item: _Unit[Any] | _Chore[Any]) -> None:
        with self._closing:
            if self._closed:
                raise StorageError("The store is closed.")
            self._queue.put(item)

    def _do(self, work: Callable[[Connection], T]) -> T:
        self._check_not_nested()
        chore = _Chore(work)
        self._send(chore)
        return chore.future.result()

    def _check_not_nested(self) -> None:
        if getattr(self._inside, "unit", False):
            raise StorageError("A unit of work cannot open another one.")

    def _reader(self) -> Connection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            connection = Connection(self.path, readonly=True)
            self._readers.append(connection)
            return connection

    def _read_on(self, connection: Connection, work: Callable[[Tx], T]) -> T:
        sql = Sql(connection)
        connection.begin_read()
        self._inside.unit = True
        try:
            return work(SqliteTx(sql, self._frames, self._vocabulary))
        finally:
            sql.end()
            connection.rollback()
            self._inside.unit = False

    def _serve(self) -> None:
        """The writer thread."""
        while True:
            item = self._queue.get()
            while isinstance(item, _Unit):
                item = self._commit_group(item)
            if item is not None:
                item.run(self._writer)
                if item.last:
                    return

    def _commit_group(self, first: _Unit[Any]) -> _Unit[Any] | _Chore[Any] | None:
        """Run ``first`` and the units behind it in one transaction; the chore that ended it."""
        group = [first]
        following: _Unit[Any] | _Chore[Any] | None = None
        deadline = time.monotonic() + GROUP_MS_MAX / 1000
        try:
            self._writer.begin()
            self._run_unit(first)
            while len(group) < GROUP_UNITS_MAX and time.monotonic() < deadline:
                try:
                    following = self._queue.get_nowait()
                except queue.Empty:
                    break
                if isinstance(following, _Chore):
                    break
                group.append(following)
                following = None
                self._run_unit(group[-1])
            self._writer.commit()
        except Exception as error:  # noqa: BLE001  # whatever it is, the next unit must be served
            self._undo()
            if len(group) == 1:
                first.fail(error)
            else:
                for unit in group:
                    self._run_alone(unit)
        for unit in group:
            unit.deliver()
        self._checkpoint_when_long()
        return following

    def _undo(self) -> None:
        # When even this fails, the transaction is still open and the next begin says so.
        with contextlib.suppress(OptChatError):
            self._writer.rollback()

    def _run_alone(self, unit: _Unit[Any]) -> None:
        try:
            self._writer.begin()
            self._run_unit(unit)
            self._writer.commit()
        except Exception as error:  # noqa: BLE001  # as above
            self._undo()
            unit.fail(error)

    def _run_unit(self, unit: _Unit[Any]) -> None:
        """Run one unit under a savepoint; its own failure is its outcome, and leaves nothing.

        Raises:
            StorageError: if the whole transaction is lost.
        """
        if not unit.is_wanted():
            return
        self._writer.run("savepoint unit")
        sql = Sql(self._writer)
        self._inside.unit = True
        try:
            # What a unit of work has loaded is not kept: it may yet be undone.
            tx = SqliteTx(sql, Frames(), Vocabulary())
            self._check_owner(tx)
            unit.run(tx)
            tx.flush()
            unit.placed()
        except BaseException as error:  # whatever it is belongs to who asked
            if not self._writer.in_transaction:  # SQLite rolled all of it back, as on a full disk
                raise self._lost(error) from error
            self._writer.run("rollback to unit")
            unit.fail(error)
        finally:
            sql.end()
            self._inside.unit = False
        self._writer.run("release unit")

    def _check_owner(self, tx: SqliteTx) -> None:
        if self.owner_epoch is not None and tx.meta.epoch() != self.owner_epoch:
            raise Fenced("Another coordinator owns the store now; nothing was written.")

    @staticmethod
    def _lost(error: BaseException) -> OptChatError:
        if isinstance(error, OptChatError):
            return error
        return StorageError("The transaction was lost; nothing of it is kept.")

    def _checkpoint_when_long(self) -> None:
        pages = self._writer.wal_pages
        if pages < CHECKPOINT_PAGES:
            return
        # A commit stands whether or not the log can be moved now.
        with contextlib.suppress(OptChatError):
            if pages < self._truncate_at:
                self._writer.checkpoint(truncate=False)
            elif self._writer.checkpoint(truncate=True):
                self._truncate_at = TRUNCATE_PAGES
            else:
                # A long read holds it up: not to be waited for again before the log has doubled.
                self._truncate_at = 2 * pages


def _checkpoint_and_close(connection: Connection) -> None:
    # A file that is not given back is only larger: nothing that should hold up an end.
    with contextlib.suppress(OptChatError):
        connection.give_back()
    connection.checkpoint(truncate=True)
    connection.close()
