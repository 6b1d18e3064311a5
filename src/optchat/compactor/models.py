"""What a summary model is: one call, no tools, text in and text out (§10)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol

from optchat.core.context import escaped_bytes
from optchat.limits import SUMMARY_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """What is to become one line.

    ``parts`` are (label, text) in order: the record of a leaf, the two children of a merge, or the
    request, steps and answer of a turn.
    """

    purpose: Literal["leaf", "merge", "turn"]
    parts: tuple[tuple[str, str], ...]
    bytes_max: int = SUMMARY_BYTES_MAX


class SummaryModel(Protocol):
    """A model that makes summaries. Called outside of any transaction."""

    @property
    def name(self) -> str:
        """Stored with each node that it makes."""
        ...

    @property
    def prompt_version(self) -> str: ...

    def summarise(self, request: SummaryRequest) -> str:
        """A line for the request.

        Raises:
            CompactionError: if there is none; the job is retried within bounds.
        """
        ...


class DeterministicModel:
    """Extracts the beginnings of what it is given; for tests, the demo and hosts without a model.

    No understanding is claimed: a line that was cut ends in an ellipsis. The same input gives the
    same line.
    """

    name = "deterministic-extract-1"
    prompt_version = "none"

    def summarise(self, request: SummaryRequest) -> str:
        parts = [(label, _flat(text)) for label, text in request.parts if text.strip()]
        if not parts:
            return "(nothing readable)"
        heads = [f"{label}: " if label else "" for label, _ in parts]
        separators = 3 * (len(parts) - 1)
        room = request.bytes_max - separators - sum(escaped_bytes(h) for h in heads)
        cut: list[str] = []
        for index, ((_, text), head) in enumerate(zip(parts, heads, strict=True)):
            share = max(8, room // (len(parts) - index))
            shortened = shorten(text, share)
            room -= escaped_bytes(shortened)
            cut.append(head + shortened)
        return shorten(" / ".join(cut), request.bytes_max)


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def shorten(text: str, bytes_max: int) -> str:
    """The beginning of ``text`` that renders within ``bytes_max``, cut at a word where one ends.

    Never splits a code point; a cut is marked by an ellipsis.
    """
    text = text[: bytes_max + 1]
    if escaped_bytes(text) <= bytes_max:
        return text
    ellipsis = "…"
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if escaped_bytes(text[:middle]) + len(ellipsis.encode()) <= bytes_max:
            low = middle
        else:
            high = middle - 1
    cut = text[:low]
    space = cut.rfind(" ")
    if space > low * 2 // 3:
        cut = cut[:space]
    return cut.rstrip() + ellipsis
