"""The host's transcript is the same with and without the plugin (§7, §13 point 1, §16)."""

from __future__ import annotations

import shutil

import pytest

from optchat.testing.provider import text
from optchat.testing.tui import TerminalHost
from tests.e2e.support import (
    Memory,
    bases,
    comparable,
    host_files,
    injected,
    lines,
    memory_fixture,
    news,
    stored_rows,
    twins,
)

# Both modules look at one pair of runs, which a worker makes once.
pytestmark = pytest.mark.timeout(240)


def test_the_message_list_after_each_turn_equals_that_of_a_host_without_the_plugin() -> None:
    """§13; ids and times aside. ``summary`` too: the host adds it to a user's message some time
    after the turn, so that it is compared in the store only."""
    plain, ours = twins()
    assert len(plain.after_turn) == len(ours.after_turn) == 7
    for without, with_ in zip(plain.after_turn, ours.after_turn, strict=True):
        for message in (*without, *with_):
            if message["info"]["role"] == "user":
                message["info"].pop("summary", None)
        assert comparable(with_) == comparable(without)
    outcomes = [m["info"].get("error", {}).get("name") for m in ours.after_turn[4]]
    assert outcomes[-1] == "MessageAbortedError"


def test_the_stored_messages_and_parts_equal_those_of_a_host_without_the_plugin() -> None:
    """§13: the rows of the host's own store, ids and times aside."""
    plain, ours = twins()
    assert comparable(ours.stored) == comparable(plain.stored)
    assert [p["type"] for p in ours.stored["part"]].count("tool") == 6


def test_nothing_that_was_injected_is_anywhere_in_the_host_s_files() -> None:
    """§13; I11: neither block tags nor refs, in the store, its journal, logs or anything else."""
    _, ours = twins()
    for number in (0, 1):
        sent = ours.of(number)
        assert all(len(bases(request)) == 1 for request in sent)
        assert lines("".join(news(sent[-1])))
    # The scan looks at the right files: what was said is there, and so is the search itself right.
    assert any("größer als".encode() in data for data in ours.files.values())
    assert injected({"request": ours.of(0)[-1].raw})
    assert injected(ours.files) == {}


terminal_memory = memory_fixture(scope="function", start=False)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_the_terminal_shows_and_stores_only_the_native_transcript(
    terminal_memory: Memory,
) -> None:
    """§7, §13: “the original host transcript stays visible in the UI”, in the terminal as well."""
    memory = terminal_memory
    provider, host = memory.provider, memory.host
    memory.optchat("ensure")
    provider.plan_text("alpha", text("first answer"))
    provider.plan_text("beta", text("second answer"))
    with TerminalHost(host) as terminal:
        terminal.wait_for("Ask anything")
        terminal.submit("alpha")
        first = terminal.wait_for("first answer")
        [session] = {r.session_id for r in provider.requests()}
        assert session is not None
        memory.wait_published(session, 1)
        terminal.submit("beta")
        second = terminal.wait_for("second answer")
        memory.wait_published(session, 2)

    assert [len(bases(r)) for r in provider.requests()] == [1, 1]
    assert [line.ref for block in news(provider.requests()[-1]) for line in lines(block)] == [
        "pub:0"
    ]
    for screen in (first, second):
        assert not injected({"screen": screen.encode()})
    assert all(said in second for said in ("alpha", "first answer", "beta"))
    stored = stored_rows(host)
    texts = [part["text"] for part in stored["part"] if part["type"] == "text"]
    assert texts == ["alpha", "first answer", "beta", "second answer"]
    assert [m["role"] for m in stored["message"]] == ["user", "assistant"] * 2
    assert injected(host_files(host)) == {}
