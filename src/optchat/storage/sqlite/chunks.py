"""The pieces of oversized payloads as rows; the foreign key lets them go with their payload."""

from __future__ import annotations

from optchat.errors import IntegrityError
from optchat.refs import BlobHash
from optchat.storage.ports import Chunk
from optchat.storage.sqlite.blobs import SqliteBlobs
from optchat.storage.sqlite.connection import Sql


class SqliteChunks:
    def __init__(self, sql: Sql, blobs: SqliteBlobs) -> None:
        self._sql = sql
        self._blobs = blobs

    def put(self, chunk: Chunk) -> None:
        blob = self._blobs.ids((chunk.payload,)).get(chunk.payload)
        if blob is None:
            raise IntegrityError(f"the payload {chunk.payload} is not kept.")
        self._sql.run(
            "insert into chunk (blob, plan, level, position, start, end_exclusive, read, text) "
            "values (?, ?, ?, ?, ?, ?, ?, ?) on conflict do update set "
            "start = excluded.start, end_exclusive = excluded.end_exclusive, "
            "read = excluded.read, text = excluded.text",
            (
                blob,
                chunk.plan,
                chunk.level,
                chunk.position,
                chunk.start,
                chunk.end_exclusive,
                chunk.read,
                chunk.text,
            ),
        )

    def of(self, payload: BlobHash, plan: str) -> tuple[Chunk, ...]:
        rows = self._sql.all(
            "select level, position, start, end_exclusive, read, text from chunk "
            "where blob = ? and plan = ? order by level, position",
            (self._blobs.ids((payload,)).get(payload), plan),
        )
        return tuple(
            Chunk(
                payload=payload,
                plan=plan,
                level=row[0],
                position=row[1],
                start=row[2],
                end_exclusive=row[3],
                read=row[4],
                text=row[5],
            )
            for row in rows
        )
