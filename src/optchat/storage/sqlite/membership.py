"""The host's messages as rows."""

# ruff: noqa: S608  (what is formatted in are this module's own column lists)

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from optchat.core.records import HostMessage
from optchat.errors import Conflict
from optchat.refs import SessionId
from optchat.storage.sqlite.connection import Row, Sql

_MESSAGE = ", ".join(HostMessage.__struct_fields__)
_INSERT = (
    f"insert into message ({_MESSAGE}) values "
    # A digest in hexadecimals as its bytes; another text as it is.
    "(?1, ?2, ?3, iif(?4 glob '*[^0-9a-f]*', ?4, coalesce(unhex(?4), ?4)), ?5, ?6, ?7)"
)


class SqliteMembership:
    """Every check of a verb comes before its first write, so a caught error leaves nothing."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def messages(self, session_id: SessionId, start: int = 0) -> tuple[HostMessage, ...]:
        if start <= 0:
            rows = self._sql.all(
                f"select {_MESSAGE} from message where session_id = ? order by position",
                (session_id,),
            )
            return tuple(map(_message, rows))
        # Positions and first records grow together, so that a search by halves finds the place.
        before = (
            "(select start_seq from message where session_id = ?1 "
            "and position = (half.low + half.high) / 2) < ?2"
        )
        rows = self._sql.all(
            "with recursive half (low, high) as ("
            "select 0, coalesce(max(position) + 1, 0) from message "
            "where session_id = ?1 union all "
            f"select iif({before}, (low + high) / 2 + 1, low), "
            f"iif({before}, high, (low + high) / 2) from half where low < high) "
            f"select {_MESSAGE} from message where session_id = ?1 "
            "and position >= (select low from half where low >= high) order by position",
            (session_id, start),
        )
        return tuple(map(_message, rows))

    def message(self, session_id: SessionId, message_id: str) -> HostMessage | None:
        row = self._sql.one(
            f"select {_MESSAGE} from message where session_id = ? and message_id = ?",
            (session_id, message_id),
        )
        return None if row is None else _message(row)

    def put(self, message: HostMessage) -> None:
        self._check_ids(message.session_id, (message,))
        self._sql.run(
            f"{_INSERT} on conflict (session_id, position) do update set "
            "message_id = excluded.message_id, "
            "digest = excluded.digest, turn_id = excluded.turn_id, "
            "start_seq = excluded.start_seq, end_seq_exclusive = excluded.end_seq_exclusive",
            msgspec.structs.astuple(message),
        )

    def put_many(self, messages: Sequence[HostMessage]) -> None:
        if not messages:
            return
        self._check_ids(messages[0].session_id, messages)
        self._sql.many(_INSERT, map(msgspec.structs.astuple, messages))

    def truncate(self, session_id: SessionId, position: int) -> None:
        self._sql.run(
            "delete from message where session_id = ? and position >= ?", (session_id, position)
        )

    def _check_ids(self, session_id: SessionId, messages: Sequence[HostMessage]) -> None:
        """A message id stands once in a session: looked through, for an index would cost more."""
        places = {message.message_id: message.position for message in messages}
        row = self._sql.one(
            "select 1 from message where session_id = ? limit 1", (session_id,)
        ) and self._sql.one(
            "select 1 from message as m join json_each(?2) as new on new.key = m.message_id "
            "where m.session_id = ?1 and m.position <> new.value limit 1",
            (session_id, msgspec.json.encode(places).decode()),
        )
        if row is not None or len(places) < len(messages):
            raise Conflict("a message of that id stands at another position; it stays there.")


def _message(row: Row) -> HostMessage:
    digest = row[3].hex() if isinstance(row[3], bytes) else row[3]
    return HostMessage(row[0], row[1], row[2], digest, row[4], row[5], row[6])
