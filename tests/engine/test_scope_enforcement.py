"""What the reader may not see costs what nothing costs: no more statements, the same words (I4).

The answers themselves, on the real host, are in ``tests/acceptance/test_scope_enforcement.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from optchat.errors import NotFound
from optchat.storage.sqlite.connection import Connection

FOREIGN = {
    "pub:3": "pub:903",
    "pub:4": "pub:904",
    "pub:0+4": "pub:900+4",
    "pub:2+2": "pub:902+2",
    "s2:0:0": "s92:0:0",
    "s3:0:1": "s93:0:1",
    "s2:0:0+2": "s92:0:0+2",
    "s2:7:0": "s92:7:0",
}


@pytest.fixture
def reader(bench: Any) -> Any:
    """A session of a project of its own; another project has three sessions and five turns."""
    for name in ("X", "Y", "Z", "X2", "Y2"):
        bench.session(name, directory="/secret").turn(f"zanzibar {name}", "kestrel " * 200)
    bench.session("X", directory="/secret")
    bench.drain()
    b = bench.session("B")
    b.turn("mine", "kestrel of mine")
    bench.drain()
    b.user("look")
    b.sync()
    b.assemble()
    return b


@pytest.mark.parametrize("tool", ["memory_zoom", "memory_date"])
@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_ref_takes_as_many_statements_as_one_that_never_was(
    reader: Any, monkeypatch: pytest.MonkeyPatch, tool: str, foreign: str
) -> None:
    """§8, §11; I4: neither the words nor the work tell them apart."""
    asked: list[str] = []
    for verb in ("one", "all"):
        real = getattr(Connection, verb)

        def counted(self: Connection, sql: str, args: Any = (), real: Any = real) -> Any:
            asked.append(sql)
            return real(self, sql, args)

        monkeypatch.setattr(Connection, verb, counted)

    def refused(ref: str) -> tuple[str, list[str]]:
        asked.clear()
        with pytest.raises(NotFound) as caught:
            reader.call(tool, ref=ref)
        said = f"{caught.value.code}: {caught.value.message} {caught.value.hint}"
        return said.replace(ref, "REF"), list(asked)

    said, statements = refused(foreign)
    assert (said, statements) == refused(FOREIGN[foreign])
    assert statements


@pytest.mark.parametrize("name", ["s2", "s3"])
def test_a_search_in_a_foreign_session_is_as_short_as_in_none(
    reader: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asked: list[str] = []
    real = Connection.one

    def counted(self: Connection, sql: str, args: Any = ()) -> Any:
        asked.append(sql)
        return real(self, sql, args)

    monkeypatch.setattr(Connection, "one", counted)

    def refused(session: str) -> tuple[str, list[str]]:
        asked.clear()
        with pytest.raises(NotFound) as caught:
            reader.call("memory_search", query="kestrel", session=session)
        return caught.value.message.replace(session, "S"), list(asked)

    assert refused(name) == refused("s92")
