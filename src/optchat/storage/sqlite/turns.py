"""Turns as rows."""

# ruff: noqa: S608  (what is formatted in are this module's own column lists)

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from optchat.core.records import Checkpoint, Outcome, Pin, Turn
from optchat.refs import FoldId, SessionId, TurnId
from optchat.storage.sqlite.connection import Row, Sql

_TURN = (
    "turn_id, session_id, generation, key, start_seq, opened_ms, scope_id, end_seq_exclusive, "
    "outcome, closed_ms, pin, fold_id, news, checkpoints"
)


class SqliteTurns:
    """That a message opens one turn at most is the table's own rule."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def turn(self, turn_id: TurnId) -> Turn | None:
        row = self._sql.one(f"select {_TURN} from turn where turn_id = ?", (turn_id,))
        return None if row is None else _turn(row)

    def by_key(self, session_id: SessionId, generation: int, key: str) -> Turn | None:
        row = self._sql.one(
            f"select {_TURN} from turn where session_id = ? and generation = ? and key = ?",
            (session_id, generation, key),
        )
        return None if row is None else _turn(row)

    def of_session(self, session_id: SessionId) -> tuple[Turn, ...]:
        rows = self._sql.all(
            f"select {_TURN} from turn where session_id = ? order by start_seq, opened_ms, turn_id",
            (session_id,),
        )
        return tuple(map(_turn, rows))

    def open(self, session_id: SessionId, generation: int) -> Turn | None:
        row = self._sql.one(
            f"select {_TURN} from turn where session_id = ? and generation = ? "
            "and outcome is null order by start_seq, opened_ms, turn_id limit 1",
            (session_id, generation),
        )
        return None if row is None else _turn(row)

    def last_pinned(self, session_id: SessionId, generation: int) -> Turn | None:
        row = self._sql.one(
            f"select {_TURN} from turn where session_id = ? and generation = ? "
            "and pin is not null order by start_seq desc, opened_ms desc, turn_id desc limit 1",
            (session_id, generation),
        )
        return None if row is None else _turn(row)

    def of_fold(self, session_id: SessionId, fold_id: FoldId) -> tuple[Turn, ...]:
        rows = self._sql.all(
            f"select {_TURN} from turn where session_id = ? and fold_id = ? "
            "order by start_seq, opened_ms, turn_id",
            (session_id, fold_id),
        )
        return tuple(map(_turn, rows))

    def folded(self, session_id: SessionId, generation: int) -> tuple[Turn, ...]:
        rows = self._sql.all(
            f"select {_TURN} from turn where session_id = ? and generation = ? "
            "and checkpoints <> '[]' order by start_seq, opened_ms, turn_id",
            (session_id, generation),
        )
        return tuple(map(_turn, rows))

    def put(self, turn: Turn) -> None:
        self._sql.run(
            f"insert into turn ({_TURN}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "on conflict (turn_id) do update set session_id = excluded.session_id, "
            "generation = excluded.generation, key = excluded.key, "
            "start_seq = excluded.start_seq, opened_ms = excluded.opened_ms, "
            "scope_id = excluded.scope_id, "
            "end_seq_exclusive = excluded.end_seq_exclusive, outcome = excluded.outcome, "
            "closed_ms = excluded.closed_ms, pin = excluded.pin, fold_id = excluded.fold_id, "
            "news = excluded.news, checkpoints = excluded.checkpoints",
            (
                *_turn_row(turn),
                None if turn.pin is None else msgspec.json.encode(turn.pin).decode(),
                turn.fold_id,
                turn.news,
                msgspec.json.encode(turn.checkpoints).decode(),
            ),
        )

    def put_many(self, turns: Sequence[Turn]) -> None:
        self._sql.many(
            "insert into turn (turn_id, session_id, generation, key, start_seq, opened_ms, "
            "scope_id, end_seq_exclusive, outcome, closed_ms, news, checkpoints) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '[]')",
            map(_turn_row, turns),
        )

    def remove(self, session_id: SessionId) -> None:
        self._sql.run("delete from turn where session_id = ?", (session_id,))


_decode_checkpoints = msgspec.json.Decoder(tuple[Checkpoint, ...]).decode
decode_pin = msgspec.json.Decoder(Pin).decode


def _turn_row(turn: Turn) -> tuple[str | int | None, ...]:
    """The columns of a turn that no request has been sent with yet."""
    return (
        turn.turn_id,
        turn.session_id,
        turn.generation,
        turn.key,
        turn.start_seq,
        turn.opened_ms,
        turn.scope_id,
        turn.end_seq_exclusive,
        None if turn.outcome is None else turn.outcome.value,
        turn.closed_ms,
    )


def _turn(row: Row) -> Turn:
    return Turn(
        turn_id=row[0],
        session_id=row[1],
        generation=row[2],
        key=row[3],
        start_seq=row[4],
        opened_ms=row[5],
        scope_id=row[6],
        end_seq_exclusive=row[7],
        outcome=None if row[8] is None else Outcome(row[8]),
        closed_ms=row[9],
        pin=None if row[10] is None else decode_pin(row[10]),
        fold_id=row[11],
        news=row[12],
        checkpoints=_decode_checkpoints(row[13]),
    )
