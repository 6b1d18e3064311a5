"""The retrieval tools as a model calls them: raw arguments in, one answer out (§8)."""

from __future__ import annotations

from typing import Any

import msgspec

from optchat.engine import retrieve, search
from optchat.engine.answers import Answer
from optchat.engine.visible import Reader
from optchat.errors import BadInput


class _Zoom(msgspec.Struct, forbid_unknown_fields=True):
    ref: str
    cursor: str | None = None
    max_tokens: int | None = None


class _Search(msgspec.Struct, forbid_unknown_fields=True):
    query: str
    session: str | None = None
    before: str | None = None
    after: str | None = None
    cursor: str | None = None


class _Date(msgspec.Struct, forbid_unknown_fields=True):
    ref: str


class _Sessions(msgspec.Struct, forbid_unknown_fields=True):
    archived: bool = False
    cursor: str | None = None


def call_tool(reader: Reader, tool: str, args: Any) -> Answer:
    """Validate a model's raw arguments and run the tool; the host does not validate them.

    Raises:
        BadInput: an argument is missing, misspelt or of another type.
    """
    try:
        match tool:
            case "memory_zoom":
                asked = msgspec.convert(args, _Zoom)
                return retrieve.zoom(
                    reader, ref=asked.ref, cursor=asked.cursor, max_tokens=asked.max_tokens
                )
            case "memory_search":
                found = msgspec.convert(args, _Search)
                return search.search(
                    reader,
                    query=found.query,
                    session=found.session,
                    before=found.before,
                    after=found.after,
                    cursor=found.cursor,
                )
            case "memory_date":
                return retrieve.date(reader, ref=msgspec.convert(args, _Date).ref)
            case _:
                listed = msgspec.convert(args, _Sessions)
                return retrieve.sessions(reader, archived=listed.archived, cursor=listed.cursor)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{tool} was called with wrong arguments: {error}; nothing was read.",
            hint={
                "memory_zoom": 'call it as {"ref": "pub:24+8"}',
                "memory_search": 'call it as {"query": "words to find"}',
                "memory_date": 'call it as {"ref": "pub:24"}',
            }.get(tool, "call it as {}"),
        ) from None
