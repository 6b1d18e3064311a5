"""The database's own checks: pages, references between rows, and the search indexes."""

# ruff: noqa: S608  (the names of this package's own tables)

from __future__ import annotations

from zlib import crc32

import numpy as np

from optchat.errors import IntegrityError
from optchat.storage.ports import Damage, DamageKind
from optchat.storage.sqlite.connection import Connection, Sql
from optchat.storage.sqlite.frames import left_of
from optchat.storage.sqlite.index import DOCS_AT_ONCE, texts
from optchat.storage.words import stems

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
    """Whether each search index is whole, and that of records has exactly the words of its texts.

    FTS5 takes its check as an insertion, so that it needs the writer; nothing is written.
    """
    broken = [_of_index(connection, name) for name in INDEXES]
    found = tuple(damage for damage in broken if damage is not None)
    try:
        return found or _of_words(connection)
    except IntegrityError as error:
        return (Damage(DamageKind.INDEX, f"record_fts cannot be compared ({error.message})"),)


def _of_index(connection: Connection, name: str) -> Damage | None:
    connection.begin()
    try:
        connection.run(f"insert into {name} ({name}, rank) values ('integrity-check', 1)")
    except IntegrityError as error:
        return Damage(DamageKind.INDEX, f"{name} is not whole ({error.message})")
    finally:
        connection.rollback()
    return None


def _of_words(connection: Connection) -> tuple[Damage, ...]:
    """Compare a sum over the words of each document, as it is indexed and as its text has them."""
    sql = Sql(connection)
    row = sql.one("select coalesce(max(doc) + 1, 0) from record")
    count = int(row[0]) if row is not None else 0
    indexed = np.zeros(count, np.uint64)
    for (term,) in sql.all("select term from record_words"):
        told = sql.one("select group_concat(doc) from record_places where term = ?", (term,))
        docs = np.fromstring(told[0] if told is not None else "", np.int64, sep=",")
        if len(docs) and docs[-1] >= count:
            return (Damage(DamageKind.INDEX, "record_fts has words of no record"),)
        np.add.at(indexed, docs, np.uint64(crc32(term.encode())))
    wrong, at = 0, 0
    left = left_of(sql)
    while at < count:
        try:
            read = texts(sql, at, DOCS_AT_ONCE)
        except IntegrityError:
            return ()  # an original is damaged; it is told as such, and the index cannot be judged
        for doc, text in read:
            total = sum(crc32(stem.encode()) for stem in stems(text))
            wrong += doc not in left and total % 2**64 != int(indexed[doc])
        at = read[-1][0] + 1 if read else count
    if not wrong:
        return ()
    return (Damage(DamageKind.INDEX, f"record_fts has other words than {wrong} records"),)


def _names_index(text: str) -> bool:
    return any(name in text for name in INDEXES)
