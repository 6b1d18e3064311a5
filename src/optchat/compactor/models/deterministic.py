"""Extracts instead of summarising: for tests, the demo, and hosts without a model."""

from __future__ import annotations

import re

from optchat.compactor.models.port import SummaryRequest
from optchat.core.context import escaped_bytes, shorten


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
