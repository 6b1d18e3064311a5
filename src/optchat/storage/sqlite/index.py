"""The word index over records: kept in step with them, and made anew when its rules change.

FTS5 holds the words and no text. To take a record out, its text is derived again from its payload,
which is why a rule that changes (``RULES``) empties the index at once: what was put in under the
old rule could not be taken out any more. Documents from ``index_left`` are then indexed anew, a
piece at a time, and searches say how many are left.
"""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import msgspec

from optchat.core.records import RecordKind
from optchat.core.tree import SessionTree
from optchat.errors import IntegrityError
from optchat.refs import BlobHash
from optchat.storage.searched import RULES, searched_text
from optchat.storage.sqlite.blobs import SqliteBlobs
from optchat.storage.sqlite.codes import RECORD_KINDS, name_of
from optchat.storage.sqlite.connection import Connection, Row, Sql
from optchat.storage.sqlite.frames import drop_frames, left_of
from optchat.storage.sqlite.meta import SqliteMeta
from optchat.storage.words import indexed

DOCS_AT_ONCE = 500


def add(sql: Sql, texts: Iterable[tuple[int, bytes]]) -> None:
    """Index the words of records that were just sealed, as ``indexed`` gives them, by documents."""
    rows = [(doc, text) for doc, text in texts if text]
    if rows:
        _remove_at_once(sql, on=False)
    sql.many("insert into record_fts (rowid, text) values (?, ?)", rows)


def _remove_at_once(sql: Sql, *, on: bool) -> None:
    """Have removed words leave the index's pages at once, not with some later merge.

    Only where something is removed: it costs whatever is put down a third more. What was gathered
    before is not touched by the change, for FTS5 puts it down before each statement.
    """
    row = sql.one("select v from record_fts_config where k = 'secure-delete'")
    if bool(row[0] if row is not None else 0) != on:
        sql.run("insert into record_fts (record_fts, rank) values ('secure-delete', ?)", (int(on),))


def take_out(
    sql: Sql, blobs: SqliteBlobs, tree: SessionTree, start: int, end_exclusive: int
) -> None:
    """Leave no word of these records; to be called while they and their payloads are kept."""
    rows = sql.all(
        f"{_RECORDS} where r.generation_id = "
        "(select id from generation where session_id = ? and number = ?) "
        "and r.seq >= ? and r.seq < ?",
        (tree.session_id, tree.generation, start, end_exclusive),
    )
    left = left_of(sql)
    try:
        gone = [(doc, text) for doc, text in _texts(blobs, rows) if doc not in left]
    except IntegrityError:
        begin_again(sql)  # what its words were cannot be told any more
        gone = []
    if gone:
        _remove_at_once(sql, on=True)
    sql.many("insert into record_fts (record_fts, rowid, text) values ('delete', ?, ?)", gone)
    if rows:
        drop_frames(sql)


def empty(connection: Connection) -> None:
    """Empty the index, for ``fill`` to make it anew."""
    connection.begin()
    try:
        begin_again(Sql(connection))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def fill(connection: Connection) -> bool:
    """Index the next of the documents that are left; False when none are."""
    connection.begin()
    try:
        more = _index_some(Sql(connection))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return more


def begin_again(sql: Sql) -> None:
    """Empty the index of records, for ``fill``; that of summaries is small and is made at once."""
    for table in ("record_fts", "node_fts"):
        sql.run(f"insert into {table} ({table}) values ('delete-all')")
    summaries = sql.all(
        "select d.doc, n.text from node_doc as d cross join node as n on n.tree = d.tree "
        "and n.count = d.count and n.start = d.start and n.revision = d.revision"
    )
    sql.many(
        "insert into node_fts (rowid, text) values (?, ?)",
        ((doc, indexed(text)) for doc, text in summaries),
    )
    row = sql.one("select coalesce(max(doc) + 1, 0) from record")
    _set_left(sql, range(int(row[0]) if row is not None else 0))
    SqliteMeta(sql).put("index_version", RULES)


def is_current(sql: Sql) -> bool:
    """Whether the index was made by the rules of this program."""
    return SqliteMeta(sql).get("index_version") == RULES


def _index_some(sql: Sql) -> bool:
    left = left_of(sql)
    rows = sql.all(
        f"{_RECORDS} where r.doc >= ? and r.doc < ? order by r.doc limit ?",
        (left.start, left.stop, DOCS_AT_ONCE),
    )
    blobs = SqliteBlobs(sql)
    for row in rows:
        # One whose original is damaged has no words; the doctor tells of it.
        with contextlib.suppress(IntegrityError):
            sql.many("insert into record_fts (rowid, text) values (?, ?)", _texts(blobs, [row]))
    _set_left(sql, range(rows[-1][0] + 1 if rows else left.stop, left.stop))
    return bool(rows)


def _set_left(sql: Sql, left: range) -> None:
    SqliteMeta(sql).put("index_left", f"{left.start} {left.stop}")
    drop_frames(sql)


_RECORDS = (
    "select r.doc, r.kind, r.tool, r.attachments, b.hash "
    "from record as r left join blob as b on b.id = r.blob"
)
_decode_attachments = msgspec.json.Decoder(tuple[str, ...]).decode


def texts(sql: Sql, start: int, limit: int) -> list[tuple[int, str]]:
    """What the index was given for each document from ``start`` on, "" for one without words.

    Raises:
        IntegrityError: an original is damaged.
    """
    rows = sql.all(f"{_RECORDS} where r.doc >= ? order by r.doc limit ?", (start, limit))
    found = dict(_texts(SqliteBlobs(sql), rows))
    return [(row[0], found.get(row[0], "")) for row in rows]


def _texts(blobs: SqliteBlobs, rows: list[Row]) -> list[tuple[int, str]]:
    """What the index is given of each record that has words."""
    found: list[tuple[int, str]] = []
    for doc, kind, tool, attachments, payload in rows:
        if payload is None:
            raise IntegrityError(f"the payload of document {doc} is not there.")
        text = searched_text(
            RecordKind(name_of(RECORD_KINDS, kind)),
            tool,
            _decode_attachments(attachments) if attachments else (),
            b"".join(blobs.chunks(BlobHash(payload.hex()))),
        )
        if text:
            found.append((doc, indexed(text)))
    return found
