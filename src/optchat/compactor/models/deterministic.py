"""Extracts instead of summarising: for tests, the demo, and hosts without a model."""

from __future__ import annotations

import re

from optchat.compactor.models.port import SummaryRequest
from optchat.core.context import escaped_bytes


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
