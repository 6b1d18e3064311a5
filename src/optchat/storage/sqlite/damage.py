"""The database's own checks: pages, references between rows, and the search indexes."""

# ruff: noqa: S608  (the names of this package's own tables)

from __future__ import annotations

from optchat.errors import IntegrityError
from optchat.storage.ports import Damage, DamageKind
from optchat.storage.sqlite.connection import Connection

INDEXES = ("record_fts", "node_fts")
FINDINGS_MAX = 20


def file_damage(connection: Connection) -> tuple[Damage, ...]:
    """What is wrong with the pages and with references between rows; reads the whole file."""
    try:
        found = [str(r[0]) for r in connection.all(f"pragma integrity_check({FINDINGS_MAX})")]
        lost = connection.all("pragma foreign_key_check")
    except IntegrityError as error:
        return (Damage(DamageKind.PAGES, error.message),)
    pages = [
        Damage(DamageKind.INDEX if _names_index(text) else DamageKind.PAGES, text)
        for text in found
        if text != "ok"
    ]
    tables = sorted({(str(child), str(parent)) for child, _, parent, _ in lost})
    references = [
        Damage(DamageKind.REFERENCES, f"rows of {child} refer to rows of {parent} that are gone")
        for child, parent in tables
    ]
    return (*pages, *references)


def index_damage(connection: Connection) -> tuple[Damage, ...]:
    """Whether each search index holds exactly the words of the texts that it is over.

    FTS5 takes this check as an insertion, so that it needs the writer; nothing is written.
    """
    return tuple(found for name in INDEXES if (found := _of_index(connection, name)) is not None)


def _of_index(connection: Connection, name: str) -> Damage | None:
    connection.begin()
    try:
        connection.run(f"insert into {name} ({name}, rank) values ('integrity-check', 1)")
    except IntegrityError as error:
        return Damage(DamageKind.INDEX, f"{name} does not match its texts ({error.message})")
    finally:
        connection.rollback()
    return None


def rebuild_indexes(connection: Connection) -> None:
    """Make every search index anew from the texts that it is over."""
    connection.begin()
    try:
        for name in INDEXES:
            connection.run(f"insert into {name} ({name}) values ('rebuild')")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _names_index(text: str) -> bool:
    return any(name in text for name in INDEXES)
