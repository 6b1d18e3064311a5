"""A clock and an id source that tests decide."""

from __future__ import annotations

import itertools


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        self._now_ms += milliseconds


class CountedIds:
    """``id-1``, ``id-2`` and so on."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"
