"""A request as the model endpoint received it: parts, size, and bytes in prefix order."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

Json = dict[str, Any]
Purpose = Literal["main", "title", "compaction", "other"]

_TITLE_MARK = "You are a title generator"
_COMPACTION_MARKS = ("Here is the conversation so far", "anchored context summarization")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRequest:
    """One request as it came over the wire."""

    number: int
    path: str
    raw: bytes
    body: Json
    headers: Mapping[str, str]
    session_id: str | None
    parent_session_id: str | None
    purpose: Purpose

    @property
    def model(self) -> str:
        """The model the request asks for."""
        return str(self.body.get("model", ""))

    @property
    def messages(self) -> list[Json]:
        """The messages in provider order."""
        return cast(list[Json], self.body.get("messages") or [])

    @property
    def tools(self) -> list[Json]:
        """The tool definitions in provider order."""
        return cast(list[Json], self.body.get("tools") or [])

    @property
    def tool_names(self) -> list[str]:
        """The names of the offered tools in provider order."""
        return [str(tool["function"]["name"]) for tool in self.tools]

    @property
    def system_texts(self) -> list[str]:
        """The text of each system message."""
        return [content_text(m) for m in self.messages if m.get("role") == "system"]

    @property
    def user_texts(self) -> list[str]:
        """The text of each user message."""
        return [content_text(m) for m in self.messages if m.get("role") == "user"]

    @property
    def last_user_text(self) -> str:
        """The text of the last user message, or nothing."""
        return self.user_texts[-1] if self.user_texts else ""

    @property
    def text(self) -> str:
        """The whole body as text, for searching."""
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def prompt_tokens(self) -> int:
        """The size of this request by the provider's own count."""
        return count_tokens(self.body)


def content_text(message: Mapping[str, Any]) -> str:
    """Join the text of a message's content, be it a string or a list of parts."""
    content: object = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = cast(list[Json], content)
        return "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
    return ""


def canonical_bytes(request: CapturedRequest | Mapping[str, Any]) -> bytes:
    """Lay out what a prefix cache would see: tools first, then messages, one JSON line each.

    A conversation that only grows gives byte strings of which each is a prefix of the next.
    """
    body = request.body if isinstance(request, CapturedRequest) else request
    tools = cast(list[Json], body.get("tools") or [])
    messages = cast(list[Json], body.get("messages") or [])
    lines: list[object] = [tools, *messages]
    return b"".join(compact(line).encode() + b"\n" for line in lines)


def common_prefix_bytes(first: bytes, second: bytes) -> int:
    """Count the leading bytes that two byte strings share."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


_WORD = re.compile(r"[A-Za-z]+")
_SYMBOL = re.compile(r"[!-@\[-`{-~]")
_NON_ASCII = re.compile(r"[^\x00-\x7f]")


def count_text_tokens(content: str) -> int:
    """Count tokens of a text by a fixed rule that knows nothing of the code under test.

    A run of ASCII letters costs ``ceil(length / 4)``; each digit, punctuation mark or other
    printable ASCII symbol 1; each other character ``ceil(0.6 * its UTF-8 bytes)``; white space and
    control characters nothing.
    """
    words = sum((len(word) + 3) // 4 for word in _WORD.findall(content))
    symbols = len(_SYMBOL.findall(content))
    others = sum(math.ceil(len(c.encode()) * 0.6) for c in _NON_ASCII.findall(content))
    return words + symbols + others


def count_tokens(body: Mapping[str, Any]) -> int:
    """Count the tokens of a request: its tools and messages, as compact JSON."""
    return count_text_tokens(canonical_bytes(body).decode())


def compact(value: object) -> str:
    """Write a value as JSON without white space, keys in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def purpose_of(body: Mapping[str, Any], session_id: str | None) -> Purpose:
    """Tell by its instructions what a request is for; without a session it is not the host's."""
    messages = cast(list[Json], body.get("messages") or [])
    if session_id is None or not messages:
        return "other"
    if _TITLE_MARK in content_text(messages[0]) and not body.get("tools"):
        return "title"
    heads = (content_text(messages[0]), content_text(messages[-1]))
    if not body.get("tools") and any(mark in head for mark in _COMPACTION_MARKS for head in heads):
        return "compaction"
    return "main"
