"""Reading on the real host: outputs that it has cut, whole, and its subagents (§3, §8, §12)."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from optchat.testing.provider import CapturedRequest, Gate, Reply, ToolCall, call, calls, text
from tests.e2e.support import Memory, answering, answers, memory_fixture

memory = memory_fixture()

SCRIPT = 'for i in $(seq 1 9000); do echo "row $i of the table"; done'
TASK = {"description": "look around", "prompt": "find the cat", "subagent_type": "general"}


def outputs(memory: Memory) -> list[Path]:
    return [*(memory.host.home / "data" / "opencode" / "tool-output").iterdir()]


def test_an_output_that_the_host_has_cut_is_read_whole_from_its_file(memory: Memory) -> None:
    """§3, §8; I1. Until the file is gone: then the answer says that, and shows what was kept."""
    host = memory.host
    a = host.create_session(title="A")
    memory.turn(a, "list it", call("bash", {"command": SCRIPT, "description": "x"}), text("listed"))
    memory.wait_quiet()
    (part,) = [p for m in host.messages(a) for p in m["parts"] if p["type"] == "tool"]
    assert part["state"]["metadata"]["truncated"] is True
    (kept,) = [p.read_text() for p in outputs(memory)]
    name = memory.name(a)
    b = host.create_session(title="B")
    whole: list[str] = []

    def model(request: CapturedRequest) -> Generator[Reply, CapturedRequest, None]:
        args: dict[str, Any] = {"ref": f"{name}:0:1", "max_tokens": 14_000}
        while True:
            request = yield call("memory_messages", args)
            (told,) = answers(request)
            page = told[told.index("from the host's own file") :] if not whole else told
            whole.extend(line[2:] for line in page.splitlines() if line.startswith("> "))
            found = re.search(r"^cursor: (\S+)$", told, re.MULTILINE)
            if found is None:
                yield text("read")
            else:
                args["cursor"] = found[1]

    memory.provider.responder = answering(b, model)
    memory.turn(b, "read it")
    memory.provider.responder = None
    assert [x for x in whole if x] == kept.splitlines()
    assert len(kept.splitlines()) == 9_000
    for path in outputs(memory):
        path.unlink()
    asked = ToolCall(name="memory_messages", arguments={"ref": f"{name}:0:1"})
    (gone,) = answers(memory.turn(b, "again", calls(asked), text("ok"))[-1])
    assert "the host had cut this" in gone
    assert "is gone" in gone


@pytest.mark.timeout(120)
def test_subagents_are_told_as_the_host_has_them_also_those_that_were_cancelled(
    memory: Memory,
) -> None:
    """§12: what one was cancelled in is no report of it; that it was there is told."""
    host, provider = memory.host, memory.provider
    parent = host.create_session(title="parent")
    gate = Gate()

    def responder(request: CapturedRequest) -> Reply | None:
        if request.session_id == parent or request.purpose != "main":
            return None
        return text("no cat here", gate_mid=gate)

    provider.responder = responder
    provider.plan(parent, call("task", TASK))
    with closing(host.events()) as events:
        host.prompt_async(parent, "delegate it")
        events.wait(
            lambda e: e["type"] == "message.part.delta" and e["properties"]["sessionID"] != parent
        )
        host.abort(parent)
        events.wait_final(parent)
    provider.responder = None
    gate.open()
    memory.wait_published(parent, 1)
    [child] = [s["id"] for s in host.sessions() if s.get("parentID") == parent]
    asked = ToolCall(name="memory_sessions", arguments={"parent": "current"})
    other = ToolCall(name="memory_sessions")
    requests = memory.turn(parent, "what became of it?", calls(asked, other), text("cancelled"))
    told, plain = answers(requests[-1])
    (line,) = [x for x in told.splitlines() if x.startswith("subagent ")]
    assert line.startswith(f"subagent {child} look around")
    assert ": cancelled, " in line
    assert "subagent " not in plain
