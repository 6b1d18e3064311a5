"""``recall`` of opencode-session-recall, as searches of ours (§8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from optchat.core.context import escape
from optchat.engine import browse
from optchat.engine.answers import Answer
from optchat.engine.visible import Reader
from optchat.errors import BadInput
from optchat.limits import ANSWER_BYTES_MAX

Own = Callable[[str, dict[str, Any]], Answer]
"""Runs one of our own tools with these raw arguments."""

_RESULTS = 10
_RESULTS_MAX = 50
_CONVERSATIONS_MAX = 10
_EXPANDED_HITS = 5
_TEXT_KINDS = frozenset({"user", "assistant", "report", "title", "summary"})


class Args(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Raw arguments; the names are theirs."""


class Recall(Args):
    query: str
    scope: str | None = None
    match: str | None = None
    group: str | None = None
    session_id: str | None = msgspec.field(name="sessionID", default=None)
    sessions: list[str] | int = []
    exclude_session_id: str | None = msgspec.field(name="excludeSessionID", default=None)
    exclude_current_session: bool | None = None
    type: str | None = None
    role: str | None = None
    authorship: str | None = None
    title: str | None = None
    directory: str | None = None
    project: str | None = None
    before: str | int | None = None
    after: str | int | None = None
    since: str | int | None = None
    until: str | int | None = None
    last: str | None = None
    from_: str | int | None = msgspec.field(name="from", default=None)
    to: str | int | None = None
    tool_name: str | None = None
    results: int | None = None
    width: int | None = None
    expand: str | None = None
    window: int | None = None
    explain: bool = False
    deep: bool = False
    deep_cursor: str | None = None


@dataclass(slots=True)
class _Plan:
    """Searches of ours that together are one of theirs, and what has to be said of it."""

    args: dict[str, Any]
    conversations: list[str | None]
    keep: Callable[[dict[str, Any]], bool]
    notes: list[str]


def recall(reader: Reader, asked: Recall, own: Own) -> Answer:
    limit = min(max(asked.results or _RESULTS, 1), _RESULTS_MAX)
    if asked.type == "reasoning":
        return with_notes(
            Answer("recall", reader.visibility, [], [], {"hits": []}),
            ["reasoning is never kept here, so that there is none to search; nothing was searched"],
        )
    plan = _plan(reader, asked, limit, own)
    answers = [
        own("memory_search", plan.args | ({"session": name} if name is not None else {}))
        for name in plan.conversations
    ]
    if not answers:
        empty = Answer("recall", reader.visibility, [], [], {"hits": []})
        return with_notes(empty, plan.notes)
    answer = answers[0]
    hits = [hit for found in answers for hit in found.data["hits"]]
    if len(answers) > 1 or not all(map(plan.keep, hits)):
        answer = _merged(reader, answers, sorted(hits, key=_score), plan.keep, limit)
    if asked.explain:
        for hit in answer.data["hits"]:
            why = "; ".join([*hit.get("why", []), f"holds {', '.join(hit['matched'])}"])
            answer.lines.append(f"{hit['ref']} is a hit: {escape(why)}")
    _expand(answer, asked, own)
    return with_notes(with_ids(reader, answer, "hits"), plan.notes)


def _plan(reader: Reader, asked: Recall, limit: int, own: Own) -> _Plan:
    notes: list[str] = []
    query = asked.query
    if asked.match in ("literal", "regex") and '"' not in query:
        query = f'"{query}"'
    if asked.match == "regex":
        notes.append("there are no regular expressions here; it was searched for as it stands")
    listed = asked.sessions if isinstance(asked.sessions, list) else []
    if isinstance(asked.sessions, int):
        notes.append("every conversation is searched, however many there are")
    named = [asked.session_id, *listed] if asked.session_id else listed
    conversations: list[str | None] = [f"s{reader.named(n).number}" for n in dict.fromkeys(named)]
    if asked.scope == "session" and not conversations:
        conversations = [f"s{reader.named('current').number}"]
    elif asked.scope is not None:
        notes += of_scope(asked.scope)
    if asked.title is not None:
        titled = own("memory_sessions", {"search": asked.title, "archived": True})
        found = [row["session"] for row in titled.data["sessions"]]
        conversations = [n for n in found if not conversations or n in conversations]
        if not conversations:
            notes.append("no conversation has such a title")
    elif not conversations:
        conversations = [None]
    if len(conversations) > _CONVERSATIONS_MAX:
        notes.append(f"only the first {_CONVERSATIONS_MAX} of {len(conversations)} were searched")
    left_out = reader.named(asked.exclude_session_id) if asked.exclude_session_id else None
    if asked.deep:
        notes.append("tool outputs are always searched, so that deep adds nothing")
    if asked.width is not None:
        notes.append("width is fixed here")
    if asked.after is not None and asked.from_ is not None:
        notes.append("from was left out beside after")
    if asked.before is not None and asked.to is not None:
        notes.append("to was left out beside before")
    kinds = {"text": _TEXT_KINDS, "tool": frozenset({"tool_call", "tool_result"})}
    if asked.type not in (None, "all", *kinds):
        raise BadInput(
            f"type is {asked.type[:40]!r}; nothing was searched.",
            hint="type is text, tool, reasoning or all",
        )

    def keep(hit: dict[str, Any]) -> bool:
        if left_out is not None and hit["ref"].startswith(f"s{left_out.number}:"):
            return False
        return hit["kind"] in kinds.get(asked.type or "", (hit["kind"],))

    fields = {
        "project": asked.project,
        "directory": asked.directory,
        "role": None if asked.role == "all" else asked.role,
        "evidence": asked.authorship,
        "tool": asked.tool_name,
        "before": _time(asked.to if asked.before is None else asked.before),
        "after": _time(asked.from_ if asked.after is None else asked.after),
        "since": _time(asked.since),
        "until": _time(asked.until),
        "last": asked.last,
        "group": {"part": "record"}.get(asked.group or "", asked.group),
        "family": True if asked.exclude_current_session is False else None,
        "limit": _RESULTS_MAX if left_out or asked.type in kinds else limit,
        "cursor": asked.deep_cursor,
    }
    args = {"query": query} | {name: v for name, v in fields.items() if v is not None}
    return _Plan(args, conversations[:_CONVERSATIONS_MAX], keep, notes)


def _time(given: str | int | None) -> str | None:
    """A time as our own tools take it; theirs were milliseconds once."""
    if not isinstance(given, int):
        return given
    try:
        return datetime.fromtimestamp(given / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return str(given)  # to be refused where it is read


def _score(hit: dict[str, Any]) -> float:
    return -float(hit["score"])


def _merged(
    reader: Reader,
    answers: Sequence[Answer],
    hits: Sequence[dict[str, Any]],
    keep: Callable[[dict[str, Any]], bool],
    limit: int,
) -> Answer:
    """One answer of several searches, or of one whose hits had to be chosen among."""
    answer = Answer(answers[0].title, reader.visibility, [], [], {**answers[0].data})
    kept = [hit for hit in hits if keep(hit)][:limit]
    lines = {line.split(" ", 1)[0]: line for found in answers for line in found.lines}
    answer.data["hits"] = kept
    answer.refs = [hit["ref"] for hit in kept]
    answer.lines = [
        f"{len(kept)} of {len(hits)} hits are as asked for",
        *[lines[ref] for ref in answer.refs if ref in lines],
    ]
    if any(found.cursor is not None for found in answers):
        answer.lines.append("there are more; ask with other words or one sessionID")
    return answer


def _expand(answer: Answer, asked: Recall, own: Own) -> None:
    """Put the messages of the first hits into the answer, or those around them."""
    if asked.expand in (None, "none"):
        return
    if asked.expand not in ("context", "message"):
        raise BadInput(
            f"expand is {asked.expand[:40]!r}; nothing was searched.",
            hint="expand is none, context or message",
        )
    window = min(max(asked.window or 2, 0), 5) if asked.expand == "context" else 0
    size = sum(len(line.encode()) for line in answer.lines)
    for hit in answer.data["hits"][:_EXPANDED_HITS]:
        if hit["kind"] in ("summary", "title"):
            continue
        args = {"ref": hit["ref"], "before": window, "after": window, "max_tokens": 600}
        told = own("memory_messages", args)
        added = "\n".join(told.lines)
        size += len(added.encode())
        if size > ANSWER_BYTES_MAX:
            answer.lines.append("what is around the other hits would be too much for one answer")
            return
        answer.lines.append(added)
        answer.refs += [ref for ref in told.refs if ref not in answer.refs]


def of_scope(scope: str) -> list[str]:
    if scope not in ("session", "project", "global"):
        raise BadInput(
            f"scope is {scope[:40]!r}; nothing was searched.",
            hint="scope is session, project or global",
        )
    if scope == "session":
        return []
    return ["who shares with whom is configured, and all that is shared with this one was searched"]


def with_ids(reader: Reader, answer: Answer, name: str) -> Answer:
    """Name the host's ids of what is shown, which the other calls take."""
    told: list[str] = []
    for shown in answer.data[name]:
        ids = browse.host_ids(reader, shown["ref"])
        if ids is not None:
            shown["sessionID"], shown["messageID"] = ids
            told.append(f"{shown['ref']} is messageID {escape(ids[1])} of {escape(ids[0])}")
    answer.lines += told
    return answer


def with_notes(answer: Answer, notes: Sequence[str]) -> Answer:
    answer.lines[:0] = [f"note: {note}" for note in notes]
    answer.data["notes"] = list(notes)
    return answer
