"""Old refs say that they were superseded, and by what, to a reader that may see it (§12)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from optchat.errors import NotFound, Superseded


def told(bench: Any, session: Any, asked: str, answered: str) -> None:
    session.turn(asked, answered)
    bench.drain()


def begin(bench: Any, session: Any) -> Any:
    """Open a turn with a pinned snapshot."""
    session.user("look")
    session.sync()
    session.assemble()
    return session


def refused(session: Any, tool: str, ref: str) -> NotFound:
    with pytest.raises(NotFound) as caught:
        session.call(tool, ref=ref)
    return caught.value


@pytest.fixture
def edited(bench: Any) -> tuple[Any, Any, Any]:
    """A's second of three turns was edited, and another followed: generation 1 from record 2 on."""
    a, b = bench.session("A"), bench.session("B")
    told(bench, a, "one", "answer one")
    told(bench, a, "two", "answer two")
    told(bench, a, "three", "answer three")
    a.edited(2, "two, changed")
    a.sync(idle=True)
    bench.drain()
    told(bench, a, "four", "answer four")
    return bench, a, b


@pytest.mark.parametrize(
    "ref, instead",
    [
        ("pub:1", "pub:3"),
        ("pub:2", "pub:4"),
        ("s1:0:2", "pub:3"),
        ("s1:0:5", "pub:4"),
        ("s1:0:2+2", "pub:3"),
    ],
)
def test_another_reader_is_told_by_which_publication(edited, ref, instead):
    """§12, I1: the number is taken, its line says retired, and the ref says why and what stands."""
    bench, _, b = edited
    begin(bench, b)
    error = refused(b, "memory_zoom", ref)
    assert isinstance(error, Superseded)
    assert error.code == "superseded"
    assert error.message.startswith(f"{ref} was superseded: s1 was edited or rewound there")
    assert error.message.endswith(f"what stands there now is {instead}.")
    assert "two, changed" in b.call("memory_zoom", ref="pub:3").output
    if not ref.endswith("+2"):
        assert refused(b, "memory_date", ref).message == error.message


@pytest.mark.parametrize("ref", ["s1:0:2", "s1:0:5", "s1:0:2+2"])
def test_the_session_itself_is_told_where_its_history_goes_on(edited, ref):
    bench, a, _ = edited
    begin(bench, a)
    error = refused(a, "memory_zoom", ref)
    assert isinstance(error, Superseded)
    assert error.message.endswith("what stands there now is s1:1:2.")
    assert "two, changed" in a.call("memory_zoom", ref="s1:1:2").output
    assert "one" in a.call("memory_zoom", ref="s1:0:0").output


def test_what_is_kept_of_an_ended_generation_still_opens(edited):
    bench, _, b = edited
    begin(bench, b)
    assert "answer one" in b.call("memory_zoom", ref="s1:0:1").output
    assert "answer one" in b.call("memory_zoom", ref="pub:0").output


def test_a_rewind_after_which_nothing_was_published_says_so(bench):
    a, b = bench.session("A"), bench.session("B")
    told(bench, a, "one", "answer one")
    told(bench, a, "two", "answer two")
    del a.messages[2:]
    a.clock_ms += 60_000
    a.sync(idle=True)
    begin(bench, b)
    assert refused(b, "memory_zoom", "pub:1").message.endswith("nothing stands there yet.")
    begin(bench, a)
    assert refused(a, "memory_zoom", "s1:0:2").message.endswith("nothing stands there yet.")


@pytest.mark.parametrize("ref", ["pub:6", "pub:9", "s1:0:6", "s1:2:0", "s1:1:90", "pub:4+4"])
def test_what_never_was_or_is_not_seen_yet_is_only_not_found(edited, ref):
    """I4: no word about what the reader could not see."""
    bench, a, b = edited
    begin(bench, b)
    told(bench, a, "five", "answer five")
    error = refused(b, "memory_zoom", ref)
    assert error.code == "not_found"
    assert error.message == f"{ref} names nothing in this memory."


def test_a_reader_that_joined_later_is_told_the_same_and_a_pinned_one_still_reads(bench):
    """§9: within the turn of the reader nothing changes."""
    a, b = bench.session("A"), bench.session("B")
    told(bench, a, "one", "answer one")
    begin(bench, b)
    before = b.call("memory_zoom", ref="pub:0").output
    a.edited(0, "changed")
    a.sync(idle=True)
    bench.drain()
    assert b.call("memory_zoom", ref="pub:0").output == before
    c = begin(bench, bench.session("C"))
    assert re.search(r"is pub:1\.$", refused(c, "memory_zoom", "pub:0").message)
