"""Bringing a store to this version's schema, one step a transaction.

A step and its record commit together with the new ``user_version``, so a crash leaves the schema
before or after a step, never between. A store that holds something is copied first. A step is never
edited once released; the next one changes what it made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from optchat.errors import SchemaTooNew, StorageError
from optchat.storage.sqlite.connection import Connection, sync_path

Migration = Callable[[Connection], None]


def m0001_initial(connection: Connection) -> None:
    """Everything, as of the first release."""
    folder = resources.files("optchat.storage.sqlite")
    connection.script(folder.joinpath("m0001_initial.sql").read_text(encoding="utf-8"))


MIGRATIONS: tuple[Migration, ...] = (m0001_initial,)


def migrate(
    connection: Connection,
    path: Path,
    *,
    now_ms: int,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> None:
    """Apply the steps that ``path`` has not had, after a backup beside it.

    Raises:
        SchemaTooNew: if a newer version has written it; it is not touched.
        StorageError: if the backup or a step fails; the state before the step stands.
    """
    version = connection.schema_version
    if version > len(migrations):
        raise SchemaTooNew(
            f"The store has schema {version}, this optchat knows {len(migrations)}; "
            "it was not touched."
        )
    if 0 < version < len(migrations):
        _back_up(connection, backup_path(path, version))
    for number in range(version + 1, len(migrations) + 1):
        step = migrations[number - 1]
        connection.begin()
        try:
            connection.script(
                "create table if not exists migration ("
                "number integer primary key, name text not null, applied_ms integer not null"
                ") strict"
            )
            step(connection)
            connection.run(
                "insert into migration (number, name, applied_ms) values (?, ?, ?)",
                (number, step.__name__, now_ms),
            )
            connection.set_schema_version(number)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise


def backup_path(path: Path, version: int) -> Path:
    """Where the copy of a store at schema ``version`` goes."""
    return path.with_name(f"{path.name}.schema{version}.bak")


def backups(path: Path) -> tuple[Path, ...]:
    """The copies beside a store; they hold what has been removed from it since."""
    return tuple(sorted(path.parent.glob(f"{path.name}.schema*.bak")))


def _back_up(connection: Connection, target: Path) -> None:
    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection.vacuum_into(partial)
        sync_path(partial)
        partial.replace(target)
        sync_path(target.parent)
    except OSError as error:
        raise StorageError(f"The backup {target} cannot be made: {error.strerror}.") from error
