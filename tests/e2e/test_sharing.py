"""Isolating, sharing and archiving a conversation, as a person does it (§11, §12)."""

from __future__ import annotations

import time

from optchat.testing.provider import Gate, ToolCall, calls, text
from tests.e2e.support import (
    Memory,
    answers,
    bases,
    check_requests,
    eventually,
    memory_fixture,
    news,
    own_lines,
    shared_lines,
)

memory = memory_fixture()


def told(memory: Memory, session: str, number: int = -1) -> str:
    request = memory.provider.requests(session)[number]
    return "".join([*bases(request), *news(request)])


def test_an_isolated_session_neither_publishes_nor_reads_from_its_next_turn_on(
    memory: Memory,
) -> None:
    """§11, §12: withdrawn from others at once; its own reading changes with its next turn."""
    host, provider = memory.host, memory.provider
    a, b = host.create_session(title="A"), host.create_session(title="B")
    memory.turn(b, "B's work", text("lemur decided"))
    memory.turn(a, "A's work", text("quagga decided"))
    project = memory.host.project
    gate = Gate()
    provider.plan(a, calls(ToolCall(name="memory_sessions")), text("A's second", gate=gate))
    host.prompt_async(a, "go on")
    gate.wait_entered()
    name = memory.name(a)
    done = memory.optchat_json("isolate", name, "--directory", str(project))
    assert (done["host_session"], done["withdrawn"]) == (a, 1)
    memory.turn(b, "B again", text("ok"))
    assert "quagga" not in told(memory, b)
    gate.open()
    eventually(lambda: host.status() == {}, what="A's turn at its end")
    assert "lemur decided" in told(memory, a)

    provider.plan(a, text("A's third"))
    host.prompt(a, "third")
    memory.wait_quiet()
    assert "lemur" not in told(memory, a)
    assert memory.published(a) == 0
    counts = memory.counts(a)
    assert counts is not None
    assert counts.sharing == "isolated"
    last = provider.requests(a)[-1]
    assert not shared_lines(last)
    assert "quagga decided" in last.text  # its own, native
    assert not own_lines(last)
    check_requests(host, [last], a)

    memory.optchat("share", a)
    memory.turn(a, "fourth", text("zebra decided"))
    assert "lemur decided" in told(memory, a)
    memory.turn(b, "and now?", text("ok"))
    assert "zebra decided" in told(memory, b)
    assert "A's third" not in told(memory, b)
    check_requests(host, provider.requests(b)[-1:], b)


def test_an_archived_session_is_hidden_from_the_lists_and_stays_in_views_and_search(
    memory: Memory,
) -> None:
    """§12: archiving is told from deletion; shown with an option, and shown again when undone."""
    host = memory.host
    a, b = host.create_session(title="to be archived"), host.create_session(title="C")
    memory.turn(a, "old work", text("walrus decided"))
    project = str(host.project)

    def listed(*options: str) -> list[str]:
        found = memory.optchat_json("sessions", "--directory", project, *options)
        return [s["session"] for s in found["sessions"]]

    name = memory.name(a)
    assert name in listed()
    host.patch_session(a, time={"archived": int(time.time() * 1000)})
    eventually(lambda: name not in listed(), what="hidden")
    assert name in listed("--archived")
    search = ToolCall(name="memory_search", arguments={"query": "walrus"})
    short = ToolCall(name="memory_sessions")
    every = ToolCall(name="memory_sessions", arguments={"archived": True})
    sent = memory.turn(b, "look", calls(search, short, every), text("ok"))
    found, shown, whole = answers(sent[-1])
    assert "walrus decided" in told(memory, b, -2)
    assert found.startswith("1 of ")
    assert f"{name} to be archived" not in shown
    assert f"{name} (archived) to be archived" in whole
    host.restart()
    memory.turn(a, "back again", text("ok"))
    assert name not in listed()
    assert memory.published(a) == 2
