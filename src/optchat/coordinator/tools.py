"""The retrieval tools as a model calls them: raw arguments in, one answer out (§8)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from optchat.coordinator.aliases import call_alias
from optchat.engine import browse, conversations, retrieve
from optchat.engine.answers import Answer
from optchat.engine.recall.answer import search
from optchat.engine.visible import Reader
from optchat.errors import BadInput
from optchat.wire import ALIAS_NAMES, ChildInfo


class _Zoom(msgspec.Struct, forbid_unknown_fields=True):
    ref: str
    cursor: str | None = None
    max_tokens: int | None = None


class _Search(msgspec.Struct, forbid_unknown_fields=True):
    query: str
    session: str | None = None
    project: str | None = None
    directory: str | None = None
    role: str | None = None
    evidence: str | None = None
    kind: str | None = None
    tool: str | None = None
    file: str | None = None
    outcome: str | None = None
    before: str | None = None
    after: str | None = None
    since: str | None = None
    until: str | None = None
    last: str | None = None
    group: str | None = None
    family: bool | None = None
    limit: int | None = None
    cursor: str | None = None


class _Date(msgspec.Struct, forbid_unknown_fields=True):
    ref: str


class _Sessions(msgspec.Struct, forbid_unknown_fields=True):
    parent: str | None = None
    search: str | None = None
    since: str | None = None
    until: str | None = None
    archived: bool = False
    files: bool = False
    tools: bool = False
    limit: int | None = None
    cursor: str | None = None


class _Messages(msgspec.Struct, forbid_unknown_fields=True):
    ref: str | None = None
    before: int = 0
    after: int = 0
    session: str | None = None
    role: str | None = None
    query: str | None = None
    limit: int | None = None
    max_tokens: int | None = None
    cursor: str | None = None


_HINTS = {
    "memory_zoom": 'call it as {"ref": "pub:24+8"}',
    "memory_search": 'call it as {"query": "words to find"}',
    "memory_date": 'call it as {"ref": "pub:24"}',
    "recall": 'call it as {"query": "words to find"}',
    "recall_get": 'call it as {"sessionID": "s12", "messageID": "s12:0:71"}',
    "recall_context": 'call it as {"messageID": "s12:0:71", "window": 3}',
    "memory_messages": 'call it as {"session": "s12"} or {"ref": "s12:0:71", "before": 2}',
}


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
_HALF = re.compile("[\ud800-\udfff]")


def raw_arguments(text: str) -> Any:
    """A model's arguments from their JSON. Half of a surrogate pair is no character, and no error.

    Raises:
        BadInput: it is no JSON.
    """
    whole = _ESCAPE.sub(_whole, _HALF.sub("\ufffd", text))
    try:
        return msgspec.json.decode(whole or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"the arguments are no JSON ({error}); nothing was read.") from None


def _whole(escape: re.Match[str]) -> str:
    return "\ufffd" if len(escape[0]) == len("\\ud800") else escape[0]


def call_tool(
    reader: Reader,
    tool: str,
    args: Any,
    children: Sequence[ChildInfo] = (),
    *,
    now_ms: int,
    aliases: bool = False,
) -> Answer:
    """Validate a model's raw arguments and run the tool; the host does not validate them.

    Raises:
        BadInput: an argument is missing, misspelt or of another type, or the tool is an alias and
            ``aliases`` are off.
    """
    try:
        if tool in ALIAS_NAMES:
            if not aliases:
                raise BadInput(
                    f"{tool} is another system's name, and those are off; nothing was read.",
                    hint="call memory_search, memory_messages or memory_sessions; "
                    "[recall] aliases = true switches such names on",
                )
            return call_alias(reader, tool, args, lambda t, a: _run(reader, t, a, children, now_ms))
        return _run(reader, tool, args, children, now_ms)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{tool} was called with wrong arguments: {error}; nothing was read.",
            hint=_HINTS.get(tool, "call it as {}"),
        ) from None


def _run(
    reader: Reader, tool: str, args: Any, children: Sequence[ChildInfo], now_ms: int
) -> Answer:
    match tool:
        case "memory_zoom":
            return retrieve.zoom(reader, **_checked(args, _Zoom))
        case "memory_search":
            return search(reader, now_ms=now_ms, **_checked(args, _Search))
        case "memory_date":
            return retrieve.date(reader, **_checked(args, _Date))
        case "memory_messages":
            return _messages(reader, msgspec.convert(args, _Messages))
        case _:
            asked = _checked(args, _Sessions)
            return conversations.sessions(reader, **asked, children=children)


def _checked(args: Any, kind: type[msgspec.Struct]) -> dict[str, Any]:
    return msgspec.structs.asdict(msgspec.convert(args, kind))


def _messages(reader: Reader, asked: _Messages) -> Answer:
    """One message with those around it, or a page of a conversation; never half of each."""
    page = (asked.session, asked.role, asked.query, asked.limit)
    if asked.ref is None:
        if asked.before or asked.after or asked.max_tokens:
            raise BadInput(
                "before, after and max_tokens belong to a ref, and none was given; "
                "nothing was read.",
                hint=_HINTS["memory_messages"],
            )
        return browse.messages(
            reader,
            session=asked.session or "current",
            role=asked.role,
            query=asked.query,
            limit=asked.limit,
            cursor=asked.cursor,
        )
    if any(given is not None for given in page):
        raise BadInput(
            "session, role, query and limit choose a page, and ref one message; nothing was read.",
            hint=_HINTS["memory_messages"],
        )
    return browse.message(
        reader,
        ref=asked.ref,
        before=asked.before,
        after=asked.after,
        max_tokens=asked.max_tokens,
        cursor=asked.cursor,
    )
