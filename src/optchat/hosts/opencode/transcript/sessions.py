"""The rows of sessions, which the tables of 1.18 and of 2.x keep alike."""

# ruff: noqa: S608  (what is formatted in are the names of the host's own tables)

from __future__ import annotations

from typing import Any, cast

from optchat.hosts.opencode.transcript.database import Database
from optchat.hosts.opencode.transcript.messages import GLOBAL, HostSession, Revert, decode

_SEQUENCE = "(select seq from event_sequence as e where e.aggregate_id = s.id)"


def sessions(
    database: Database, table: str, messages: str, *, origin: str = "null"
) -> list[HostSession]:
    """All sessions of a table, oldest first, as of one moment; ``messages`` has their messages.

    ``origin``: the column that names the session that one is a fork of.

    Raises:
        BadInput: the file cannot be read, or a row of it.
    """
    sequence = _SEQUENCE if "event_sequence" in database.tables else "0"
    with database.moment() as db:
        rows = db.execute(
            "select s.id, s.project_id, s.directory, s.title, s.time_created, s.time_updated, "
            "s.parent_id, s.time_archived, s.metadata, s.revert, p.worktree, p.sandboxes, "
            f"(select count(*) from {messages} as m where m.session_id = s.id), {sequence}, "
            f"{origin} from {table} as s left join project as p on p.id = s.project_id "
            "order by s.time_created, s.id"
        )
        return [_session(row) for row in rows]


def _session(row: tuple[Any, ...]) -> HostSession:
    id_, project, directory, title, created, updated, parent, archived = row[:8]
    metadata, revert, worktree, sandboxes, count, sequence, origin = row[8:]
    return HostSession(
        id=id_,
        project_id=project,
        directory=directory,
        title=title or "",
        created_ms=created,
        updated_ms=updated,
        project_directory=worktree or directory,
        worktree=None if project == GLOBAL else _worktree(directory, worktree, sandboxes),
        parent_id=parent,
        archived=archived is not None,
        internal=_is_internal(metadata),
        revert=decode(revert, Revert) if revert else None,
        fork_of=origin,
        messages=count,
        mark=f"{updated}:{count}:{sequence or 0}",
    )


def _worktree(directory: str, worktree: str | None, sandboxes: str | None) -> str:
    """Which of a project's folders a directory is in: the main one, or another checkout of it."""
    folders = [worktree or directory, *decode(sandboxes or "[]", list[str])]
    inside = [f for f in folders if f"{directory}/".startswith(f"{f.rstrip('/')}/")]
    return max(inside, key=len, default=folders[0])


def _is_internal(metadata: str | None) -> bool:
    """Whether a plugin of ours has made the session."""
    found = decode(metadata, dict[str, Any]) if metadata else {}
    ours = found.get("optchat")
    return isinstance(ours, dict) and cast("dict[str, Any]", ours).get("internal") is True
