"""The reference store: dictionaries under one lock, and a log to undo a failed unit of work.

It does everything in the plainest way, by looking through all there is, so that it can be read as
the meaning of the port. The property tests compare the SQLite store with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from optchat.errors import Fenced, StorageError
from optchat.storage.memory.folds import MemoryFolds
from optchat.storage.memory.ledger import MemoryChunks, MemoryLedger
from optchat.storage.memory.membership import MemoryMembership
from optchat.storage.memory.queue import MemoryJobs, MemoryMeta, MemoryRemovals
from optchat.storage.memory.records import MemoryRecords
from optchat.storage.memory.search import MemorySearch
from optchat.storage.memory.sessions import MemorySessions
from optchat.storage.memory.sharing import MemoryPublications
from optchat.storage.memory.state import Changes, Tables
from optchat.storage.memory.trees import MemoryBlobs, MemoryTrees
from optchat.storage.memory.turns import MemoryTurns
from optchat.storage.ports import Damage, Tx

T = TypeVar("T")


class MemoryTx:
    """One transaction, as families of verbs."""

    def __init__(self, changes: Changes) -> None:
        self.sessions = MemorySessions(changes)
        self.records = MemoryRecords(changes)
        self.membership = MemoryMembership(changes)
        self.turns = MemoryTurns(changes)
        self.blobs = MemoryBlobs(changes)
        self.trees = MemoryTrees(changes)
        self.publications = MemoryPublications(changes)
        self.folds = MemoryFolds(changes)
        self.jobs = MemoryJobs(changes)
        self.ledger = MemoryLedger(changes)
        self.chunks = MemoryChunks(changes)
        self.search = MemorySearch(changes)
        self.removals = MemoryRemovals(changes)
        self.meta = MemoryMeta(changes)


class MemoryStore:
    """Everything is gone with the object. ``owner_epoch`` fences as it does for SQLite."""

    def __init__(self) -> None:
        self.owner_epoch: int | None = None
        self._tables = Tables()
        self._lock = threading.Lock()
        self._inside: int | None = None
        self._closed = False

    def write(self, work: Callable[[Tx], T], committing: Callable[[], None] | None = None) -> T:
        found = self._run(work, writable=True)
        if committing is not None:
            committing()
        return found

    def read(self, work: Callable[[Tx], T]) -> T:
        return self._run(work, writable=False)

    def scrub(self) -> bool:
        """There is no file; what was removed is gone."""
        return True

    def damage(self) -> tuple[Damage, ...]:
        """Nothing of it lies on a disk."""
        return ()

    def rebuild_search(self) -> None:
        """Search looks through the texts themselves."""

    def complete_search(self) -> None:
        """As ``rebuild_search``."""

    def close(self) -> None:
        self._closed = True

    def _run(self, work: Callable[[Tx], T], *, writable: bool) -> T:
        if self._inside == threading.get_ident():
            raise StorageError("A unit of work cannot open another one.")
        with self._lock:
            if self._closed:
                raise StorageError("The store is closed.")
            self._inside = threading.get_ident()
            changes = Changes(self._tables, writable=writable)
            try:
                tx = MemoryTx(changes)
                if writable:
                    self._check_owner(tx)
                return work(tx)
            except BaseException:
                changes.take_back()
                raise
            finally:
                changes.end()
                self._inside = None

    def _check_owner(self, tx: MemoryTx) -> None:
        if self.owner_epoch is not None and tx.meta.epoch() != self.owner_epoch:
            raise Fenced("Another coordinator owns the store now; nothing was written.")
