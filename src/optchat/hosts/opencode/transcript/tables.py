"""The tables of OpenCode 1.18: sessions, messages and parts."""

from __future__ import annotations

from typing import Any, cast

from optchat.hosts.opencode.transcript.database import Database
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

_SESSIONS = """
select s.id, s.project_id, s.directory, s.title, s.time_created, s.time_updated, s.parent_id,
  s.time_archived, s.metadata, s.revert, p.worktree, p.sandboxes,
  (select count(*) from message as m where m.session_id = s.id), {sequence}
from session as s left join project as p on p.id = s.project_id
order by s.time_created, s.id
"""
SEQUENCE = "(select seq from event_sequence as e where e.aggregate_id = s.id)"


class Tables:
    """The sessions in these tables of a database."""

    NEEDED = frozenset({"session", "message", "part", "project"})

    def __init__(self, database: Database) -> None:
        self._database = database
        sequence = SEQUENCE if "event_sequence" in database.tables else "0"
        self._sessions = _SESSIONS.format(sequence=sequence)

    def sessions(self) -> list[HostSession]:
        """All of them, oldest first, as of one moment.

        Raises:
            BadInput: the file cannot be read, or a row of it.
        """
        with self._database.moment() as db:
            return [_session(row) for row in db.execute(self._sessions)]

    def messages(self, session: HostSession) -> list[HostMessage]:
        """A session's messages with their parts, in the host's order, as of one moment.

        What a person has gone back behind is left out.

        Raises:
            BadInput: as ``sessions``.
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

    def times(self, session_id: str, count: int) -> list[tuple[int, str]]:
        """When the first messages were made and whose they are: enough to know a copy by."""
        with self._database.moment() as db:
            rows = db.execute(
                "select data from message where session_id = ? order by time_created, id limit ?",
                (session_id, count),
            ).fetchall()
        infos = (decode(data, Info) for (data,) in rows)
        return [(info.time.created, info.role) for info in infos]


def _session(row: tuple[Any, ...]) -> HostSession:
    id_, project, directory, title, created, updated, parent, archived = row[:8]
    metadata, revert, worktree, sandboxes, count, sequence = row[8:]
    return HostSession(
        id=id_,
        project_id=project,
        directory=directory,
        title=title,
        created_ms=created,
        updated_ms=updated,
        project_directory=worktree or directory,
        worktree=None if project == GLOBAL else worktree_of(directory, worktree, sandboxes),
        parent_id=parent,
        archived=archived is not None,
        internal=is_internal(metadata),
        revert=decode(revert, Revert) if revert else None,
        messages=count,
        mark=f"{updated}:{count}:{sequence or 0}",
    )


def worktree_of(directory: str, worktree: str | None, sandboxes: str | None) -> str:
    """Which of a project's folders a directory is in: the main one, or another checkout of it."""
    folders = [worktree or directory, *decode(sandboxes or "[]", list[str])]
    inside = [f for f in folders if f"{directory}/".startswith(f"{f.rstrip('/')}/")]
    return max(inside, key=len, default=folders[0])


def is_internal(metadata: str | None) -> bool:
    """Whether a plugin of ours has made the session."""
    found = decode(metadata, dict[str, Any]) if metadata else {}
    ours = found.get("optchat")
    return isinstance(ours, dict) and cast("dict[str, Any]", ours).get("internal") is True
