"""Session files of the common form, and how a file that cannot be used is refused.

A file may leave out what it does not know: titles, times, parents, cases. What it says must parse.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from optchat.errors import BadInput

NOW_MS = 1_796_040_000_000
"""What "now" is in an evaluation, so that a file gives the same figures on each day."""

HINT = "optchat eval retrieval --help"

F = TypeVar("F")


class Text(msgspec.Struct, tag="text"):
    """What somebody wrote."""

    id: str
    text: str


class Reasoning(msgspec.Struct, tag="reasoning"):
    """What a model thought; never kept, so that nothing of it may be found (§3)."""

    id: str
    text: str


class Tool(msgspec.Struct, tag="tool"):
    """A call with its result."""

    id: str
    tool: str
    input: Any = None
    output: str | None = None
    error: str | None = None
    title: str | None = None
    status: Literal["pending", "running", "completed", "error"] = "completed"


class Message(msgspec.Struct):
    """One message of a session."""

    id: str
    role: Literal["user", "assistant"]
    created: int = 0
    parts: list[Text | Reasoning | Tool] = []


class Session(msgspec.Struct):
    """One session; times are milliseconds, of the epoch once the file is loaded."""

    id: str
    title: str = ""
    directory: str = "/workspace"
    parent_id: str | None = None
    created: int = 0
    updated: int = 0
    messages: list[Message] = []


class Arguments(msgspec.Struct):
    """How a case is asked, in the words of the form."""

    query: str
    since: str | None = None
    until: str | None = None
    directory: str | None = None
    match: Literal["literal", "smart", "fuzzy"] = "smart"
    group: Literal["part", "session"] = "session"
    scope: Literal["session", "project", "global"] = "global"


class Expected(msgspec.Struct):
    """Constraints beyond the rank: exclusions, and the classes of the first hits."""

    not_in_results: list[str] = []
    class_in_top3: list[str] = []
    max_class_in_top5: dict[str, int] = {}


class Case(msgspec.Struct):
    """A question and the sessions that answer it."""

    name: str
    args: Arguments
    ctx_session: str | None = None
    relevant: list[str] = []
    expect: Expected = msgspec.field(default_factory=Expected)

    @property
    def competency(self) -> str:
        """What the case tests: its name up to its number, or up to its colon."""
        return self.name.split(" #", 1)[0].split(":", 1)[0]


class SessionFile(msgspec.Struct):
    """A whole file. ``extra`` are cases that are told and not counted."""

    sessions: list[Session]
    cases: list[Case] = []
    extra: list[Case] = []
    time_unit: str = ""


def read(path: Path, kind: type[F]) -> F:
    """A JSON file as ``kind``.

    Raises:
        BadInput: it is not there, empty, cut off, or of another form; the message says where.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.", hint=f"ls -l {path}") from None
    if not content.strip():
        raise BadInput(f"{path} is empty; nothing was evaluated.", hint=HINT)
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{path} is of another form: {error}; nothing was evaluated.", hint=HINT
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path} is no whole JSON document ({error}); nothing was evaluated.",
            hint=f"python -m json.tool {path}",
        ) from None


def load(path: Path) -> SessionFile:
    """A session file with its times on the evaluation's clock.

    Raises:
        BadInput: as ``read``, or it holds no session, an id twice, or a case about none of them.
    """
    found = read(path, SessionFile)
    if not found.sessions:
        raise BadInput(f"{path} holds no session; nothing was evaluated.", hint=HINT)
    known = {session.id for session in found.sessions}
    messages = [message for session in found.sessions for message in session.messages]
    twice = (
        _twice(session.id for session in found.sessions)
        or _twice(message.id for message in messages)
        or _twice(part.id for message in messages for part in message.parts)
    )
    if twice is not None:
        raise BadInput(f"{path} has the id {twice!r} twice; nothing was evaluated.", hint=HINT)
    for case in (*found.cases, *found.extra):
        unknown = {*case.relevant, *case.expect.not_in_results} - known
        if unknown or not case.relevant:
            named = f"session {min(unknown)!r}, which it does not hold" if unknown else "no session"
            raise BadInput(
                f"{path}: the case {case.name!r} is about {named}; nothing was evaluated.",
                hint=HINT,
            )
    if "1970" not in found.time_unit:
        for session in found.sessions:
            session.created += NOW_MS
            session.updated += NOW_MS
            for message in session.messages:
                message.created += NOW_MS
    return found


def _twice(ids: Iterator[str]) -> str | None:
    seen: set[str] = set()
    return next((i for i in ids if i in seen or seen.add(i)), None)
