"""The tables of OpenCode 1.18: sessions, messages and parts."""

from __future__ import annotations

from optchat.hosts.opencode.transcript.database import Database
from optchat.hosts.opencode.transcript.live import live, untouched
from optchat.hosts.opencode.transcript.messages import (
    HostMessage,
    HostPart,
    HostSession,
    Info,
    decode,
)
from optchat.hosts.opencode.transcript.sessions import sessions


class Tables:
    """The sessions in these tables of a database."""

    NEEDED = frozenset({"session", "message", "part", "project"})

    def __init__(self, database: Database) -> None:
        self._database = database

    def sessions(self) -> list[HostSession]:
        """All of them, oldest first; see ``sessions``."""
        return sessions(self._database, "session", "message")

    def messages(self, session: HostSession) -> list[HostMessage]:
        """A session's messages with their parts, in the host's order, as of one moment.

        What a person has gone back behind is left out.

        Raises:
            BadInput: the file cannot be read, or a row of it.
        """
        with self._database.moment() as db:
            rows = db.execute(
                "select id, data from message where session_id = ? order by time_created, id",
                (session.id,),
            ).fetchall()
            parts: dict[str, list[HostPart]] = {}
            for message_id, part_id, data in db.execute(
                "select message_id, id, data from part where session_id = ? "
                "order by message_id, id",
                (session.id,),
            ):
                part = decode(data, HostPart)
                part.id = part_id
                parts.setdefault(message_id, []).append(part)
        messages = [
            HostMessage(id=id_, info=decode(data, Info), parts=parts.get(id_, []))
            for id_, data in rows
        ]
        return live(messages, session.revert)

    def ids(self, session: HostSession) -> list[str]:
        """Those of its messages that are as they were written, without reading them."""
        with self._database.moment() as db:
            rows = db.execute(
                "select id from message where session_id = ? order by time_created, id",
                (session.id,),
            ).fetchall()
        return untouched((id_ for (id_,) in rows), session.revert)

    def times(self, session_id: str, count: int) -> list[tuple[int, str]]:
        """When the first messages were made and whose they are: enough to know a copy by."""
        with self._database.moment() as db:
            rows = db.execute(
                "select data from message where session_id = ? order by time_created, id limit ?",
                (session_id, count),
            ).fetchall()
        infos = (decode(data, Info) for (data,) in rows)
        return [(info.time.created, info.role) for info in infos]
