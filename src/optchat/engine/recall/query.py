"""What was asked: words, quoted phrases, ``-words`` and ``name:value`` filters (§8).

Any byte string is a query. What is neither a filter nor punctuation alone is literal text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, TypeVar, get_args

from optchat.core.evidence import AUTHORS, Evidence
from optchat.core.records import RecordKind
from optchat.errors import BadInput
from optchat.limits import QUERY_BYTES_MAX, QUERY_TERMS_MAX, SEARCH_PAGE_HITS, SEARCH_PAGE_HITS_MAX

T = TypeVar("T")


class Group(StrEnum):
    RECORD = "record"
    SESSION = "session"


OUTCOMES = frozenset({"completed", "interrupted", "failed", "error"})
"""Of a record: its call's own state, else how its turn ended."""

Field = Literal[
    "session", "project", "directory", "role", "evidence", "kind", "tool", "file", "outcome",
    "before", "after", "since", "until", "last", "group", "family", "limit",
]  # fmt: skip
FIELDS: frozenset[str] = frozenset(get_args(Field))

_TOKEN = re.compile(r'(-?)(?:([A-Za-z]+):(?="|[^\s"])(?:"([^"]*)"?|(\S+))|"([^"]*)"?|([^\s"]+))')
_PAST = re.compile(r"(\d{1,6})\s*([smhdwy])", re.ASCII | re.IGNORECASE)
_UNIT_MS = {
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
    "y": 365 * 86_400_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a record must be, besides holding the words. Times are half-open, in milliseconds.

    ``session``, ``project`` and ``directory`` are as they were written: names are resolved under
    the reader's visibility. ``tool`` and ``file`` are compared without case.
    """

    session: str | None = None
    project: str | None = None
    directory: str | None = None
    evidence: frozenset[Evidence] | None = None
    role: frozenset[Evidence] | None = None
    kind: frozenset[RecordKind] | None = None
    tool: str | None = None
    file: str | None = None
    outcome: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    family: bool = False

    @property
    def chosen(self) -> bool:
        """Whether any of them narrows the search."""
        return replace(self, family=False) != Filters()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A parsed query. Words and phrases are literal text in the order and case they were given."""

    words: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    filters: Filters = Filters()
    group: Group = Group.RECORD
    limit: int = SEARCH_PAGE_HITS


def parse_query(text: str, *, now_ms: int, **given: str | bool | int | None) -> Query:
    """The query that ``text`` and the fields that were ``given`` beside it make together.

    A field beside the text goes before the same one in it. ``now_ms`` is what ``last:2h`` counts
    from.

    Raises:
        BadInput: a field's value means nothing, there is nothing to look for, or over the bounds.
    """
    if len(text.encode("utf-8", "surrogatepass")) > QUERY_BYTES_MAX:
        raise BadInput(
            f"the query is over {QUERY_BYTES_MAX} bytes; nothing was searched.",
            hint="search for a few words of it",
        )
    words: dict[str, None] = {}
    phrases: dict[str, None] = {}
    excluded: dict[str, None] = {}
    fields: dict[str, str] = {}
    for minus, name, quoted_value, value, phrase, word in _TOKEN.findall(text):
        if name and name.lower() in FIELDS and not minus:
            fields[name.lower()] = quoted_value or value
            continue
        told = phrase or word or (f"{name}:{quoted_value or value}" if name else "")
        is_flag = minus and told.startswith("-")  # such as --no-verify
        told = f"-{told}" if is_flag else told
        into = excluded if minus and not is_flag else phrases if phrase else words
        if any(c.isalnum() for c in told):
            into[told] = None
    if not words and not phrases:
        words, excluded = excluded, {}  # nothing to take them from
    fields |= {name: str(value) for name, value in given.items() if value is not None}
    query = Query(
        words=tuple(words),
        phrases=tuple(phrases),
        excluded=tuple(excluded),
        filters=_filters(fields, now_ms),
        group=_one_of(fields, "group", {g.value: g for g in Group}) or Group.RECORD,
        limit=_limit(fields),
    )
    if not words and not phrases and not query.filters.chosen:
        raise BadInput(
            "the query has no word to look for; nothing was searched.",
            hint="give at least one word or number",
        )
    if len(words) + len(phrases) + len(excluded) > QUERY_TERMS_MAX:
        raise BadInput(
            f"the query has more than {QUERY_TERMS_MAX} words; nothing was searched.",
            hint="keep the words that matter most",
        )
    return query


def parse_time(text: str, name: str, now_ms: int | None = None) -> int:
    """A moment in milliseconds: ISO, local unless it says otherwise, or ``2h`` before ``now_ms``.

    Raises:
        BadInput: it is neither.
    """
    past = _PAST.fullmatch(text.strip())
    if past is not None and now_ms is not None:
        return now_ms - int(past[1]) * _UNIT_MS[past[2].lower()]
    try:
        if now_ms is not None and (day := _day(text.strip().lower(), now_ms)) is not None:
            return day
        return int(datetime.fromisoformat(text.strip()).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # the last two: a year that no clock reaches
        raise BadInput(
            f"{name} is {text[:40]!r}, which is no date; nothing was searched.",
            hint="write it as 2026-11-30, 2026-11-30T14:05 or 7d",
        ) from None


def _day(text: str, now_ms: int) -> int | None:
    """The local midnight that begins today or yesterday."""
    days = {"today": 0, "yesterday": 1}.get(text)
    if days is None:
        return None
    midnight = (
        datetime.fromtimestamp(now_ms / 1000)
        .astimezone()
        .replace(hour=0, minute=0, second=0, microsecond=0)
    )
    naive = midnight.replace(tzinfo=None) - timedelta(days=days)
    return int(naive.astimezone().timestamp() * 1000)


def _filters(fields: dict[str, str], now_ms: int) -> Filters:
    def moments(*names: str) -> list[int]:
        return [parse_time(fields[n], n, now_ms) for n in names if n in fields]

    kind = _one_of(fields, "kind", {k.value: frozenset({k}) for k in RecordKind})
    return Filters(
        session=fields.get("session"),
        project=fields.get("project"),
        directory=fields.get("directory"),
        evidence=_one_of(fields, "evidence", {e.value: frozenset({e}) for e in Evidence}),
        role=_one_of(fields, "role", AUTHORS),
        kind=kind,
        tool=fields["tool"].lower() if "tool" in fields else None,
        file=fields["file"].lower() if "file" in fields else None,
        outcome=_one_of(fields, "outcome", {o: o for o in OUTCOMES}),
        since_ms=max(moments("after", "since", "last"), default=None),
        until_ms=min(moments("before", "until"), default=None),
        family=_one_of(fields, "family", {"true": True, "false": False}) or False,
    )


def _one_of(fields: dict[str, str], name: str, values: Mapping[str, T]) -> T | None:
    if name not in fields:
        return None
    found = values.get(fields[name].strip().lower().replace("-", "_"))
    if found is None:
        raise BadInput(
            f"{name} is {fields[name][:40]!r}; nothing was searched.",
            hint=f"it is one of {', '.join(sorted(values))}; quote it to search for it as text",
        )
    return found


def _limit(fields: dict[str, str]) -> int:
    told = fields.get("limit")
    if told is None:
        return SEARCH_PAGE_HITS
    if not re.fullmatch(r"\d{1,4}", told, re.ASCII) or not 1 <= int(told) <= SEARCH_PAGE_HITS_MAX:
        raise BadInput(
            f"limit is {told[:40]!r}; nothing was searched.",
            hint=f"give a number from 1 to {SEARCH_PAGE_HITS_MAX}",
        )
    return int(told)
