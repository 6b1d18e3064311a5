"""Sealed records as rows."""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from optchat.core.records import Record, RecordKind
from optchat.core.tree import SessionTree
from optchat.errors import IntegrityError
from optchat.refs import BlobHash, SessionId
from optchat.storage.sealing import check_consecutive
from optchat.storage.sqlite import index
from optchat.storage.sqlite.blobs import SqliteBlobs
from optchat.storage.sqlite.codes import (
    RECORD_KINDS,
    STATUSES,
    code,
    hash_text,
    hashes_bytes,
    name_of,
)
from optchat.storage.sqlite.connection import Args, Row, Sql
from optchat.storage.sqlite.frames import drop_frames
from optchat.storage.sqlite.meta import SqliteMeta
from optchat.wire import OWN_TOOLS

_RECORD = (
    "r.seq, r.event_key, r.turn_id, r.message_id, r.kind, "
    "r.host_time_ms + ifnull(p.host_time_ms, 0), r.sealed_ms + ifnull(p.sealed_ms, 0), b.hash, "
    "b.size, p.project_id, r.tool, r.pair, r.status, p.worktree, p.observed_commit, r.truncated, "
    "r.attachments"
)
_SELECT = (
    f"select {_RECORD} from record as r left join blob as b on b.id = r.blob "
    "left join place as p on p.generation_id = r.generation_id and p.number = r.place"
)
GENERATION = "(select id from generation where session_id = ? and number = ?)"
"""The number in this file of the generation that a session and its number name."""


_DAY_MS = 86_400_000
_Where = tuple[str, str | None, str | None]


class _Place(NamedTuple):
    """A place of a generation, and the times that those of its records are counted from."""

    number: int
    host_time_ms: int
    sealed_ms: int


def _where(record: Record) -> _Where:
    return record.project_id, record.worktree, record.commit


class SqliteRecords:
    """Every check of a verb comes before its first write, so a caught error leaves nothing."""

    def __init__(self, sql: Sql, blobs: SqliteBlobs) -> None:
        self._sql = sql
        self._blobs = blobs
        self._last_doc: int | None = None
        self._untaken = 0  # numbers that were given without asking the counter
        self._unindexed: list[tuple[int, bytes]] = []

    def append(self, records: Sequence[Record], words: Sequence[bytes]) -> None:
        if not records:
            return
        tree, start = SessionTree(records[0].session_id, records[0].generation), records[0].seq
        row = self._sql.one(
            "select id, length from generation where session_id = ? and number = ?",
            (tree.session_id, tree.generation),
        )
        generation_id, length = row if row is not None else (0, None)
        check_consecutive(records, length)
        blobs = self._blobs.ids(record.payload for record in records)
        if any(record.payload not in blobs for record in records):
            raise IntegrityError("a record's payload is not kept; nothing was sealed.")
        places = self._places(generation_id, records)
        keys = hashes_bytes([r.event_key for r in records])
        pairs = dict.fromkeys(r.pair for r in records if r.pair)
        short = dict(zip(pairs, hashes_bytes(list(pairs)), strict=True))
        following = self._next_docs(len(records))
        rows: list[Args] = []
        where, place = _where(records[0]), places[_where(records[0])]
        for doc, (r, key) in enumerate(zip(records, keys, strict=True), following):
            if where != (r.project_id, r.worktree, r.commit):
                where, place = _where(r), places[_where(r)]
            rows.append(
                (
                    doc,
                    generation_id,
                    r.seq,
                    key,
                    r.turn_id,
                    r.message_id,
                    code(RECORD_KINDS, r.kind),
                    r.host_time_ms - place.host_time_ms,
                    r.sealed_ms - place.sealed_ms,
                    blobs[r.payload],
                    place.number,
                    r.tool,
                    short[r.pair] if r.pair else r.pair,
                    r.status and code(STATUSES, r.status),
                    r.truncated,
                    msgspec.json.encode(r.attachments).decode() if r.attachments else None,
                )
            )
        self._sql.many(
            "insert into record (doc, generation_id, seq, event_key, turn_id, message_id, kind, "
            "host_time_ms, sealed_ms, blob, place, tool, pair, status, truncated, attachments) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        self._sql.run(
            "update generation set length = ? where id = ?", (start + len(records), generation_id)
        )
        self._unindexed += enumerate(words, following)

    def flush(self) -> None:
        """Index what was appended; the transaction ends, or the index is asked.

        All at once, for FTS5 puts down what it has gathered at each savepoint, and a statement of
        many rows is one.
        """
        index.add(self._sql, self._unindexed)
        self._unindexed = []
        if self._untaken:
            SqliteMeta(self._sql).take_docs(self._untaken)
            self._untaken = 0

    def _next_docs(self, count: int) -> int:
        """The first of ``count`` numbers in a row; the counter is asked once a transaction."""
        if self._last_doc is None:
            self._last_doc = SqliteMeta(self._sql).take_docs(count)
        else:
            self._last_doc += count
            self._untaken += count
        return self._last_doc - count + 1

    def _places(self, generation_id: int, records: Sequence[Record]) -> dict[_Where, _Place]:
        """Where and from when on records were observed, with new places added."""
        rows = self._sql.all(
            "select project_id, worktree, observed_commit, number, host_time_ms, sealed_ms "
            "from place where generation_id = ?",
            (generation_id,),
        )
        places = {(row[0], row[1], row[2]): _Place(*row[3:]) for row in rows}
        following = max((place.number for place in places.values()), default=-1) + 1
        new: list[tuple[int | str | None, ...]] = []
        for r in records:
            where = _where(r)
            if where not in places:
                place = _Place(
                    following + len(new), r.host_time_ms - r.host_time_ms % _DAY_MS, r.sealed_ms
                )
                places[where] = place
                new.append((generation_id, *where, *place))
        self._sql.many(
            "insert into place (generation_id, project_id, worktree, observed_commit, number, "
            "host_time_ms, sealed_ms) values (?, ?, ?, ?, ?, ?, ?)",
            new,
        )
        return places

    def record(self, tree: SessionTree, seq: int) -> Record | None:
        found = self.range(tree, seq, seq + 1)
        return found[0] if found else None

    def range(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[Record, ...]:
        rows = self._sql.all(
            f"{_SELECT} where r.generation_id = {GENERATION} and r.seq >= ? and r.seq < ? "
            "order by r.seq",
            (tree.session_id, tree.generation, start, end_exclusive),
        )
        return tuple(_record(tree, row) for row in rows)

    def count(self) -> int:
        row = self._sql.one("select count(*) from record")
        return 0 if row is None else int(row[0])

    def own_results(self, session_id: SessionId) -> tuple[Record, ...]:
        rows = self._sql.all(
            f"select g.number, {_RECORD} from generation as g "
            "cross join record as r on r.generation_id = g.id "
            "left join blob as b on b.id = r.blob "
            "left join place as p on p.generation_id = r.generation_id and p.number = r.place "
            "where g.session_id = ? and r.kind = ? "
            "and r.tool in (select value from json_each(?)) order by g.number, r.seq",
            (
                session_id,
                code(RECORD_KINDS, RecordKind.TOOL_RESULT.value),
                msgspec.json.encode(sorted(OWN_TOOLS)).decode(),
            ),
        )
        return tuple(_record(SessionTree(session_id, row[0]), row[1:]) for row in rows)

    def remove(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[BlobHash, ...]:
        place = (tree.session_id, tree.generation, start, end_exclusive)
        self.flush()
        index.take_out(self._sql, self._blobs, tree, start, end_exclusive)
        payloads = tuple(record.payload for record in self.range(tree, start, end_exclusive))
        self._sql.run(
            f"delete from record where generation_id = {GENERATION} and seq >= ? and seq < ?",
            place,
        )
        self._sql.run(
            f"delete from place where generation_id = {GENERATION} and number not in "
            "(select r.place from record as r where r.generation_id = place.generation_id)",
            (tree.session_id, tree.generation),
        )
        return payloads

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        moved = self.range(tree, 0, end_exclusive)
        row = self._sql.one(
            "select id from generation where session_id = ? and number = ?",
            (to.session_id, to.generation),
        )
        assert row is not None, "records are moved to a generation that is there"
        places = self._places(row[0], moved)
        self._sql.many(
            "update record set generation_id = ?, place = ?, host_time_ms = ?, sealed_ms = ? "
            f"where generation_id = {GENERATION} and seq = ?",
            (
                (
                    row[0],
                    places[_where(r)].number,
                    r.host_time_ms - places[_where(r)].host_time_ms,
                    r.sealed_ms - places[_where(r)].sealed_ms,
                    tree.session_id,
                    tree.generation,
                    r.seq,
                )
                for r in moved
            ),
        )
        drop_frames(self._sql)


_decode_attachments = msgspec.json.Decoder(tuple[str, ...]).decode


def _record(tree: SessionTree, row: Row) -> Record:
    return Record(  # by position: a hundred thousand are read as well
        tree.session_id,
        tree.generation,
        row[0],
        hash_text(row[1]),
        row[2],
        row[3],
        RecordKind(name_of(RECORD_KINDS, row[4])),
        row[5],
        row[6],
        BlobHash((row[7] or b"").hex()),
        row[8] or 0,
        row[9],
        row[10],
        None if row[11] is None else hash_text(row[11]),
        None if row[12] is None else name_of(STATUSES, row[12]),
        row[13],
        row[14],
        row[15],
        () if row[16] is None else _decode_attachments(row[16]),
    )
