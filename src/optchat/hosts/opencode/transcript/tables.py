"""The tables of OpenCode 1.18: sessions, messages and parts in one SQLite file.

The file is another program's and in use. It is opened read-only, nothing is ever written to it or
locked for longer than one session takes to read, and what the host writes meanwhile is seen by the
next read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from optchat.errors import BadInput
from optchat.hosts.opencode.transcript import place
from optchat.hosts.opencode.transcript.messages import (
    GLOBAL,
    HostMessage,
    HostPart,
    HostSession,
    Info,
    Revert,
    decode,
)

BUSY_MS = 2_000
"""How long a read waits for a host that has its file to itself for a moment."""

_SESSIONS = """
select s.id, s.project_id, s.directory, s.title, s.time_created, s.time_updated, s.parent_id,
  s.time_archived, s.metadata, s.revert, p.worktree, p.sandboxes,
  (select count(*) from message as m where m.session_id = s.id), {sequence}
from session as s left join project as p on p.id = s.project_id
order by s.time_created, s.id
"""
_SEQUENCE = "(select seq from event_sequence as e where e.aggregate_id = s.id)"


class Tables:
    """One store of that form; ``name`` is the plugin's name for it.

    ``is_at_rest``: it has no write-ahead log, which whoever has written to it leaves until he is
    the last to close it; so nobody is at work in it.
    """

    def __init__(self, path: Path) -> None:
        self.name = place.identity(path)
        log = path.with_name(f"{path.name}-wal")
        self.is_at_rest = not (log.exists() and log.stat().st_size)
        try:
            self._db = apsw.Connection(
                f"file:{quote(str(path))}?mode=ro",
                flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )
            self._db.set_busy_timeout(BUSY_MS)
            names = {row[0] for row in self._db.execute("select name from sqlite_schema")}
        except apsw.Error as error:
            raise _unreadable(path, error) from None
        self.path = path
        if not {"session", "message", "part", "project"} <= names:
            self._db.close()
            raise BadInput(
                f"{path} holds no conversations of a form that is known; nothing was read.",
                hint="name OpenCode's own store: opencode db path",
            )
        self._sessions = _SESSIONS.format(sequence=_SEQUENCE if "event_sequence" in names else "0")

    def close(self) -> None:
        self._db.close()

    def sessions(self) -> list[HostSession]:
        """All of them, oldest first, as of one moment.

        Raises:
            BadInput: the file cannot be read, or a row of it.
        """
        with self._moment():
            return [_session(row) for row in self._db.execute(self._sessions)]

    def messages(self, session: HostSession) -> list[HostMessage]:
        """A session's messages with their parts, in the host's order, as of one moment.

        What a person has gone back behind is left out.

        Raises:
            BadInput: as ``sessions``.
        """
        with self._moment():
            rows = self._db.execute(
                "select id, data from message where session_id = ? order by time_created, id",
                (session.id,),
            ).fetchall()
            parts: dict[str, list[HostPart]] = {}
            for message_id, part_id, data in self._db.execute(
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

    def times(self, session_id: str) -> list[tuple[int, str]]:
        """When each message was made and whose it is, in order: enough to know a copy by."""
        with self._moment():
            rows = self._db.execute(
                "select data from message where session_id = ? order by time_created, id",
                (session_id,),
            ).fetchall()
        infos = (decode(data, Info) for (data,) in rows)
        return [(info.time.created, info.role) for info in infos]

    @contextmanager
    def _moment(self) -> Iterator[None]:
        """One short read transaction."""
        try:
            self._db.execute("begin")
            try:
                yield
            finally:
                self._db.execute("rollback")
        except apsw.Error as error:
            raise _unreadable(self.path, error) from None


def live(messages: list[HostMessage], revert: Revert | None) -> list[HostMessage]:
    """The messages up to where a person has gone back to; the host drops the rest later."""
    if revert is None:
        return messages
    for index, message in enumerate(messages):
        if message.id == revert.message_id:
            kept = messages[:index]
            if revert.part_id is None:
                return kept
            until = (
                [p.id for p in message.parts].index(revert.part_id)
                if any(p.id == revert.part_id for p in message.parts)
                else len(message.parts)
            )
            return [
                *kept,
                HostMessage(id=message.id, info=message.info, parts=message.parts[:until]),
            ]
    return messages


def _session(row: tuple[Any, ...]) -> HostSession:
    (id_, project, directory, title, created, updated, parent, archived, metadata, revert) = row[
        :10
    ]
    worktree, sandboxes, count, sequence = row[10:]
    folders = [worktree or directory, *(decode(sandboxes or "[]", list[str]))]
    inside = [f for f in folders if directory == f or directory.startswith(f.rstrip("/") + "/")]
    return HostSession(
        id=id_,
        project_id=project,
        directory=directory,
        title=title,
        created_ms=created,
        updated_ms=updated,
        project_directory=folders[0],
        worktree=None if project == GLOBAL else max(inside, key=len, default=folders[0]),
        parent_id=parent,
        archived=archived is not None,
        internal=_is_internal(metadata),
        revert=decode(revert, Revert | None) if revert else None,  # pyright: ignore[reportArgumentType]
        messages=count,
        mark=f"{updated}:{count}:{sequence or 0}",
    )


def _is_internal(metadata: str | None) -> bool:
    """Whether a plugin of ours has made the session."""
    found = decode(metadata, Any) if metadata else None  # pyright: ignore[reportArgumentType]
    ours = found.get("optchat") if isinstance(found, dict) else None
    return isinstance(ours, dict) and ours.get("internal") is True


def _unreadable(path: Path, error: apsw.Error) -> BadInput:
    return BadInput(
        f"{path} cannot be read ({error}); nothing was taken in or taken back for it.",
        hint="look whether the file is there and yours, then run the command again",
    )
