"""Every request has each call with its result, whatever became of the call (§13, §16)."""

from __future__ import annotations

from contextlib import closing

import pytest

from optchat.testing.hostfiles import MEDIUM, short_agent
from optchat.testing.provider import ToolCall, calls, text
from tests.e2e.support import (
    Memory,
    check_covered,
    check_pairs,
    memory_fixture,
    native_texts,
    own_lines,
    tool_results,
)

memory = memory_fixture(
    model=MEDIUM.id,
    agents={"build": short_agent("bash", "read", "memory_*")},
)


def bash(command: str, **options: str) -> ToolCall:
    return ToolCall(name="bash", arguments={"command": command, "description": "run", **options})


def big(mark: str) -> ToolCall:
    """A call whose result takes about a fifth of the window."""
    return bash(f'for i in $(seq 1 700); do echo "{mark} $i the quick brown fox jumps"; done')


@pytest.mark.timeout(240)
def test_parallel_interrupted_failing_and_dropped_calls_keep_their_results_in_every_request(
    memory: Memory,
) -> None:
    """§7, §13, §16; I9. One session through all of it, over a fold that drops the early turns."""
    host, provider = memory.host, memory.provider
    session = host.create_session(title="tools")

    # Parallel calls, of the host's tools and of ours.
    search = ToolCall(name="memory_search", arguments={"query": "nothing yet"})
    three = calls(bash("echo one"), search, bash("echo two"))
    memory.turn(session, "parallel", three, text("all three"))
    # Failing tools: the host's, with arguments it cannot take, and ours with wrong ones.
    memory.turn(
        session,
        "failing",
        calls(
            ToolCall(name="read", arguments={"filePath": str(host.project / "missing.txt")}),
            ToolCall(name="memory_zoom", arguments={"nope": 1}),
            ToolCall(name="memory_zoom", arguments={"ref": "pub:999"}),
            bash("exit 3"),
        ),
        text("all four failed"),
    )
    # An interrupted call, and one that had ended beside it.
    provider.plan(session, calls(bash("echo quick"), bash("echo begun; exec sleep 60")))
    with closing(host.events()) as events:
        host.prompt_async(session, "interrupted")
        events.wait(
            lambda e: (
                e["type"] == "message.part.updated"
                and e["properties"]["part"].get("tool") == "bash"
                and "sleep" in str(e["properties"]["part"]["state"].get("input"))
                and e["properties"]["part"]["state"]["status"] == "running"
            )
        )
        host.abort(session)
        events.wait_final(session)
    memory.wait_published(session, 3)
    (after,) = memory.turn(session, "go on", text("gone on"))
    check_pairs(after)
    asked = [c["id"] for m in after.messages for c in m.get("tool_calls") or ()]
    assert len(asked) == len(tool_results(after)) == 3 + 4 + 2
    assert any("wrong arguments" in told for told in tool_results(after))
    assert any("names nothing in this memory" in told for told in tool_results(after))

    # Large results until a fold drops the early turns, calls and results together.
    for n in range(6):
        memory.turn(session, f"large {n}", calls(big(f"a{n}"), bash("echo small")), text("read"))
        if own_lines(provider.requests(session)[-1]):
            break
    folded = memory.turn(session, "after the fold", calls(bash("echo last")), text("end"))
    assert own_lines(folded[0])
    assert ("user", "parallel") not in native_texts(folded[0])
    assert 0 < len(tool_results(folded[0])) < len(asked)

    for request in provider.requests(session):
        check_pairs(request)
    check_covered(memory, session)
