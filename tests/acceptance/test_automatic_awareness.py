"""What A decided stands in B's request before B asks (§7, §16: Automatic awareness)."""

from __future__ import annotations

import re

from optchat.testing.provider import call, text
from tests.e2e.support import (
    Memory,
    bases,
    check_covered,
    memory_fixture,
    native_texts,
    news,
    shared_lines,
    tool_results,
)

memory = memory_fixture()

DECISION = "Decided: NATS JetStream is the durable broker, Redis was rejected"


def test_b_s_first_request_holds_a_s_published_decision_as_a_line_with_a_ref(
    memory: Memory,
) -> None:
    """§7, §16; I2. No tool was called; the line's ref then leads to it."""
    a = memory.host.create_session(title="A")
    memory.turn(a, "Which broker shall the queue use?", text(DECISION))
    b = memory.host.create_session(title="B")
    first, *rest = memory.turn(b, "Add a persistent queue.", text("ok"))

    assert not rest
    assert not tool_results(first)
    assert not [m for m in first.messages if m.get("tool_calls")]
    assert len(bases(first)) == len(news(first)) == 1
    [line] = [line for line in shared_lines(first) if DECISION in line.text]
    assert re.fullmatch(r"pub:\d+", line.ref)
    assert line.label.startswith(f"{memory.name(a)} completed ")
    # It is in the block, and nowhere else: no turn of A became a message of B's conversation.
    native = native_texts(first)
    assert native[-1] == ("user", "Add a persistent queue.")
    assert not [text for _, text in native if DECISION in text]

    (_, second) = memory.turn(b, "Why?", call("memory_zoom", {"ref": line.ref}), text("because"))
    [opened] = tool_results(second)
    assert DECISION in opened
    assert f"turn of {memory.name(a)} (A), completed" in opened
    check_covered(memory, a)
    check_covered(memory, b)


def test_a_request_of_the_host_s_own_machinery_carries_no_memory(memory: Memory) -> None:
    """§13: the title is the host's business, made from a request that is none of the turn's."""
    a = memory.host.create_session(title="seed")
    memory.turn(a, "Which port?", text("Decided: port 7411"))
    untitled = memory.host.create_session()
    memory.turn(untitled, "Open the port.", text("ok"))

    [title] = memory.provider.wait_for(1, untitled, purpose="title")
    assert "Open the port." in title.text
    assert "optchat" not in title.text
    assert "7411" not in title.text
    assert "7411" in memory.provider.requests(untitled)[0].text
