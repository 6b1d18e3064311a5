"""The one searchable text of a record, from what is kept of it (§3, §8).

It is made again whenever it is needed: an index holds the words of it, and nothing holds a copy. So
it must come out the same each time; when a rule changes, ``TEXT_VERSION`` does, and every store
makes its index anew.
"""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

from optchat.core.records import RecordKind
from optchat.masking import MASK_VERSION, mask
from optchat.wire import OWN_TOOLS

TEXT_VERSION = 1

RULES = f"{TEXT_VERSION}/{MASK_VERSION}"
"""What the text of a record, and so an index of it, depends on."""


def has_words(tool: str | None, payload_bytes: int) -> bool:
    """Whether a record is searched: it holds something, and is no call or result of our own tools.

    What these answer is other sessions' text and no session's own, and who searches again is not
    to find that he has searched.
    """
    return payload_bytes > 0 and tool not in OWN_TOOLS


def searched_text(
    kind: RecordKind, tool: str | None, attachments: tuple[str, ...], payload: bytes
) -> str:
    """What a search finds the record by; "" for one without words. Cost O(n).

    A call's input is told as its names and values, without the syntax of JSON; an attachment by its
    name; everything else as it is kept. Secrets are masked, whatever is configured: an index is no
    place for them.
    """
    if not has_words(tool, len(payload)):
        return ""
    text = readable(payload)
    if kind is RecordKind.TOOL_CALL:
        text = _told(text)
    elif text in attachments and kind in (RecordKind.USER, RecordKind.ASSISTANT):
        text = _attachment(text)
    return mask(text)


def readable(payload: bytes) -> str:
    """A payload as it can be shown and searched, where half of a surrogate pair is no character."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        pass
    try:
        return payload.decode("utf-8", "surrogatepass").encode("utf-8", "replace").decode()
    except UnicodeDecodeError:
        return payload.decode("utf-8", "replace")


def _told(text: str) -> str:
    try:
        value = _parsed(text)
    except (ValueError, RecursionError):
        return text
    lines: list[str] = []
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:  # no recursion: what a model writes may be nested as deep as it likes
        name, found = pending.pop()
        if isinstance(found, dict):
            pending += reversed(cast("dict[str, Any]", found).items())
        elif isinstance(found, list):
            pending += [(name, v) for v in reversed(cast("list[Any]", found))]
        else:
            lines.append(f"{name}: {found}" if name else str(found))
    told = "\n".join(lines)
    return told if told.isascii() else told.encode("utf-8", "replace").decode()


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:  # it reads no half of a pair and no number out of range
        return json.loads(text)


def _attachment(manifest: str) -> str:
    found = json.loads(manifest)
    return f"attached {found.get('filename') or 'file'} ({found.get('mime')})"
