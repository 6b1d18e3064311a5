"""A subagent's transcript is its parent's business, unless a person asks for it (§12)."""

from __future__ import annotations

import hashlib

from optchat.testing.provider import CapturedRequest, Reply, ToolCall, call, calls, text
from tests.e2e.support import (
    Memory,
    answers,
    check_covered,
    check_requests,
    eventually,
    memory_fixture,
    shared_lines,
)
from tests.e2e.support_b import Memory as Data

private = memory_fixture()
taken_in = memory_fixture(config="[sharing]\nsubagents = true\n")

SCRATCH = "scratch-ocelot-4711"
REPORT = "report-lemur-0815"
TASK = {"description": "look", "prompt": f"find {SCRATCH}", "subagent_type": "general"}


def delegated(memory: Memory) -> tuple[str, str]:
    """A parent with one turn that used a subagent, and the subagent's session."""
    host, provider = memory.host, memory.provider
    parent = host.create_session(title="parent")

    def responder(request: CapturedRequest) -> Reply | None:
        if request.session_id == parent or request.purpose != "main":
            return None
        said = f"{SCRATCH} is in the attic. {REPORT}"
        if any(m["role"] == "tool" for m in request.messages):
            return text(said)
        return call("bash", {"command": f"echo {SCRATCH}-shell", "description": "look"})

    provider.responder = responder
    memory.turn(parent, "delegate it", call("task", TASK), text("the subagent is done"))
    provider.responder = None
    [child] = [s["id"] for s in host.sessions() if s.get("parentID") == parent]
    assert len(provider.requests(child)) == 2
    return parent, child


def stored(memory: Memory, marker: str) -> bool:
    """Whether a word is anywhere in the data directory, compressed payloads set aside."""
    files = [path for path in memory.home.rglob("*") if path.is_file()]
    return any(marker.encode() in path.read_bytes() for path in files)


def test_the_report_is_published_with_its_turn_and_nothing_of_the_transcript_is_kept(
    private: Memory,
) -> None:
    """§12; I8: not in a table, an index, a log or the journal; no payload has its hash."""
    memory = private
    parent, child = delegated(memory)
    (seen,) = memory.turn(memory.host.create_session(title="B"), "what is known?", text("ok"))
    assert not [line for line in shared_lines(seen) if "subagent" in line.label]
    assert memory.counts(child) is None
    memory.wait_quiet()
    # The task's prompt and the report are the parent's own call and result; the shell is not.
    assert stored(memory, REPORT)
    assert not stored(memory, f"{SCRATCH}-shell")
    kept = {row[0].hex() for row in Data(memory.home).rows("select hash from blob")}
    parts = [p for m in memory.host.messages(child) for p in m["parts"] if p["type"] == "tool"]
    assert parts
    for part in parts:
        assert hashlib.sha256(part["state"]["output"].encode()).hexdigest() not in kept
    check_covered(memory, parent)


def test_taken_in_it_is_a_conversation_under_its_parent(taken_in: Memory) -> None:
    """§12, opt-in: published in the parent's scope, labelled and listed as the parent's."""
    memory = taken_in
    parent, child = delegated(memory)
    eventually(lambda: memory.published(child) == 1, what="the subagent's publication")
    name, of = memory.name(child), memory.name(parent)
    assert stored(memory, f"{SCRATCH}-shell")
    b = memory.host.create_session(title="B")
    (seen,) = memory.turn(b, "what is known?", text("ok"))
    [line] = [line for line in shared_lines(seen) if line.label.startswith(f"{name} ")]
    assert line.label.startswith(f"{name} subagent of {of} completed ")
    sent = memory.turn(
        b,
        "open it",
        calls(
            ToolCall(name="memory_zoom", arguments={"ref": line.ref}),
            ToolCall(name="memory_sessions"),
            ToolCall(name="memory_zoom", arguments={"ref": f"{name}:0:2"}),
        ),
        text("seen"),
    )
    opened, listed, original = answers(sent[-1])
    assert f"turn of {name} subagent of {of} (" in opened
    rows = [x.split(" (")[0] for x in listed.splitlines() if x.startswith("s")]
    at = [row.split(":")[0] for row in rows].index(f"{of} parent")
    assert rows[at + 1].startswith(f"{name} subagent of {of}")
    assert f"{SCRATCH}-shell" in original
    check_requests(memory.host, memory.provider.requests(b), b)
    # An isolated parent takes its subagents along.
    memory.optchat("isolate", parent)
    assert memory.published(parent) == memory.published(child) == 0
