"""Other systems' tools by their names and parameters, answered by our own (§8).

Each call becomes one of ours; nothing is looked up here. What has no counterpart is said in the
answer instead of being dropped. Their session and message ids are the host's own, and are resolved
among what the reader may see.
"""

from __future__ import annotations

from typing import Any

import msgspec

from optchat.coordinator.recalling import (
    Args,
    Own,
    Recall,
    of_scope,
    recall,
    with_ids,
    with_notes,
)
from optchat.core.context import escape
from optchat.engine.answers import Answer
from optchat.engine.visible import Reader
from optchat.errors import BadInput, NotFound
from optchat.refs import SessionRef, Span, parse_ref

_SESSIONS = 20


class _Get(Args):
    message_id: str = msgspec.field(name="messageID")
    session_id: str = msgspec.field(name="sessionID", default="current")


class _Context(_Get):
    window: int = 3
    before: int | None = None
    after: int | None = None


class _Messages(Args):
    session_id: str = msgspec.field(name="sessionID", default="current")
    limit: int | None = None
    cursor: str | None = None
    role: str | None = None
    query: str | None = None


class _Sessions(Args):
    scope: str | None = None
    parent_id: str | None = msgspec.field(name="parentID", default=None)
    search: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None


class _Tree(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    node_id: str | None = None
    query: str | None = None


def call_alias(reader: Reader, alias: str, args: Any, own: Own) -> Answer:
    """Answer a call under another system's name.

    Raises:
        BadInput: an argument is missing, misspelt or of another type; as the tool behind it.
        msgspec.ValidationError: the arguments do not fit their parameters.
    """
    reader.check_epoch()
    match alias:
        case "recall":
            return recall(reader, msgspec.convert(args, Recall), own)
        case "recall_get":
            got = msgspec.convert(args, _Get)
            return own("memory_messages", {"ref": _ref(reader, got.session_id, got.message_id)})
        case "recall_context":
            near = msgspec.convert(args, _Context)
            return own(
                "memory_messages",
                {
                    "ref": _ref(reader, near.session_id, near.message_id),
                    "before": near.window if near.before is None else near.before,
                    "after": near.window if near.after is None else near.after,
                },
            )
        case "recall_messages":
            asked = msgspec.convert(args, _Messages)
            page = {
                "session": asked.session_id,
                "limit": asked.limit,
                "cursor": asked.cursor,
                "role": None if asked.role == "all" else asked.role,
                "query": asked.query,
            }
            return with_ids(reader, own("memory_messages", page), "messages")
        case "recall_sessions":
            return _sessions(msgspec.convert(args, _Sessions), own)
        case _:
            return _tree(msgspec.convert(args, _Tree), own)


def _ref(reader: Reader, session: str, message: str) -> str:
    """The reference of a message by its host's id, or the one that was given.

    Raises:
        NotFound: there is none that the reader may see, in the same words for every reason.
    """
    try:
        return str(parse_ref(message))
    except BadInput:
        pass
    known = reader.named(session)
    held = reader.tx.membership.message(known.session_id, message)
    if held is not None and held.end_seq_exclusive > held.start_seq:
        ref = SessionRef(known.number, known.generation, Span(held.start_seq, 1))
        try:
            reader.session(ref)
        except NotFound:
            held = None
        else:
            return str(ref)
    raise NotFound(
        f"{message[:80]!r} names no message of that conversation in this memory.",
        hint="use an id or a reference as it is shown; recall_messages shows them",
    )


def _tree(asked: _Tree, own: Own) -> Answer:
    if (asked.node_id is None) == (asked.query is None):
        raise BadInput(
            "search_memory_tree takes node_id or query, one of the two; nothing was read.",
            hint='call it as {"node_id": "pub:24+8"} or {"query": "words to find"}',
        )
    if asked.query is not None:
        return own("memory_search", {"query": asked.query})
    if asked.node_id and asked.node_id.startswith("node"):
        raise BadInput(
            f"{asked.node_id[:40]!r} is a node of opencode-memory-tree, which are not kept by "
            "name; nothing was read.",
            hint="open a reference as it is shown, such as pub:24+8, or search for its words",
        )
    return own("memory_zoom", {"ref": asked.node_id})


def _sessions(asked: _Sessions, own: Own) -> Answer:
    args = {
        "parent": asked.parent_id,
        "search": asked.search,
        "since": asked.since,
        "until": asked.until,
        "limit": _SESSIONS if asked.limit is None else asked.limit,
        "files": True,
        "tools": True,
    }
    answer = own("memory_sessions", args)
    for row in answer.data["sessions"]:
        answer.lines.append(f"{row['session']} is sessionID {escape(row['host_session'])}")
    notes = of_scope(asked.scope) if asked.scope is not None else []
    if answer.cursor is not None:
        notes.append("there are more; narrow it with search, since or until")
    return with_notes(answer, notes)
