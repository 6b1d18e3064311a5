"""What is read of the host's sessions, messages and parts: just what is told of them (§3).

Fields of the host that are not named here are passed over; reasoning, snapshots and step marks end
here.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from optchat.errors import BadInput
from optchat.hosts.opencode.transcript import javascript

GLOBAL = "global"
"""The host gives this one project id to every directory outside version control."""

T = TypeVar("T")


class Row(msgspec.Struct, kw_only=True, rename="camel"):
    """The base of what is decoded from the host's JSON."""


class Revert(msgspec.Struct, kw_only=True):
    """Where a person has gone back to: what follows is dead, though it is still there."""

    message_id: str = msgspec.field(name="messageID")
    part_id: str | None = msgspec.field(name="partID", default=None)


class HostSession(msgspec.Struct, kw_only=True, frozen=True):
    """One session of the host. ``mark`` moves with whatever changes in it or its messages."""

    id: str
    project_id: str
    directory: str
    title: str
    created_ms: int
    updated_ms: int
    project_directory: str = ""
    worktree: str | None = None
    parent_id: str | None = None
    archived: bool = False
    internal: bool = False
    revert: Revert | None = None
    fork_of: str | None = None  # where the host says so itself
    messages: int = 0
    mark: str = ""


class Times(Row):
    created: int
    completed: int | None = None


class Failure(Row):
    name: str = ""


class Info(Row):
    """A message without its parts. ``summary`` is true for an assistant's that is a compaction."""

    role: str
    time: Times
    summary: Any = None
    finish: str | None = None
    error: Failure | None = None


class Span(Row):
    start: int | float | None = None
    end: int | float | None = None


class Metadata(Row):
    """Of a part's metadata what says how to read it."""

    truncated: Any = None
    output_path: Any = None
    compaction_continue: Any = msgspec.field(name="compaction_continue", default=None)
    optchat: Any = None


class HostPart(Row):
    """Any part; which fields it has goes by its ``type``."""

    type: str
    id: str = ""
    text: str = ""
    synthetic: Any = None
    ignored: Any = None
    metadata: Metadata | None = None
    prompt: str = ""
    overflow: Any = None
    mime: str | None = None
    filename: str | None = None
    url: str = ""
    tool: str = ""
    state: State | None = None


class State(Row):
    """A call as far as it has come."""

    status: str
    input: Any = None
    output: str | None = None
    error: str | None = None
    title: str | None = None
    metadata: Metadata | None = None
    time: Span | None = None
    attachments: list[HostPart] | None = None


class HostMessage(msgspec.Struct, kw_only=True):
    """A message with its parts, in the host's order."""

    id: str
    info: Info
    parts: list[HostPart]


def decode(data: str | bytes, kind: type[T]) -> T:
    """The host's JSON as one of the structures above; half surrogates in it are replaced.

    Raises:
        BadInput: it is no such thing.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass  # half of a pair is no JSON for every parser, but it is for JavaScript
    try:
        return msgspec.json.decode(javascript.stringify(javascript.parse(data)), type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadInput(f"a row of the host does not read as expected: {error}") from None
