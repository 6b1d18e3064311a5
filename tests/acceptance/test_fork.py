"""A fork has only its inherited prefix as its own past, and none of it anew (§12, §16: Fork)."""

from __future__ import annotations

import pytest

from optchat.testing.provider import call, text
from tests.e2e.support import (
    Memory,
    bases,
    check_covered,
    memory_fixture,
    news,
    own_lines,
    tool_results,
)

# Every turn folds, so that a conversation of a few turns has an own view.
memory = memory_fixture(config='[memory]\nlayout = "every-turn"\n')
pytestmark = pytest.mark.timeout(400)

LONG = "and a good deal more was said about it, line after line, in the same words. " * 20


def talk(memory: Memory, session: str, word: str, turns: int) -> None:
    for index in range(turns):
        answer = text(f"{word} answer {index}: chose {word}-{index}. {LONG}")
        memory.turn(session, f"{word} request {index}", answer)


def all_records(memory: Memory) -> int:
    """How many records the store holds, whosever they are."""
    status = memory.status()
    assert status is not None
    return status.records


def test_a_fork_has_the_prefix_as_its_own_past_and_the_parent_s_later_turns_as_foreign(
    memory: Memory,
) -> None:
    """§5, §12; I2: no second publication, no second record, no second summary of the prefix."""
    parent = memory.host.create_session(title="parent")
    talk(memory, parent, "walnut", 5)
    messages = memory.host.messages(parent)
    boundary = next(
        m["info"]["id"] for m in messages if "walnut request 4" in str(m.get("parts", ""))
    )
    child = memory.host.fork(parent, boundary)["id"]
    memory.turn(parent, "Which one for the parent?", text("The parent alone chose xylophone"))
    published, records = memory.publications(), all_records(memory)

    first, *_ = memory.turn(child, "Go on in the fork.", text("the fork chose marimba"))
    # Four turns were inherited: two records are new, and one publication.
    memory.wait_published(child, 1)
    assert all_records(memory) == records + 2
    assert memory.publications() == published + 1
    assert memory.records(child) == 8 + 2
    assert "xylophone" in "".join(bases(first) + news(first))

    asked = call("memory_zoom", {"ref": f"{memory.name(child)}:0:1"})
    (second, third) = memory.turn(child, "What was the first answer?", asked, text("that"))
    own = own_lines(second)
    assert own
    assert {line.ref.split(":")[0] for line in own} == {memory.name(child)}
    past = "".join(line.text for line in own)
    assert "walnut request 0" in past
    assert "walnut request 4" not in past
    assert "xylophone" not in past
    [shown] = tool_results(third)
    assert "walnut answer 0: chose walnut-0." in shown
    check_covered(memory, child)
    check_covered(memory, parent)


def test_a_fork_of_a_fork_at_the_first_message_inherits_nothing(memory: Memory) -> None:
    """§12: the boundary may be the very beginning."""
    parent = memory.host.create_session(title="short")
    talk(memory, parent, "hazel", 2)
    middle = memory.host.fork(parent)["id"]
    memory.turn(middle, "In the middle.", text("middle"))
    first_message = memory.host.messages(middle)[0]["info"]["id"]
    child = memory.host.fork(middle, first_message)["id"]
    memory.turn(child, "From the start.", text("anew"))
    assert (memory.records(middle), memory.records(child)) == (4 + 2, 2)
    memory.wait_published(middle, 1)
    memory.wait_published(child, 1)
    check_covered(memory, middle)
    check_covered(memory, child)
