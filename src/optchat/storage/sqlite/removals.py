"""Tombstones and the log of removals as rows."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from optchat.storage.ports import Removal
from optchat.storage.sqlite.connection import Sql


class SqliteRemovals:
    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def bury(self, key: str) -> None:
        self._sql.run("insert into tombstone (key) values (?) on conflict do nothing", (key,))

    def buried(self, keys: Collection[str]) -> frozenset[str]:
        rows = self._sql.all(
            "select t.key from json_each(?) as asked "
            "cross join tombstone as t on t.key = asked.value",
            (msgspec.json.encode(list(keys)).decode(),),
        )
        return frozenset(row[0] for row in rows)

    def has_buried(self) -> bool:
        return self._sql.one("select 1 from tombstone limit 1") is not None

    def log(self, removal: Removal) -> None:
        self._sql.run(
            "insert into removal (at_ms, what, counts, places) values (?, ?, ?, ?)",
            (
                removal.at_ms,
                removal.what,
                msgspec.json.encode(removal.counts).decode(),
                msgspec.json.encode(removal.places).decode(),
            ),
        )

    def logged(self, limit: int) -> tuple[Removal, ...]:
        rows = self._sql.all(
            "select at_ms, what, counts, places from removal order by ordinal desc limit ?",
            (max(limit, 0),),
        )
        return tuple(
            Removal(at_ms=row[0], what=row[1], counts=_counts(row[2]), places=_places(row[3]))
            for row in rows
        )


_counts = msgspec.json.Decoder(dict[str, int]).decode
_places = msgspec.json.Decoder(tuple[str, ...]).decode
