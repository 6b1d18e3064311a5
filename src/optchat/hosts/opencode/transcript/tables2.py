"""The tables of OpenCode 2.x: a row for each message, its content in it.

Seen on a community build of 2.0.14, with text, tools, failures and a fork; see docs/opencode.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from optchat.hosts.opencode.transcript.database import Database
from optchat.hosts.opencode.transcript.live import live
from optchat.hosts.opencode.transcript.messages import (
    GLOBAL,
    Failure,
    HostMessage,
    HostPart,
    HostSession,
    Info,
    Revert,
    Row,
    Span,
    State,
    Times,
    decode,
)
from optchat.hosts.opencode.transcript.tables import SEQUENCE, is_internal, worktree_of

_SESSIONS = f"""
select s.id, s.project_id, s.directory, s.title, s.time_created, s.time_updated, s.parent_id,
  s.time_archived, s.metadata, s.revert, s.fork_session_id, p.worktree, p.sandboxes,
  (select count(*) from session_message as m where m.session_id = s.id), {SEQUENCE}
from session_v2 as s left join project as p on p.id = s.project_id
order by s.time_created, s.id
"""  # noqa: S608
_SPOKEN = ("user", "synthetic", "assistant")
ABORTED = "MessageAbortedError"
"""What 1.18 calls a turn that its person has stopped."""


class _Text(Row):
    type: str = "text"
    text: str = ""


class _Error(Row):
    type: str = ""
    message: str = ""


class _State(Row):
    status: str = "completed"
    input: msgspec.Raw = msgspec.Raw(b"null")
    content: tuple[_Text, ...] = ()
    error: _Error | None = None


class _Content(Row):
    """A piece of an answer: what was said, thought or called."""

    type: str
    text: str = ""
    name: str = ""
    state: _State | None = None


class _File(Row):
    mime: str = ""
    name: str | None = None
    uri: str = ""


class _Message(Row):
    time: Times
    text: str = ""
    files: tuple[_File, ...] = ()
    content: tuple[_Content, ...] = ()
    finish: str | None = None
    error: _Error | None = None
    outcome: str = ""


class NewTables:
    """The sessions in these tables of a database."""

    NEEDED = frozenset({"session_v2", "session_message", "project", "event_sequence"})

    def __init__(self, database: Database) -> None:
        self._database = database

    def sessions(self) -> list[HostSession]:
        """All of them, oldest first, as of one moment.

        Raises:
            BadInput: the file cannot be read, or a row of it.
        """
        with self._database.moment() as db:
            return [_session(row) for row in db.execute(_SESSIONS)]

    def messages(self, session: HostSession) -> list[HostMessage]:
        """A session's messages, in the host's order; what was gone back behind is left out.

        Raises:
            BadInput: as ``sessions``.
        """
        with self._database.moment() as db:
            rows = db.execute(
                "select id, type, data from session_message where session_id = ? order by seq",
                (session.id,),
            ).fetchall()
        found: list[HostMessage] = []
        for id_, kind, data in rows:
            message = decode(data, _Message)
            if kind in _SPOKEN:
                found.append(_message(id_, kind, message))
            elif kind == "idle" and message.outcome == "interrupted" and found:
                found[-1].info.error = Failure(name=ABORTED)
        return live(found, session.revert)

    def times(self, session_id: str, count: int) -> list[tuple[int, str]]:
        """When the first messages were made and whose they are."""
        with self._database.moment() as db:
            rows = db.execute(
                "select type, data from session_message where session_id = ? "
                "and type in ('user', 'synthetic', 'assistant') order by seq limit ?",
                (session_id, count),
            ).fetchall()
        return [(decode(data, _Message).time.created, _role(kind)) for kind, data in rows]


def _role(kind: str) -> str:
    return "assistant" if kind == "assistant" else "user"


def _message(message_id: str, kind: str, message: _Message) -> HostMessage:
    """A row in the form of 1.18, which is what the protocol was made for."""
    parts: list[HostPart] = []
    if kind != "assistant":
        parts.append(HostPart(type="text", text=message.text, synthetic=kind == "synthetic"))
        parts += [
            HostPart(type="file", mime=f.mime, filename=f.name, url=f.uri) for f in message.files
        ]
    for piece in message.content:
        parts.append(_piece(piece, message.time))
    for index, part in enumerate(parts):
        part.id = f"{message_id}_{index}"
    error = Failure(name=message.error.type) if message.error else None
    info = Info(role=_role(kind), time=message.time, finish=message.finish, error=error)
    return HostMessage(id=message_id, info=info, parts=parts)


def _piece(piece: _Content, time: Times) -> HostPart:
    state = piece.state
    if piece.type != "tool" or state is None:
        return HostPart(type=piece.type, text=piece.text)
    told = State(
        status=state.status,
        input=state.input,
        output="\n".join(c.text for c in state.content if c.text) or None,
        error=state.error.message if state.error else None,
        time=Span(start=time.created, end=time.completed),
    )
    return HostPart(type="tool", tool=piece.name, state=told)


def _session(row: tuple[Any, ...]) -> HostSession:
    id_, project, directory, title, created, updated, parent, archived = row[:8]
    metadata, revert, origin, worktree, sandboxes, count, sequence = row[8:]
    return HostSession(
        id=id_,
        project_id=project,
        directory=directory,
        title=title or "",
        created_ms=created,
        updated_ms=updated,
        project_directory=worktree or directory,
        worktree=None if project == GLOBAL else worktree_of(directory, worktree, sandboxes),
        parent_id=parent,
        archived=archived is not None,
        internal=is_internal(metadata),
        revert=decode(revert, Revert) if revert else None,
        fork_of=origin,
        messages=count,
        mark=f"{updated}:{count}:{sequence or 0}",
    )
