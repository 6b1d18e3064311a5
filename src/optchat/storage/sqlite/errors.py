"""SQLite's errors as ours: what happened, and that nothing of it was kept."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from optchat.errors import BadInput, Conflict, DiskFull, IntegrityError, StorageError, StoreBusy


class _Ours:
    """Every error of SQLite leaves this block as one of ours.

    A class instead of a generator, and one object, because it surrounds every statement.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, apsw.Error):
            raise _mapped(error) from error
        if isinstance(error, UnicodeEncodeError):
            raise BadInput("A text holds half of a surrogate pair; nothing was kept.") from error


OURS = _Ours()

_BY_TYPE: tuple[tuple[type[apsw.Error], Callable[[apsw.Error], Exception]], ...] = (
    (apsw.BusyError, lambda _: StoreBusy("Another process holds the store.")),
    (apsw.LockedError, lambda _: StoreBusy("Another connection holds the store.")),
    (apsw.FullError, lambda _: DiskFull("The disk is full; nothing of the write is kept.")),
    (apsw.CorruptError, lambda e: IntegrityError(f"The store is damaged: {e}.")),
    (apsw.NotADBError, lambda e: IntegrityError(f"The store is not a database: {e}.")),
)


def _mapped(error: apsw.Error) -> Exception:
    for kind, ours in _BY_TYPE:
        if isinstance(error, kind):
            return ours(error)
    if isinstance(error, apsw.ConstraintError):
        code = getattr(error, "extendedresult", 0)
        if code == apsw.SQLITE_CONSTRAINT_FOREIGNKEY:
            return IntegrityError("Something that is referred to is not kept; nothing was written.")
        if code in (apsw.SQLITE_CONSTRAINT_UNIQUE, apsw.SQLITE_CONSTRAINT_PRIMARYKEY):
            return Conflict(f"Two rows claim the same place, the stored one stands: {error}.")
    if isinstance(error, apsw.ReadOnlyError):
        return DiskFull("The store is read-only; nothing was written.")
    return StorageError(f"The store could not do it: {error}.")
