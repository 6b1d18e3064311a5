"""The one way to the store's file: opening, pragmas and statements.

Durability is WAL with ``synchronous=FULL``: an acknowledged commit survives a loss of power. Only
the store's writer thread holds a writable connection, and it alone checkpoints. The database files
are never opened by anything else in the process, because closing such a file drops SQLite's locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

from optchat.errors import StorageError, StoreBusy, UnsafeSQLite
from optchat.storage.sqlite.errors import OURS

Value = None | int | float | str | bytes
Args = tuple[Value, ...] | dict[str, Value]
Row = tuple[Any, ...]

APPLICATION_ID = 0x6F707463  # "optc": what `file` and a second tool can tell the store by
SQLITE_MIN = (3, 51, 3)
BUSY_TIMEOUT_MS = 5_000
CHECKPOINT_WAIT_MS = 1_000
WRITER_CACHE_KIB = 16 * 1024
READER_CACHE_KIB = 2 * 1024
"""A reader reads a common word's places once, and the system keeps the file's pages for all."""
STATEMENTS_KEPT = 400
"""Each use moves a statement to the front: of few, what is used once a transaction would fall out
behind what is used for each session, and be parsed again."""
LOG_BYTES_KEPT = 16 * 1024 * 1024
"""A log that had to grow, because something read an old state for long, shrinks to this again."""


def library_version() -> str:
    """The version of the SQLite that apsw carries."""
    return apsw.sqlite_lib_version()


def check_library(version: str) -> None:
    """Refuse an SQLite with the WAL-reset defect, which can corrupt a store in use.

    Raises:
        UnsafeSQLite: below 3.51.3.
    """
    if tuple(int(part) for part in version.split(".")[:3]) < SQLITE_MIN:
        raise UnsafeSQLite(
            f"SQLite {version} can corrupt a database in WAL mode; the store was not opened."
        )


def make_private(path: Path) -> None:
    """Create the store's folder (0700) and its empty file (0600) where they are missing.

    SQLite gives its companion files the mode of the database file. The file is opened only when it
    is new, so that no lock of a connection in this process can be dropped; then its name and its
    folder's are synced, because SQLite syncs what is in the folder and not the folder's own name.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        else:
            sync_path(path.parent)
            sync_path(path.parent.parent)
        path.chmod(0o600)
    except OSError as error:
        raise StorageError(f"The store at {path} cannot be made: {error.strerror}.") from error


def sync_path(path: Path) -> None:
    """Make a file's content, or the names in a folder, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Connection:
    """One SQLite connection; used by one thread at a time.

    ``statements`` and ``commits`` count for tests and benchmarks. A statement over many rows is
    one, whether they are bound one after the other or come from JSON; a commit that changed nothing
    is none, since it syncs nothing. ``wal_pages`` is the log's length after the last commit.
    """

    def __init__(self, path: Path, *, readonly: bool) -> None:
        check_library(library_version())
        self.statements = 0
        self.commits = 0
        self.wal_pages = 0
        flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE
        with OURS:
            # Any, because apsw's stubs name collections.abc.Buffer, which Python 3.11 has not.
            self._db: Any = apsw.Connection(
                str(path), flags=flags, statementcachesize=STATEMENTS_KEPT
            )
            self._db.set_busy_timeout(BUSY_TIMEOUT_MS)
            for option, on in (
                (apsw.SQLITE_DBCONFIG_DQS_DML, 0),
                (apsw.SQLITE_DBCONFIG_DQS_DDL, 0),
                (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
                (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
                # Else each new value has a statement planned anew, which costs more than it does.
                (apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1),
            ):
                self._db.config(option, on)
            self._db.pragma("foreign_keys", 1)
            self._db.pragma("temp_store", 2)  # memory: no payload byte in a temporary file
            self._db.pragma("cache_size", -(READER_CACHE_KIB if readonly else WRITER_CACHE_KIB))
            if readonly:
                self._db.pragma("query_only", 1)
            else:
                self._claim()
        self._changes_at_begin = 0

    def _claim(self) -> None:
        """Set what the file and its one writer need, unless it belongs to another program."""
        application_id = self._db.pragma("application_id")
        if application_id == 0 and self._db.pragma("page_count") == 0:
            self._db.pragma("auto_vacuum", 2)  # incremental, and to be said before anything else
            self._db.pragma("application_id", APPLICATION_ID)
        elif application_id != APPLICATION_ID:
            raise StorageError("The file is a database of another program; it was not touched.")
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", 2)  # FULL
        self._db.pragma("secure_delete", 1)
        self._db.pragma("journal_size_limit", LOG_BYTES_KEPT)
        self._db.set_wal_hook(self._note_wal)  # takes the place of the automatic checkpoint

    def _note_wal(self, _db: object, _name: str, pages: int) -> int:
        self.wal_pages = pages
        return apsw.SQLITE_OK

    def all(self, sql: str, args: Args = ()) -> list[Row]:
        """Every row of one statement."""
        self.statements += 1
        with OURS:
            return self._db.execute(sql, args).fetchall()

    def one(self, sql: str, args: Args = ()) -> Row | None:
        """The first row, if there is one."""
        self.statements += 1
        with OURS:
            return self._db.execute(sql, args).fetchone()

    def run(self, sql: str, args: Args = ()) -> int:
        """Run a statement that writes; the number of rows it changed."""
        self.statements += 1
        with OURS:
            self._db.execute(sql, args).fetchall()
            return self._db.changes()

    def many(self, sql: str, rows: Iterable[Args]) -> None:
        """Run one writing statement for each of ``rows``."""
        held = list(rows)
        self.statements += bool(held)
        with OURS:
            self._db.executemany(sql, held).fetchall()

    def script(self, sql: str) -> None:
        """Run several statements, for migrations."""
        self.statements += 1
        with OURS:
            self._db.execute(sql).fetchall()

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    @property
    def schema_version(self) -> int:
        with OURS:
            return int(self._db.pragma("user_version"))

    def set_schema_version(self, version: int) -> None:
        with OURS:
            self._db.pragma("user_version", version)

    def begin(self) -> None:
        """Take the write lock at once, so that a transaction never fails half-way for it."""
        self._changes_at_begin = self._db.total_changes()
        self.run("begin immediate")

    def begin_read(self) -> None:
        self.run("begin")

    def commit(self) -> None:
        """Make it durable: after this returns, a loss of power does not take it back."""
        self.run("commit")
        if self._db.total_changes() != self._changes_at_begin:
            self.commits += 1

    def rollback(self) -> None:
        """Undo the transaction, if one is open: a full disk may have ended it already."""
        if self._db.in_transaction:
            self.run("rollback")

    def checkpoint(self, *, truncate: bool) -> bool:
        """Move the log into the database; with ``truncate``, leave an empty log behind.

        Returns:
            True when all of it was moved. A truncating checkpoint waits a second for readers of
            older states; readers that start meanwhile need no log and do not hold it up.
        """
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if truncate else apsw.SQLITE_CHECKPOINT_PASSIVE
        self._db.set_busy_timeout(CHECKPOINT_WAIT_MS)
        try:
            with OURS:
                pages, moved = self._db.wal_checkpoint(mode=mode)
        except StoreBusy:
            return False
        finally:
            self._db.set_busy_timeout(BUSY_TIMEOUT_MS)
        if truncate:
            self.wal_pages = pages
        return pages == moved

    def give_back(self) -> None:
        """Cut pages that nothing uses off the file, the last ones moved into their places.

        A full-text index that merges its pieces, as after an import, leaves some; how many is
        bounded by the size of a piece.
        """
        with OURS:
            self._db.execute("pragma incremental_vacuum").fetchall()

    def scrub(self, folder: Path) -> bool:
        """Rewrite the whole file and empty the log; ``folder`` takes the copy that is made for it.

        ``secure_delete`` overwrites rows where they are, but a page whose rows were moved to its
        neighbours keeps their bytes between its cells: only pages that are written anew do not.

        Returns:
            As ``checkpoint``.
        """
        with OURS:
            self._db.pragma("temp_store_directory", str(folder))
            self._db.pragma("temp_store", 1)  # a file, nameless, beside the store and as private
            try:
                self._db.execute("vacuum").fetchall()
            finally:
                self._db.pragma("temp_store", 2)
        return self.checkpoint(truncate=True)

    def vacuum_into(self, target: Path) -> None:
        """Write a whole, consistent copy to ``target``, an empty or missing file."""
        with OURS:
            self._db.execute("vacuum into ?", (str(target),)).fetchall()

    def close(self) -> None:
        with OURS:
            self._db.close()


class Sql:
    """The statements of one transaction; refuses them once it is over."""

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection

    def all(self, sql: str, args: Args = ()) -> list[Row]:
        return self._open().all(sql, args)

    def one(self, sql: str, args: Args = ()) -> Row | None:
        return self._open().one(sql, args)

    def run(self, sql: str, args: Args = ()) -> int:
        return self._open().run(sql, args)

    def many(self, sql: str, rows: Iterable[Args]) -> None:
        self._open().many(sql, rows)

    def end(self) -> None:
        self._connection = None

    def _open(self) -> Connection:
        if self._connection is None:
            raise StorageError("The transaction is over; read inside the unit of work.")
        return self._connection
