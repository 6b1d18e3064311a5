"""A host, its model endpoint and what a recording plugin wrote, as one thing to hand to tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optchat.testing.hostevents import EventStream
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import LoopbackProvider


@dataclass(frozen=True, slots=True)
class Recording:
    """The JSON lines that a recording plugin appends to a file, one for each hook called."""

    path: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All lines so far, in order."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]

    def of(self, *hooks: str, session: str | None = None) -> list[dict[str, Any]]:
        """The lines of these hooks, of one session if it is given."""
        return [
            line
            for line in self.lines
            if line["hook"] in hooks and (session is None or line.get("sessionID") == session)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One running host with a recording plugin; each test on it uses a session of its own."""

    provider: LoopbackProvider
    host: OpenCodeHost
    recording: Recording
    events: EventStream
