"""The meter as rows: a row is written before its call is sent (I12)."""

# ruff: noqa: S608  (what is formatted in are this package's own column lists)

from __future__ import annotations

from typing import Literal

from optchat.errors import Conflict
from optchat.refs import SessionId, TurnId
from optchat.storage.ports import ModelCall, Spent
from optchat.storage.sqlite.connection import Row, Sql

_COLUMNS = (
    "call_id, at_ms, day, purpose, model, scope_id, session_id, turn_id, idle, outcome, "
    "input_tokens, cached_tokens, output_tokens, estimated, micros, duration_ms"
)
_SUMS = (
    "count(*), coalesce(sum(input_tokens), 0), coalesce(sum(cached_tokens), 0), "
    "coalesce(sum(output_tokens), 0), coalesce(sum(micros), 0), count(*) - count(micros)"
)
_BY = {"day": "day", "session": "coalesce(session_id, '')", "purpose": "purpose", "model": "model"}


class SqliteLedger:
    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def open(self, call: ModelCall) -> None:
        known = self._sql.one("select 1 from model_call where call_id = ?", (call.call_id,))
        if known is not None:
            raise Conflict("that call id is taken; nothing was written.")
        self._sql.run(
            f"insert into model_call ({_COLUMNS}) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                call.call_id,
                call.at_ms,
                call.day,
                call.purpose,
                call.model,
                call.scope_id,
                call.session_id,
                call.turn_id,
                int(call.idle),
                call.outcome,
                call.input_tokens,
                call.cached_tokens,
                call.output_tokens,
                int(call.estimated),
                call.micros,
                call.duration_ms,
            ),
        )

    def close(self, call: ModelCall) -> None:
        self._sql.run(
            "update model_call set model = ?, outcome = ?, input_tokens = ?, cached_tokens = ?, "
            "output_tokens = ?, estimated = ?, micros = ?, duration_ms = ? where call_id = ?",
            (
                call.model,
                call.outcome,
                call.input_tokens,
                call.cached_tokens,
                call.output_tokens,
                int(call.estimated),
                call.micros,
                call.duration_ms,
                call.call_id,
            ),
        )

    def drop(self, call_id: str) -> None:
        self._sql.run("delete from model_call where call_id = ?", (call_id,))

    def spent(
        self,
        since_ms: int,
        *,
        day: str | None = None,
        turn_id: TurnId | None = None,
        idle: bool | None = None,
    ) -> Spent:
        row = self._sql.one(
            f"select {_SUMS} from model_call where at_ms >= ?1 and (?2 is null or day = ?2) "
            "and (?3 is null or turn_id = ?3) and (?4 is null or idle = ?4)",
            (since_ms, day, turn_id, None if idle is None else int(idle)),
        )
        assert row is not None
        return _spent(row)

    def table(
        self, by: Literal["day", "session", "purpose", "model"], since_ms: int
    ) -> tuple[tuple[str, Spent], ...]:
        rows = self._sql.all(
            f"select {_BY[by]} as name, {_SUMS} from model_call where at_ms >= ? "
            "group by name order by name",
            (since_ms,),
        )
        return tuple((row[0], _spent(row[1:])) for row in rows)

    def unfinished(self) -> int:
        row = self._sql.one("select count(*) from model_call where outcome = 'sent'")
        assert row is not None
        return row[0]

    def disown(self, *, session_id: SessionId | None = None, turn_id: TurnId | None = None) -> None:
        if session_id is not None:
            self._sql.run(
                "update model_call set session_id = null, turn_id = null where session_id = ?",
                (session_id,),
            )
        if turn_id is not None:
            self._sql.run("update model_call set turn_id = null where turn_id = ?", (turn_id,))

    def count(self, model: str, prompt_version: str, finding: str, times: int) -> None:
        self._sql.run(
            "insert into finding (model, prompt_version, finding, times) values (?, ?, ?, ?) "
            "on conflict do update set times = times + excluded.times",
            (model, prompt_version, finding, times),
        )

    def findings(self) -> tuple[tuple[str, str, str, int], ...]:
        rows = self._sql.all(
            "select model, prompt_version, finding, times from finding "
            "order by model, prompt_version, finding"
        )
        return tuple((row[0], row[1], row[2], row[3]) for row in rows)


def _spent(row: Row) -> Spent:
    return Spent(
        calls=row[0],
        input_tokens=row[1],
        cached_tokens=row[2],
        output_tokens=row[3],
        micros=row[4],
        unpriced=row[5],
    )
