"""Every statement that a store reads with, as it is run."""

from __future__ import annotations

from typing import Any

import pytest

from optchat.storage.sqlite.connection import Connection


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows with each statement; whoever looks clears it first."""
    found: list[str] = []
    for verb in ("one", "all"):
        real = getattr(Connection, verb)

        def counted(self: Connection, sql: str, args: Any = (), real: Any = real) -> Any:
            found.append(sql)
            return real(self, sql, args)

        monkeypatch.setattr(Connection, verb, counted)
    return found
