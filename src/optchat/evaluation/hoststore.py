"""Sessions as a store of OpenCode 1.18, so that an evaluation imports what a person would import.

The four tables are those that an import reads, with the host's own column names and JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from optchat.evaluation.files import Message, Reasoning, Session, Text, Tool

VERSION = "1.18.33"

TABLES = """
create table project (
  id text primary key, worktree text not null, vcs text, name text, icon_url text,
  icon_url_override text, icon_color text, time_created integer not null,
  time_updated integer not null, time_initialized integer, sandboxes text not null, commands text);
create table session (
  id text primary key,
  project_id text not null references project (id) on delete cascade,
  workspace_id text, parent_id text, slug text not null, directory text not null, path text,
  title text not null, version text not null, share_url text, summary_additions integer,
  summary_deletions integer, summary_files integer, summary_diffs text, metadata text,
  cost real default 0 not null, tokens_input integer default 0 not null,
  tokens_output integer default 0 not null, tokens_reasoning integer default 0 not null,
  tokens_cache_read integer default 0 not null, tokens_cache_write integer default 0 not null,
  revert text, permission text, agent text, model text, time_created integer not null,
  time_updated integer not null, time_compacting integer, time_archived integer);
create table message (
  id text primary key,
  session_id text not null references session (id) on delete cascade,
  time_created integer not null, time_updated integer not null, data text not null);
create table part (
  id text primary key,
  message_id text not null references message (id) on delete cascade,
  session_id text not null, time_created integer not null, time_updated integer not null,
  data text not null);
create index session_project_idx on session (project_id);
create index session_parent_idx on session (parent_id);
create index message_session_time_created_id_idx on message (session_id, time_created, id);
create index part_message_id_id_idx on part (message_id, id);
create index part_session_idx on part (session_id);
"""


def write(path: Path, sessions: Iterable[Session]) -> int:
    """Write a new store; its size in bytes. A project is a directory."""
    database: Any = apsw.Connection(str(path))
    database.pragma("journal_mode", "wal")
    database.pragma("synchronous", 0)  # nobody's data: it goes with the evaluation
    projects: dict[str, str] = {}
    with database:
        for statement in TABLES.split(";"):
            database.execute(statement)
        for session in sessions:
            project = projects.get(session.directory)
            if project is None:
                project = projects[session.directory] = f"prj_{len(projects):04d}"
                database.execute(
                    "insert into project (id, worktree, time_created, time_updated, sandboxes) "
                    "values (?, ?, ?, ?, '[]')",
                    (project, session.directory, session.created, session.created),
                )
            database.execute(
                "insert into session (id, project_id, parent_id, slug, directory, title, version, "
                "time_created, time_updated) "
                "values (:id, :project, :parent_id, :id, :directory, :title, :version, "
                ":created, :updated)",
                {**msgspec.structs.asdict(session), "project": project, "version": VERSION},
            )
            database.executemany("insert into message values (?, ?, ?, ?, ?)", _messages(session))
            database.executemany("insert into part values (?, ?, ?, ?, ?, ?)", _parts(session))
    database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    database.close()
    return path.stat().st_size


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _messages(session: Session) -> Iterator[tuple[Any, ...]]:
    asked = None
    last = (0, "")
    for index, message in enumerate(session.messages):
        # The host orders by time and id: where that is not the file's order, a moment is added.
        at = max(message.created, last[0])
        at += (at, message.id) < last
        last = (at, message.id)
        info: dict[str, Any] = {"role": message.role, "time": {"created": at}, "agent": "build"}
        if message.role == "user":
            asked = message.id
        else:
            following = session.messages[index + 1 : index + 2]
            goes_on = bool(following) and following[0].role == "assistant"
            info |= {
                "parentID": asked or message.id,
                "time": {"created": at, "completed": at + 10},
                "finish": "tool-calls" if goes_on else "stop",
            }
        yield message.id, session.id, at, at, _json(info)


def _parts(session: Session) -> Iterator[tuple[Any, ...]]:
    for message in session.messages:
        for part in message.parts:
            at = message.created
            yield part.id, message.id, session.id, at, at, _json(_part(message, part))


def _part(message: Message, part: Text | Reasoning | Tool) -> dict[str, Any]:
    at = message.created
    if not isinstance(part, Tool):
        kind = "text" if isinstance(part, Text) else "reasoning"
        return {"type": kind, "text": part.text, "time": {"start": at, "end": at + 1}}
    state: dict[str, Any] = {"status": part.status, "input": part.input or {}}
    if part.status == "error":
        state["error"] = part.error or ""
    elif part.status == "completed":
        state |= {"output": part.output or "", "title": part.title or "", "metadata": {}}
    state["time"] = {"start": at, "end": at + 5}
    return {"type": "tool", "tool": part.tool, "callID": f"call_{part.id}", "state": state}
