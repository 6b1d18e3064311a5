"""The form of a retrieval answer: text for a model, data for a program, and cursors (§8)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from optchat.core.context import shorten
from optchat.core.snapshots import Visibility
from optchat.errors import BadInput, SnapshotExpired
from optchat.masking import mask
from optchat.wire import ToolResponse

_OUR_TAGS = re.compile(
    r"[<＜﹤‹〈⟨❮˂ᐸ⧼](?=\W{0,16}(?:optchat_|shared_memory|own_history|now\b|notice\b))",
    re.IGNORECASE,
)
_BREAKS = re.compile(r"\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


TITLE_BYTES_MAX = 80


class Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a page ended. It grants nothing: the next page is filtered like the first."""

    kind: str
    of: str
    at: int
    snapshot: str


def encode_cursor(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def decode_cursor(text: str, *, kind: str, of: str, visibility: Visibility) -> int:
    """The position that a cursor of this very question stands for.

    Raises:
        BadInput: not a cursor, or one of another question.
        SnapshotExpired: the reader's snapshot has moved on since.
    """
    try:
        padded = text.strip() + "=" * (-len(text.strip()) % 4)
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=Cursor)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadInput(
            "the cursor is not one of ours; nothing was read.",
            hint="pass the cursor of the page before, unchanged, or leave it out",
        ) from None
    if cursor.kind != kind or cursor.of != of or cursor.at < 0:
        raise BadInput(
            "the cursor belongs to another question; nothing was read.",
            hint="repeat the call that gave it, with the same arguments, or leave the cursor out",
        )
    if cursor.snapshot != visibility.served:
        raise SnapshotExpired(
            "the cursor comes from an earlier snapshot; nothing was read.",
            hint="repeat the call without a cursor",
        )
    return cursor.at


@dataclass(slots=True)
class Answer:
    """One answer being put together."""

    title: str
    visibility: Visibility
    lines: list[str]
    refs: list[str]
    data: dict[str, Any]
    cursor: str | None = None

    @property
    def size(self) -> int:
        """The bytes of its lines so far."""
        return sum(len(line.encode("utf-8", "surrogatepass")) + 1 for line in self.lines)

    def response(self) -> ToolResponse:
        """The finished answer; says which snapshot was served and whether there is more."""
        complete = self.cursor is None
        tail = [f"snapshot: {self.visibility.served}", f"complete: {'yes' if complete else 'no'}"]
        if self.cursor is not None:
            tail.append(f"cursor: {self.cursor}")
        output = "\n".join([*self.lines, *tail])
        self.data |= {
            "snapshot": self.visibility.served,
            "complete": complete,
            "cursor": self.cursor,
        }
        return ToolResponse(
            output=output,
            title=shorten(mask(self.title), TITLE_BYTES_MAX),  # it may repeat a query
            refs=self.refs,
            snapshot=self.visibility.served,
            sha256=hashlib.sha256(output.encode("utf-8", "surrogatepass")).hexdigest(),
            complete=complete,
            data_json=msgspec.json.encode(self.data).decode(),
        )


def quoted(text: str) -> str:
    """An original as lines that none of its own can leave, whatever breaks them.

    Exact but for the marks and the one character that could open or close a block of ours.
    """
    bare = _OUR_TAGS.sub(lambda found: f"&#x{ord(found.group()):X};", text)
    return "> " + _BREAKS.sub(lambda found: found.group() + "> ", bare)
