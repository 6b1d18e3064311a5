"""The store's counters and its few named values."""

from __future__ import annotations

from optchat.errors import IntegrityError
from optchat.refs import Csn
from optchat.storage.sqlite.connection import Sql


class SqliteMeta:
    """Counters are rows, updated in the transaction that uses them, so prefixes stay closed."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._taken: Csn | None = None

    def csn(self) -> Csn:
        return Csn(self._counter("csn"))

    def next_csn(self) -> Csn:
        if self._taken is None:
            self._taken = Csn(self._raise("csn"))
        return self._taken

    def epoch(self) -> int:
        return self._counter("epoch")

    def raise_epoch(self) -> int:
        return self._raise("epoch")

    def take_docs(self, count: int) -> int:
        """The last of ``count`` numbers in a row that no document of the word index ever had."""
        return self._raise("doc", count)

    def get(self, key: str) -> str | None:
        row = self._sql.one("select value from meta where key = ?", (key,))
        return None if row is None else str(row[0])

    def put(self, key: str, value: str) -> None:
        self._sql.run(
            "insert into meta (key, value) values (?, ?) "
            "on conflict (key) do update set value = excluded.value",
            (key, value),
        )

    def _counter(self, name: str) -> int:
        return self._value("select value from counter where name = ?", (name,))

    def _raise(self, name: str, by: int = 1) -> int:
        raised = "update counter set value = value + ?2 where name = ?1 returning value"
        return self._value(raised, (name, by))

    def _value(self, sql: str, args: tuple[str | int, ...]) -> int:
        row = self._sql.one(sql, args)
        if row is None:
            raise IntegrityError(f"the store's counter {args[0]!r} is missing.")
        return int(row[0])
