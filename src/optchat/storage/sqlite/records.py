"""Sealed records, the host's membership, and turns as rows."""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from optchat.core.records import Checkpoint, HostMessage, Outcome, Pin, Record, RecordKind, Turn
from optchat.core.tree import SessionTree
from optchat.errors import Conflict, EventConflict
from optchat.refs import BlobHash, FoldId, SessionId, TurnId
from optchat.storage.sqlite.connection import Row, Sql
from optchat.storage.words import searchable

_RECORD = (
    "session_id, generation, seq, event_key, turn_id, message_id, kind, host_time_ms, sealed_ms, "
    "payload, payload_bytes, project_id, tool, pair, status, worktree, observed_commit, "
    "truncated, attachments"
)
_MESSAGE = "session_id, position, message_id, digest, turn_id, start_seq, end_seq_exclusive"
_TURN = (
    "turn_id, session_id, generation, key, start_seq, opened_ms, scope_id, end_seq_exclusive, "
    "outcome, closed_ms, pin, fold_id, news, checkpoints"
)


class SqliteRecords:
    """Every check of a verb comes before its first write, so a caught error leaves nothing."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def append(self, record: Record, text: str) -> bool:
        found = self._sql.one(
            "select (select payload from record where event_key = ?), "
            "(select length from generation where session_id = ? and number = ?)",
            (record.event_key, record.session_id, record.generation),
        )
        sealed, length = found if found is not None else (None, None)
        if sealed is not None:
            if sealed != record.payload:
                raise EventConflict(
                    f"{record.event_key} is sealed with other content; it is unchanged."
                )
            return False
        if length != record.seq:
            raise Conflict(
                f"record {record.seq} of {record.session_id}:{record.generation} is not the next "
                f"one ({length}); nothing was sealed."
            )
        self._sql.run(
            f"insert into record ({_RECORD}) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.session_id,
                record.generation,
                record.seq,
                record.event_key,
                record.turn_id,
                record.message_id,
                record.kind.value,
                record.host_time_ms,
                record.sealed_ms,
                record.payload,
                record.payload_bytes,
                record.project_id,
                record.tool,
                record.pair,
                record.status,
                record.worktree,
                record.commit,
                record.truncated,
                msgspec.json.encode(record.attachments).decode(),
            ),
        )
        self._sql.run(
            "update generation set length = length + 1 where session_id = ? and number = ?",
            (record.session_id, record.generation),
        )
        if text:
            row = self._sql.one(
                "insert into record_text (session_id, generation, seq, host_time_ms, text) "
                "values (?, ?, ?, ?, ?) returning doc, text",
                (
                    record.session_id,
                    record.generation,
                    record.seq,
                    record.host_time_ms,
                    searchable(text),
                ),
            )
            self._sql.run("insert into record_fts (rowid, text) values (?, ?)", row or ())
        return True

    def record(self, tree: SessionTree, seq: int) -> Record | None:
        row = self._sql.one(
            f"select {_RECORD} from record where session_id = ? and generation = ? and seq = ?",
            (tree.session_id, tree.generation, seq),
        )
        return None if row is None else _record(row)

    def by_event_key(self, event_key: str) -> Record | None:
        row = self._sql.one(f"select {_RECORD} from record where event_key = ?", (event_key,))
        return None if row is None else _record(row)

    def range(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[Record, ...]:
        rows = self._sql.all(
            f"select {_RECORD} from record "
            "where session_id = ? and generation = ? and seq >= ? and seq < ? order by seq",
            (tree.session_id, tree.generation, start, end_exclusive),
        )
        return tuple(map(_record, rows))

    def count(self) -> int:
        row = self._sql.one("select count(*) from record")
        return 0 if row is None else int(row[0])

    def messages(self, session_id: SessionId, start: int = 0) -> tuple[HostMessage, ...]:
        rows = self._sql.all(
            f"select {_MESSAGE} from message where session_id = ? and start_seq >= ? "
            "order by position",
            (session_id, start),
        )
        return tuple(map(_message, rows))

    def message(self, session_id: SessionId, message_id: str) -> HostMessage | None:
        row = self._sql.one(
            f"select {_MESSAGE} from message where session_id = ? and message_id = ?",
            (session_id, message_id),
        )
        return None if row is None else _message(row)

    def put_message(self, message: HostMessage) -> None:
        self._sql.run(
            f"insert into message ({_MESSAGE}) values (?, ?, ?, ?, ?, ?, ?) "
            "on conflict (session_id, position) do update set message_id = excluded.message_id, "
            "digest = excluded.digest, turn_id = excluded.turn_id, "
            "start_seq = excluded.start_seq, end_seq_exclusive = excluded.end_seq_exclusive",
            _message_row(message),
        )

    def put_messages(self, messages: Sequence[HostMessage]) -> None:
        rows = [_message_row(message) for message in messages]
        self._sql.run(
            f"insert into message ({_MESSAGE}) select value ->> 0, value ->> 1, value ->> 2, "
            "value ->> 3, value ->> 4, value ->> 5, value ->> 6 from json_each(?)",
            (msgspec.json.encode(rows).decode(),),
        )

    def truncate_messages(self, session_id: SessionId, position: int) -> None:
        self._sql.run(
            "delete from message where session_id = ? and position >= ?", (session_id, position)
        )

    def turn(self, turn_id: TurnId) -> Turn | None:
        row = self._sql.one(f"select {_TURN} from turn where turn_id = ?", (turn_id,))
        return None if row is None else _turn(row)

    def turn_by_key(self, session_id: SessionId, generation: int, key: str) -> Turn | None:
        row = self._sql.one(
            f"select {_TURN} from turn where session_id = ? and generation = ? and key = ?",
            (session_id, generation, key),
        )
        return None if row is None else _turn(row)

    def turns(self, session_id: SessionId) -> tuple[Turn, ...]:
        rows = self._sql.all(
            f"select {_TURN} from turn where session_id = ? order by start_seq, opened_ms, turn_id",
            (session_id,),
        )
        return tuple(map(_turn, rows))

    def open_turn(self, session_id: SessionId, generation: int) -> Turn | None:
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

    def turns_of_fold(self, session_id: SessionId, fold_id: FoldId) -> tuple[Turn, ...]:
        rows = self._sql.all(
            f"select {_TURN} from turn where session_id = ? and fold_id = ? "
            "order by start_seq, opened_ms, turn_id",
            (session_id, fold_id),
        )
        return tuple(map(_turn, rows))

    def folded_turns(self, session_id: SessionId, generation: int) -> tuple[Turn, ...]:
        rows = self._sql.all(
            f"select {_TURN} from turn where session_id = ? and generation = ? "
            "and checkpoints <> '[]' order by start_seq, opened_ms, turn_id",
            (session_id, generation),
        )
        return tuple(map(_turn, rows))

    def put_turn(self, turn: Turn) -> None:
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

    def put_turns(self, turns: Sequence[Turn]) -> None:
        rows = [_turn_row(turn) for turn in turns]
        self._sql.run(
            "insert into turn (turn_id, session_id, generation, key, start_seq, opened_ms, "
            "scope_id, end_seq_exclusive, outcome, closed_ms, news, checkpoints) "
            "select value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, "
            "value ->> 6, value ->> 7, value ->> 8, value ->> 9, '', '[]' from json_each(?)",
            (msgspec.json.encode(rows).decode(),),
        )

    def own_results(self, session_id: SessionId) -> tuple[Record, ...]:
        rows = self._sql.all(
            f"select {_RECORD} from record where session_id = ? and kind = 'tool_result' "
            "and tool like 'memory\\_%' escape '\\' order by generation, seq",
            (session_id,),
        )
        return tuple(map(_record, rows))

    def remove(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[BlobHash, ...]:
        place = (tree.session_id, tree.generation, start, end_exclusive)
        docs = self._sql.all(
            "delete from record_text where session_id = ? and generation = ? "
            "and seq >= ? and seq < ? returning doc, text",
            place,
        )
        self._sql.many(
            "insert into record_fts (record_fts, rowid, text) values ('delete', ?, ?)", docs
        )
        rows = self._sql.all(
            "delete from record where session_id = ? and generation = ? "
            "and seq >= ? and seq < ? returning seq, payload",
            place,
        )
        return tuple(BlobHash(payload) for _, payload in sorted(rows))

    def remove_turns(self, session_id: SessionId) -> None:
        self._sql.run("delete from turn where session_id = ?", (session_id,))

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        for table in ("record", "record_text"):
            self._sql.run(
                f"update {table} set session_id = ?, generation = ? "
                "where session_id = ? and generation = ? and seq < ?",
                (to.session_id, to.generation, tree.session_id, tree.generation, end_exclusive),
            )


_decode_attachments = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_checkpoints = msgspec.json.Decoder(tuple[Checkpoint, ...]).decode
decode_pin = msgspec.json.Decoder(Pin).decode


def _record(row: Row) -> Record:
    return Record(
        session_id=row[0],
        generation=row[1],
        seq=row[2],
        event_key=row[3],
        turn_id=row[4],
        message_id=row[5],
        kind=RecordKind(row[6]),
        host_time_ms=row[7],
        sealed_ms=row[8],
        payload=row[9],
        payload_bytes=row[10],
        project_id=row[11],
        tool=row[12],
        pair=row[13],
        status=row[14],
        worktree=row[15],
        commit=row[16],
        truncated=row[17],
        attachments=_decode_attachments(row[18]),
    )


def _message_row(message: HostMessage) -> tuple[str | int, ...]:
    return (
        message.session_id,
        message.position,
        message.message_id,
        message.digest,
        message.turn_id,
        message.start_seq,
        message.end_seq_exclusive,
    )


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


def _message(row: Row) -> HostMessage:
    return HostMessage(
        session_id=row[0],
        position=row[1],
        message_id=row[2],
        digest=row[3],
        turn_id=row[4],
        start_seq=row[5],
        end_seq_exclusive=row[6],
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
