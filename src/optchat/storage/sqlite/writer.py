"""The thread that alone writes: units of work in groups, each group with one commit.

Units that wait are run one after another, each under a savepoint, and committed together, so that
one sync serves all of them; a result or an exception is given back only after that commit. If the
commit fails, each unit is run again alone: a unit may be run again by contract.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

from optchat.errors import Fenced, OptChatError, StorageError
from optchat.storage.ports import Tx
from optchat.storage.sqlite.connection import Connection, Sql
from optchat.storage.sqlite.frames import Frames
from optchat.storage.sqlite.transaction import SqliteTx
from optchat.storage.sqlite.vocabulary import Vocabulary

T = TypeVar("T")

GROUP_UNITS_MAX = 64
GROUP_MS_MAX = 10
"""Nobody waits longer than this for other units to join the commit."""

CHECKPOINT_PAGES = 3_000
TRUNCATE_PAGES = 4_000
"""12 MiB of log are moved without waiting for anybody; at 16 MiB readers are waited for."""


class Inside(threading.local):
    """Whether a thread is inside a unit of work, which cannot open another one."""

    unit = False

    def check(self) -> None:
        """Refuse what cannot be done from inside one.

        Raises:
            StorageError: the thread is inside.
        """
        if self.unit:
            raise StorageError("A unit of work cannot open another one.")


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


class Writer:
    """Owns the only writable connection and every checkpoint.

    ``owner_epoch``, once set, fences what is written: it fails with ``Fenced`` when somebody has
    raised the stored epoch since.
    """

    def __init__(self, connection: Connection, inside: Inside) -> None:
        self.connection = connection
        self.owner_epoch: int | None = None
        self.truncate_at = TRUNCATE_PAGES
        self._inside = inside
        self._queue: queue.SimpleQueue[_Unit[Any] | _Chore[Any]] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="optchat-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Tx], T], committing: Callable[[], None] | None) -> Future[T]:
        """Have a unit of work run; the future is done after the commit, or the failure."""
        self._inside.check()
        unit = _Unit(work, committing)
        self._send(unit)
        return unit.future

    def do(self, work: Callable[[Connection], T]) -> T:
        """What ``work`` returns of the connection, outside of a transaction."""
        self._inside.check()
        chore = _Chore(work)
        self._send(chore)
        return chore.future.result()

    def close(self) -> None:
        """Finish what is queued, checkpoint and close the connection."""
        chore = _Chore(_checkpoint_and_close, last=True)
        with self._closing:
            self._closed = True
            self._queue.put(chore)
        self._thread.join()
        chore.future.result()

    def _send(self, item: _Unit[Any] | _Chore[Any]) -> None:
        with self._closing:
            if self._closed:
                raise StorageError("The store is closed.")
            self._queue.put(item)

    def _serve(self) -> None:
        """The writer thread."""
        while True:
            item = self._queue.get()
            while isinstance(item, _Unit):
                item = self._commit_group(item)
            if item is not None:
                item.run(self.connection)
                if item.last:
                    return

    def _commit_group(self, first: _Unit[Any]) -> _Unit[Any] | _Chore[Any] | None:
        """Run ``first`` and the units behind it in one transaction; the chore that ended it."""
        group = [first]
        following: _Unit[Any] | _Chore[Any] | None = None
        deadline = time.monotonic() + GROUP_MS_MAX / 1000
        try:
            self.connection.begin()
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
            self.connection.commit()
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
            self.connection.rollback()

    def _run_alone(self, unit: _Unit[Any]) -> None:
        try:
            self.connection.begin()
            self._run_unit(unit)
            self.connection.commit()
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
        self.connection.run("savepoint unit")
        sql = Sql(self.connection)
        self._inside.unit = True
        try:
            # What a unit of work has loaded is not kept: it may yet be undone.
            tx = SqliteTx(sql, Frames(), Vocabulary())
            self._check_owner(tx)
            unit.run(tx)
            tx.flush()
            unit.placed()
        except BaseException as error:  # whatever it is belongs to who asked
            # SQLite may have rolled all of it back, as on a full disk.
            if not self.connection.in_transaction:
                raise self._lost(error) from error
            self.connection.run("rollback to unit")
            unit.fail(error)
        finally:
            sql.end()
            self._inside.unit = False
        self.connection.run("release unit")

    def _check_owner(self, tx: SqliteTx) -> None:
        if self.owner_epoch is not None and tx.meta.epoch() != self.owner_epoch:
            raise Fenced("Another coordinator owns the store now; nothing was written.")

    @staticmethod
    def _lost(error: BaseException) -> OptChatError:
        if isinstance(error, OptChatError):
            return error
        return StorageError("The transaction was lost; nothing of it is kept.")

    def _checkpoint_when_long(self) -> None:
        pages = self.connection.wal_pages
        if pages < CHECKPOINT_PAGES:
            return
        # A commit stands whether or not the log can be moved now.
        with contextlib.suppress(OptChatError):
            if pages < self.truncate_at:
                self.connection.checkpoint(truncate=False)
            elif self.connection.checkpoint(truncate=True):
                self.truncate_at = TRUNCATE_PAGES
            else:
                # A long read holds it up: not to be waited for again before the log has doubled.
                self.truncate_at = 2 * pages


def _checkpoint_and_close(connection: Connection) -> None:
    # A file that is not given back is only larger: nothing that should hold up an end.
    with contextlib.suppress(OptChatError):
        connection.give_back()
    connection.checkpoint(truncate=True)
    connection.close()
