"""``recall`` of opencode-session-recall, as searches of ours (§8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
_PAGES_MAX = 5
_EXPANDED_HITS = 5
_KINDS = {
    "text": frozenset({"user", "assistant", "report", "title", "summary"}),
    "tool": frozenset({"tool_call", "tool_result"}),
}


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


def recall(reader: Reader, asked: Recall, own: Own) -> Answer:
    """Search as they would, and say what there is no counterpart for."""
    if asked.type == "reasoning":
        return with_notes(
            Answer("recall", reader.visibility, [], [], {"hits": []}),
            ["reasoning is never kept here, so that there is none to search; nothing was searched"],
        )
    args, notes = _searched(reader, asked, own)
    if args is None:
        return with_notes(Answer("recall", reader.visibility, [], [], {"hits": []}), notes)
    answer = _chosen(_keeps(reader, asked), args, own)
    if asked.explain:
        for hit in answer.data["hits"]:
            why = "; ".join([*hit["why"], f"holds {', '.join(hit['matched']) or 'none of them'}"])
            answer.lines.append(f"{hit['ref']} is a hit: {escape(why)}")
    _expand(answer, asked, own)
    return with_notes(with_ids(reader, answer, "hits"), notes)


def _searched(reader: Reader, asked: Recall, own: Own) -> tuple[dict[str, Any] | None, list[str]]:
    """The arguments of our search, None if nothing can be found, and what is to be said of them."""
    notes = [
        note
        for is_asked, note in (
            (asked.match == "regex", "a regular expression is searched for as it stands"),
            (isinstance(asked.sessions, int), "however many conversations there are are searched"),
            (asked.deep, "tool outputs are always searched, so that deep adds nothing"),
            (asked.width is not None, "width is fixed here"),
            (None not in (asked.after, asked.from_), "from is left out beside after"),
            (None not in (asked.before, asked.to), "to is left out beside before"),
        )
        if is_asked
    ]
    listed = asked.sessions if isinstance(asked.sessions, list) else []
    sessions = [asked.session_id, *listed] if asked.session_id else listed
    if asked.scope == "session" and not sessions:
        sessions = ["current"]
    elif asked.scope is not None:
        notes += of_scope(asked.scope)
    named = [f"s{reader.named(name).number}" for name in dict.fromkeys(sessions)]
    if asked.title is not None:
        titled = own("memory_sessions", {"search": asked.title, "archived": True})
        found = [row["session"] for row in titled.data["sessions"]]
        named = [name for name in found if not named or name in named]
        if not named:
            return None, [*notes, "no conversation has such a title; nothing was searched"]
    is_phrase = asked.match in ("literal", "regex") and '"' not in asked.query
    fields = {
        "session": ",".join(named) or None,
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
        "limit": min(max(asked.results or _RESULTS, 1), _RESULTS_MAX),
        "cursor": asked.deep_cursor,
    }
    query = f'"{asked.query}"' if is_phrase else asked.query
    return {"query": query} | {name: v for name, v in fields.items() if v is not None}, notes


def _keeps(reader: Reader, asked: Recall) -> Callable[[dict[str, Any]], bool] | None:
    """What chooses among hits beyond what our search can be asked; None where nothing does."""
    left_out = asked.exclude_session_id
    number = f"s{reader.named(left_out).number}" if left_out is not None else ""
    if asked.type not in (None, "all", *_KINDS):
        raise BadInput(
            f"type is {asked.type[:40]!r}; nothing was searched.",
            hint="type is text, tool, reasoning or all",
        )
    kinds = _KINDS.get(asked.type or "")
    if kinds is None and not number:
        return None
    return lambda hit: hit["session"] != number and (kinds is None or hit["kind"] in kinds)


def _chosen(
    keeps: Callable[[dict[str, Any]], bool] | None,
    args: dict[str, Any],
    own: Own,
) -> Answer:
    """The first page with enough of what was asked for, with what the pages before it had."""
    answer = own("memory_search", args)
    if keeps is None:
        return answer
    lines = answer.lines[:1]
    kept: list[dict[str, Any]] = []
    for page in range(1, _PAGES_MAX + 1):
        hits = [hit for hit in answer.data["hits"] if keeps(hit)]
        kept += hits
        refs = {hit["ref"] for hit in hits}
        lines += [line for line in answer.lines[1:] if line.split(" ", 1)[0] in refs]
        if len(kept) >= args["limit"] or answer.cursor is None or page == _PAGES_MAX:
            break
        answer = own("memory_search", args | {"cursor": answer.cursor})
    answer.lines = [*lines, f"{len(kept)} of them are of what was asked for"]
    answer.refs = [hit["ref"] for hit in kept]
    answer.data["hits"] = kept
    return answer


def _time(given: str | int | None) -> str | None:
    """A time as our own tools take it; theirs were milliseconds once."""
    if not isinstance(given, int):
        return given
    try:
        return datetime.fromtimestamp(given / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return str(given)  # to be refused where it is read


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
    for hit in answer.data["hits"][:_EXPANDED_HITS]:
        if hit["kind"] in ("summary", "title"):
            continue
        args = {"ref": hit["ref"], "before": window, "after": window, "max_tokens": 600}
        told = own("memory_messages", args)
        if answer.size + told.size > ANSWER_BYTES_MAX:
            answer.lines.append("what is around the other hits would be too much for one answer")
            return
        answer.lines += told.lines
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
