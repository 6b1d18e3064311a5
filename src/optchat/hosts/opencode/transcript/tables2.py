"""The tables of OpenCode 2.x: a row for each message, its content in it.

Seen on a community build of 2.0.14, with text, tools, failures and a fork; see docs/opencode.md.
"""

from __future__ import annotations

from typing import Any

from optchat.hosts.opencode.transcript.database import Database
from optchat.hosts.opencode.transcript.live import live, untouched
from optchat.hosts.opencode.transcript.messages import (
    Failure,
    HostMessage,
    HostPart,
    HostSession,
    Info,
    Row,
    Span,
    State,
    Times,
    decode,
)
from optchat.hosts.opencode.transcript.sessions import sessions

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
    input: Any = None
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
        """All of them, oldest first; see ``sessions``."""
        return sessions(self._database, "session_v2", "session_message", origin="s.fork_session_id")

    def messages(self, session: HostSession) -> list[HostMessage]:
        """A session's messages, in the host's order; what was gone back behind is left out.

        Raises:
            BadInput: the file cannot be read, or a row of it.
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

    def ids(self, session: HostSession) -> list[str]:
        """Those of its messages that are as they were written, without reading them."""
        with self._database.moment() as db:
            rows = db.execute(
                "select id from session_message where session_id = ? "
                "and type in ('user', 'synthetic', 'assistant') order by seq",
                (session.id,),
            ).fetchall()
        return untouched((id_ for (id_,) in rows), session.revert)

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
