"""The tables of OpenCode 1.18: sessions, messages and parts in one SQLite file.

The file is another program's and in use. It is opened read-only, nothing is ever written to it or
locked for longer than one session takes to read, and what the host writes meanwhile is seen by the
next read.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import apsw

from optchat.errors import BadInput
from optchat.hosts.opencode.transcript import place
from optchat.hosts.opencode.transcript.live import live
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

    ``is_at_rest``: no process had it open, so that nobody is at work in it.
    """

    def __init__(self, path: Path) -> None:
        self.name = place.identity(path)
        self.is_at_rest = not place.is_open(path)
        try:
            self._db: Any = apsw.Connection(
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

    def times(self, session_id: str, count: int) -> list[tuple[int, str]]:
        """When the first messages were made and whose they are: enough to know a copy by."""
        with self._moment():
            rows = self._db.execute(
                "select data from message where session_id = ? order by time_created, id limit ?",
                (session_id, count),
            ).fetchall()
        infos = (decode(data, Info) for (data,) in rows)
        return [(info.time.created, info.role) for info in infos]

    @contextmanager
    def _moment(self) -> Generator[None]:
        """One short read transaction."""
        try:
            self._db.execute("begin")
            try:
                yield
            finally:
                self._db.execute("rollback")
        except apsw.Error as error:
            raise _unreadable(self.path, error) from None


def _session(row: tuple[Any, ...]) -> HostSession:
    id_, project, directory, title, created, updated, parent, archived = row[:8]
    metadata, revert, worktree, sandboxes, count, sequence = row[8:]
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
        revert=decode(revert, Revert) if revert else None,
        messages=count,
        mark=f"{updated}:{count}:{sequence or 0}",
    )


def _is_internal(metadata: str | None) -> bool:
    """Whether a plugin of ours has made the session."""
    found = decode(metadata, dict[str, Any]) if metadata else {}
    ours = found.get("optchat")
    return isinstance(ours, dict) and cast("dict[str, Any]", ours).get("internal") is True


def _unreadable(path: Path, error: apsw.Error) -> BadInput:
    return BadInput(
        f"{path} cannot be read ({error}); nothing was taken in or taken back for it.",
        hint="look whether the file is there and yours, then run the command again",
    )
