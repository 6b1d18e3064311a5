"""The SQLite store: one writer, a few readers, and what is done to the file as a whole."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from optchat.errors import StorageError
from optchat.storage.ports import Clock, Damage, Tx
from optchat.storage.sqlite import index
from optchat.storage.sqlite.connection import Connection, Sql, make_private
from optchat.storage.sqlite.damage import file_damage, index_damage
from optchat.storage.sqlite.frames import Frames
from optchat.storage.sqlite.migrations import backups, migrate
from optchat.storage.sqlite.transaction import SqliteTx
from optchat.storage.sqlite.vocabulary import Vocabulary
from optchat.storage.sqlite.writer import Inside, Writer

T = TypeVar("T")

READERS_MAX = 4


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


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
        self._closing = threading.Lock()
        self._closed = False
        self._inside = Inside()
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        self._readers: list[Connection] = []
        self._slots = threading.Semaphore(READERS_MAX)
        self._frames = Frames()
        self._vocabulary = Vocabulary()
        make_private(path)
        connection = Connection(path, readonly=False)
        try:
            migrate(connection, path, now_ms=(clock or SystemClock()).now_ms())
            if not index.is_current(Sql(connection)):
                index.empty(connection)
        except BaseException:
            connection.close()
            raise
        self._writer = Writer(connection, self._inside)

    @property
    def owner_epoch(self) -> int | None:
        return self._writer.owner_epoch

    @owner_epoch.setter
    def owner_epoch(self, epoch: int | None) -> None:
        self._writer.owner_epoch = epoch

    @property
    def statements(self) -> int:
        """Statements run so far, by the writer and the readers."""
        return self._writer.connection.statements + sum(c.statements for c in tuple(self._readers))

    @property
    def commits(self) -> int:
        """Commits so far that changed something, each with its sync."""
        return self._writer.connection.commits

    def write(self, work: Callable[[Tx], T], committing: Callable[[], None] | None = None) -> T:
        return self.submit(work, committing).result()

    def submit(
        self, work: Callable[[Tx], T], committing: Callable[[], None] | None = None
    ) -> Future[T]:
        """``write`` without waiting: the future is done after the commit, or the failure."""
        return self._writer.submit(work, committing)

    def read(self, work: Callable[[Tx], T]) -> T:
        self._inside.check()
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
        return self._writer.do(lambda connection: connection.scrub(self.path.parent))

    def checkpoint(self) -> bool:
        """Move the log into the database and empty it.

        Returns:
            False when a reader of an older state held it up; to be tried again.
        """
        return self._writer.do(lambda connection: connection.checkpoint(truncate=True))

    def damage(self) -> tuple[Damage, ...]:
        # Not a reader of the pool: FTS5's part of the check believes what its connection cached of
        # an index, and would call it corrupt because others have written since.
        connection = Connection(self.path, readonly=True)
        try:
            found = file_damage(connection)
        finally:
            connection.close()
        return (*found, *self._writer.do(index_damage))

    def rebuild_search(self) -> None:
        self._writer.do(index.empty)
        self.complete_search()

    def complete_search(self) -> None:
        while self._writer.do(index.fill):
            pass

    def drop_backups(self) -> int:
        """Remove the copies that migrations made, for they hold what was forgotten since."""
        found = backups(self.path)
        for backup in found:
            backup.unlink(missing_ok=True)
        return len(found)

    def close(self) -> None:
        """Finish what is queued, let readers end, checkpoint and close. Again is a no-op."""
        self._inside.check()
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
            self._writer.close()

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
