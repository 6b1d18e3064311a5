"""What the reader may not see costs what nothing costs: no more statements, the same words (I4).

The answers themselves, on the real host, are in ``tests/acceptance/test_scope_enforcement.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from optchat.errors import NotFound
from tests.harness.statements import recorded

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


@pytest.fixture
def refused(reader: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a call that must be refused: what was said, without the name, and every statement."""
    asked = recorded(monkeypatch)

    def refused(tool: str, name: str, **args: Any) -> tuple[str, list[str]]:
        asked.clear()
        with pytest.raises(NotFound) as caught:
            reader.call(tool, **args)
        said = f"{caught.value.code}: {caught.value.message} {caught.value.hint}"
        assert asked
        return said.replace(name, "NAME"), list(asked)

    return refused


@pytest.mark.parametrize("tool", ["memory_zoom", "memory_date", "memory_messages"])
@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_ref_takes_as_many_statements_as_one_that_never_was(
    refused: Any, tool: str, foreign: str
) -> None:
    """§8, §11; I4: neither the words nor the work tell them apart."""
    never = FOREIGN[foreign]
    assert refused(tool, foreign, ref=foreign) == refused(tool, never, ref=never)


@pytest.mark.parametrize(
    "tool, named",
    [
        ("memory_messages", "session"),
        ("memory_sessions", "parent"),
        ("memory_search", "session"),
    ],
)
@pytest.mark.parametrize("foreign, never", [("s2", "s92"), ("s3", "s93"), ("X", "Q"), ("Y2", "Q")])
def test_a_foreign_conversation_takes_as_many_statements_as_one_that_never_was(
    refused: Any, tool: str, named: str, foreign: str, never: str
) -> None:
    """By its number or by its host's id of it."""
    words = {"query": "kestrel"} if tool == "memory_search" else {}
    told = refused(tool, foreign, **words, **{named: foreign})
    assert told == refused(tool, never, **words, **{named: never})
