"""“Do that” means B's own exchange; A's words stay foreign evidence (§7, §16)."""

from __future__ import annotations

from optchat.testing.provider import Gate, text
from tests.e2e.support import (
    Memory,
    check_covered,
    eventually,
    memory_fixture,
    native_texts,
    own_lines,
    shared_lines,
)

memory = memory_fixture(configs={"fold": "", "every-turn": '[memory]\nlayout = "every-turn"\n'})

PROPOSAL = "Proposal: rewrite the parser in Rust"
UNFINISHED = "Delete the staging database tonight"


def test_do_that_stands_beside_b_s_previous_exchange_and_a_s_proposal_only_in_the_foreign_block(
    memory: Memory,
) -> None:
    """§7, §12, §16; I2. A's unfinished task is nowhere in B."""
    host, provider = memory.host, memory.provider
    a, b = host.create_session(title="A"), host.create_session(title="B")
    memory.turn(a, "What would you do about the parser?", text(PROPOSAL))
    memory.turn(b, "Where is the config?", text("In config.ini"))
    offer = "I could rename config.ini to settings.toml"
    memory.turn(b, "Shall we keep its name?", text(offer))
    gate = Gate()
    provider.plan(a, text("deleting it", gate_mid=gate))
    host.prompt_async(a, UNFINISHED)
    gate.wait_entered()
    # Its request is sealed, so that it could be shown if anything wanted to.
    eventually(lambda: memory.records(a) >= 3, what="A's request as a record")

    (asked,) = memory.turn(b, "do that", text("done"))
    native = native_texts(asked)
    assert native[-3:] == [
        ("user", "Shall we keep its name?"),
        ("assistant", offer),
        ("user", "do that"),
    ]
    assert not [content for _, content in native if "parser" in content]
    [line] = [line for line in shared_lines(asked) if PROPOSAL in line.text]
    assert line.label.split()[0] == memory.name(a) != memory.name(b)
    assert asked.text.count(PROPOSAL) == 1
    assert not [line for line in own_lines(asked) if "parser" in line.text]
    assert UNFINISHED not in asked.text
    assert "deleting it" not in asked.text

    gate.open()
    memory.wait_published(a, 2)
    check_covered(memory, a)
    check_covered(memory, b)


def test_a_new_session_begins_without_anybody_s_unfinished_task(memory: Memory) -> None:
    """§12, New session: an empty local history and the latest snapshot."""
    host, provider = memory.host, memory.provider
    a, gate = host.create_session(title="unfinished"), Gate()
    provider.plan(a, text("I am migrating table 17", gate_mid=gate))
    host.prompt_async(a, "Migrate table 17")
    gate.wait_entered()

    c = host.create_session(title="new")
    (first,) = memory.turn(c, "continue", text("with what?"))
    assert [role for role, _ in native_texts(first)] == ["system", "user"]
    assert not own_lines(first)
    assert "table 17" not in first.text

    gate.open()
    memory.wait_published(a, 1)
