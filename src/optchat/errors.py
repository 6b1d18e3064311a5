"""Every error that optchat raises on purpose, as one tree.

::

    OptChatError
    ├─ BadInput                      an argument, ref, cursor or config value that does not parse
    ├─ NotFound                      an unknown ref, or one the caller may not see: the same answer
    │  └─ Superseded                 what the caller could see was edited or rewound since (§12)
    ├─ NotReady                      MEMORY_NOT_READY: no covering view fits (§6)
    ├─ TurnTooLarge                  the live turn alone does not fit the model's window (§7)
    ├─ SnapshotExpired               the retention epoch or the policy moved on (§12)
    ├─ Conflict
    │  └─ EventConflict              one event key, two contents (§3)
    ├─ Fenced                        a lease, epoch or target moved on; the result is discarded (§9)
    ├─ IntegrityError                a blob, node or cover that must be there is not (§10)
    ├─ StorageError
    │  ├─ StoreBusy · DiskFull · SchemaTooNew · UnsafeSQLite
    ├─ CompactionError               a summary that could not be made within the bounds (§10)
    └─ CoordinatorError
       ├─ Unreachable · VersionMismatch · NotOwner

An error says what happened, what is unharmed, and in ``hint`` the next command to run. ``code`` is
stable and crosses the wire; ``retryable`` says whether the same call may succeed later.
"""

from __future__ import annotations

from typing import ClassVar


class OptChatError(Exception):
    """The base of every deliberate error."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str] = "optchat status"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint


class BadInput(OptChatError):
    """The input does not parse; nothing was read or changed."""

    code = "bad_input"
    status = 400


class NotFound(OptChatError):
    """There is nothing there that the caller may see.

    An unknown ref and another scope's ref give this with the same words, so that the answer tells
    nothing about what exists.
    """

    code = "not_found"
    status = 404
    default_hint = "optchat sessions"


class Superseded(NotFound):
    """An edit or a rewind has replaced what the caller could see there before (§12)."""

    code = "superseded"
    status = 410


class NotReady(OptChatError):
    """MEMORY_NOT_READY: the memory that must be shown does not fit or is not made yet (§6)."""

    code = "memory_not_ready"
    status = 503
    retryable = True


class TurnTooLarge(OptChatError):
    """The live turn alone exceeds the model's window; it was not sent (§7)."""

    code = "turn_too_large"
    status = 413


class SnapshotExpired(OptChatError):
    """The turn's snapshot was invalidated; the context must be built anew (§12)."""

    code = "snapshot_expired"
    status = 409
    retryable = True


class Conflict(OptChatError):
    """Two claims that cannot both hold; the stored one stands."""

    code = "conflict"
    status = 409


class EventConflict(Conflict):
    """The same event key arrived with different content; the sealed record is unchanged (§3)."""

    code = "event_conflict"
    default_hint = "optchat resync SESSION"


class Fenced(OptChatError):
    """A result came from a holder whose lease or epoch has moved on; it was discarded (§9)."""

    code = "fenced"
    status = 409


class IntegrityError(OptChatError):
    """Something that the store must hold is missing or damaged; the rest is served (§10)."""

    code = "integrity"
    status = 500
    default_hint = "optchat doctor"


class StorageError(OptChatError):
    """The store could not do it; the last committed state stands."""

    code = "storage"


class StoreBusy(StorageError):
    """Another process holds the store; the same call may succeed later."""

    code = "store_busy"
    status = 503
    retryable = True


class DiskFull(StorageError):
    """The disk is full or read-only; nothing of the failed write is kept."""

    code = "disk_full"
    status = 507
    default_hint = "free some space, then: optchat status"


class SchemaTooNew(StorageError):
    """The store was written by a newer optchat; it was not touched."""

    code = "schema_too_new"
    default_hint = "pip install --upgrade optchat"


class UnsafeSQLite(StorageError):
    """This SQLite library has the WAL-reset defect; the store was not opened."""

    code = "unsafe_sqlite"
    default_hint = "pip install --upgrade apsw"


class CompactionError(OptChatError):
    """No admissible summary came out of the bounded attempts; the sources are kept (§10)."""

    code = "compaction"


class CoordinatorError(OptChatError):
    """The coordinator could not be used; the store is unharmed."""

    code = "coordinator"
    status = 503
    default_hint = "optchat serve"


class Unreachable(CoordinatorError):
    """Nothing answers on the coordinator's socket."""

    code = "unreachable"
    retryable = True


class VersionMismatch(CoordinatorError):
    """Plugin or command and coordinator speak different protocol versions."""

    code = "version_mismatch"
    status = 426
    default_hint = "optchat stop && optchat serve"


class NotOwner(CoordinatorError):
    """Another coordinator owns this data directory, or took it over; this one stops."""

    code = "not_owner"
