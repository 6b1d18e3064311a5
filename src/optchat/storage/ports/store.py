"""A store, its transactions, and what the engine is given besides."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from optchat.refs import Csn
from optchat.storage.ports.history import Blobs, Membership, Records, Sessions, Turns
from optchat.storage.ports.shared import Folds, Publications, Search, Trees
from optchat.storage.ports.values import (
    Damage,
    Removal,
)
from optchat.storage.ports.work import Chunks, Jobs, Ledger

T = TypeVar("T")


class Clock(Protocol):
    """The one clock; leases are judged by it alone."""

    def now_ms(self) -> int: ...


class IdSource(Protocol):
    """Opaque unique ids, at most 40 ASCII characters of ``[a-z0-9-]``."""

    def new_id(self) -> str: ...


class Removals(Protocol):
    """What was forgotten, so that it stays so: hashes of a host's ids, a log of counts (§12)."""

    def bury(self, key: str) -> None:
        """Set a tombstone; again is a no-op. ``key`` is a hash and says nothing by itself."""
        ...

    def has_buried(self) -> bool:
        """Whether there is any tombstone."""
        ...

    def buried(self, keys: Collection[str]) -> frozenset[str]:
        """Those of ``keys`` that have a tombstone."""
        ...

    def log(self, removal: Removal) -> None: ...
    def logged(self, limit: int) -> tuple[Removal, ...]:
        """The last removals, newest first."""
        ...


class Meta(Protocol):
    """The store's own counters."""

    def csn(self) -> Csn:
        """The last commit that changed what can be read."""
        ...

    def next_csn(self) -> Csn:
        """Take the next number; the same one for the whole transaction."""
        ...

    def epoch(self) -> int: ...
    def raise_epoch(self) -> int:
        """A new owner of the data directory; a write under an older epoch is fenced."""
        ...

    def get(self, key: str) -> str | None: ...
    def put(self, key: str, value: str) -> None: ...


class Tx(Protocol):
    """One transaction, as families of verbs."""

    @property
    def sessions(self) -> Sessions: ...
    @property
    def records(self) -> Records: ...
    @property
    def membership(self) -> Membership: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def blobs(self) -> Blobs: ...
    @property
    def trees(self) -> Trees: ...
    @property
    def publications(self) -> Publications: ...
    @property
    def folds(self) -> Folds: ...
    @property
    def jobs(self) -> Jobs: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def chunks(self) -> Chunks: ...
    @property
    def search(self) -> Search: ...
    @property
    def removals(self) -> Removals: ...
    @property
    def meta(self) -> Meta: ...


class Store(Protocol):
    """A transactional store. Both calls may run ``work`` again; neither is held open."""

    def write(self, work: Callable[[Tx], T], committing: Callable[[], None] | None = None) -> T:
        """Run ``work`` alone, durably: all of it is there after return, or nothing after a raise.

        ``committing`` is called when nothing is left but to make it durable, which takes no part of
        the interpreter; not if ``work`` raised.

        Raises:
            StoreBusy, DiskFull, Fenced: nothing of ``work`` is kept.
        """
        ...

    def read(self, work: Callable[[Tx], T]) -> T:
        """Run ``work`` over one consistent state; writing in it is a StorageError.

        What ``work`` returns must not read on: an iterator of the transaction ends with it.
        """
        ...

    def damage(self) -> tuple[Damage, ...]:
        """What the store's own checks find wrong, below all meaning; reads everything."""
        ...

    def rebuild_search(self) -> None:
        """Make the search indexes anew from what is kept; changes nothing else."""
        ...

    def complete_search(self) -> None:
        """Index what a change of the rules has left out, a piece at a time; else a no-op.

        Others may read and write meanwhile; what they find is counted as not indexed yet.
        """
        ...

    def scrub(self) -> bool:
        """Leave no byte of what was removed behind: in the file, its log, or older copies of ours.

        Returns:
            False when a reader of an older state held it up; to be tried again.

        Raises:
            DiskFull: there is no room to rewrite the file; the store is as it was.
        """
        ...

    def close(self) -> None: ...
