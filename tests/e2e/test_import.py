"""An import reads the host's store as the plugin tells it, whichever comes first (§3)."""

from __future__ import annotations

import threading
from typing import Any

from optchat.testing.provider import ToolCall, calls, text
from tests.e2e.support import (
    Memory,
    alone,
    eventually,
    memory_fixture,
    stop_coordinator,
    varied_turns,
)
from tests.e2e.support_b import temporary_memory
from tests.harness.sealed import sealed as sealed_in

memory = memory_fixture(scope="function")

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNg"
    "ZGIGAAAOAAfXb+R4AAAAAElFTkSuQmCC"
)


def sealed(memory: Memory) -> dict[str, list[Any]]:
    return sealed_in(memory.home / "memory.db")


def store_of(memory: Memory) -> str:
    return str(memory.host.home / "data" / "opencode" / "opencode.db")


def take_in(memory: Memory, *options: str) -> dict[str, Any]:
    return memory.optchat_json("import", "opencode", "--db", store_of(memory), *options)


def fill(memory: Memory) -> None:
    """What a conversation can hold: tools, failures, an abort, files, a command, a compaction."""
    host, provider = memory.host, memory.provider
    varied_turns(host, provider, lambda session: None)
    other = host.create_session(title="others")
    big = ToolCall(name="bash", arguments={"command": "seq 1 9000", "description": "count"})
    provider.plan(other, calls(big), text("counted"))
    host.prompt(other, "Count \U0001f600 to <9000>")
    note = host.project / "note.txt"
    note.write_text("a note\n")
    parts = [
        {"type": "text", "text": "see"},
        {"type": "file", "mime": "text/plain", "filename": "note.txt", "url": f"file://{note}"},
        {"type": "file", "mime": "image/png", "filename": "x.png", "url": PIXEL},
    ]
    provider.plan(other, text("seen"))
    host.prompt(other, parts=parts)
    search = ToolCall(name="memory_search", arguments={"query": "parser"})
    provider.plan(other, calls(search), text("found"))
    host.prompt(other, "what was it?")
    host.shell(other, "echo shell")
    host.summarize(other)
    provider.plan(other, text("after"))
    host.prompt(other, "and on")


def wait_told(memory: Memory) -> None:
    """Until each message that the host holds is sealed, and each turn published."""
    host = memory.host
    held = {m["info"]["id"] for s in host.sessions() for m in host.messages(s["id"])}
    eventually(lambda: {row[2] for row in sealed(memory)["messages"]} == held, what="every message")
    memory.wait_quiet()


def test_what_the_plugin_has_told_is_known_to_an_import(memory: Memory) -> None:
    """§3; I5. Nothing is sealed, changed or superseded by reading it from the store instead."""
    fill(memory)
    wait_told(memory)
    before = sealed(memory)
    stop_coordinator(memory.home)
    memory.optchat("ensure")  # compares at its start
    assert sealed(memory) == before
    done = take_in(memory)
    assert done["error"] is None
    assert done["records"] == 0
    assert sealed(memory) == before
    assert done["skipped"].get("unchanged"), done
    assert memory.optchat_json("doctor")["faults"] == []


def test_what_was_imported_goes_on_live_as_an_append(memory: Memory) -> None:
    """§3: the same ids, digests and event keys, so that only what is new is sealed."""
    host = memory.host
    with alone(memory):
        fill(memory)
    done = take_in(memory)
    assert done["error"] is None
    assert done["records"] > 20
    before = sealed(memory)
    status = memory.status()
    assert status is not None
    assert not any(status.jobs.values())
    sessions = [s["id"] for s in host.sessions()]
    for session in sessions:
        memory.turn(session, "and now?", text("more"))
    memory.wait_quiet()
    after = sealed(memory)
    for table in ("records", "messages", "publications"):
        assert set(before[table]) <= set(after[table])
    assert [row[2] for row in after["sessions"]] == [0] * len(sessions)  # no generation was begun
    assert memory.optchat_json("doctor")["faults"] == []


def test_an_import_beside_a_host_that_writes_comes_to_what_one_of_the_finished_store_does(
    memory: Memory,
) -> None:
    """§3; I5: neither waits for the other, and nothing is sealed that the host goes on with."""
    host, provider = memory.host, memory.provider
    done: list[dict[str, Any]] = []
    with alone(memory):
        over = threading.Event()

        def write() -> None:
            try:
                ids = [host.create_session(title=f"writing {n}") for n in range(3)]
                for turn in range(5):
                    for session in ids:
                        command = {"command": f"seq {turn} 400", "description": "count"}
                        call = calls(ToolCall(name="bash", arguments=command))
                        provider.plan(session, call, text(f"answer {turn} " * 50))
                        host.prompt(session, f"question {turn}")
            finally:
                over.set()

        writer = threading.Thread(target=write)
        writer.start()
        while not over.is_set():
            done.append(take_in(memory))
        writer.join()
        host.stop()
        done.append(take_in(memory))
        beside = sealed(memory)
        with temporary_memory("[import]\nauto = false\n") as other:
            assert other.cli("import", "opencode", "--db", store_of(memory)).status == 0
            clean = sealed_in(other.paths.store)
        host.start()
    assert sum(d["records"] > 0 for d in done) > 3  # it did not all come at once
    assert all(d["error"] is None and not d["unreadable"] for d in done)
    for table in ("sessions", "records", "messages", "turns"):
        assert beside[table] == clean[table]
    # Turns have the order in which they were seen to end.
    assert sorted(p[2:5] for p in beside["publications"]) == sorted(
        p[2:5] for p in clean["publications"]
    )
    assert memory.optchat_json("doctor")["faults"] == []
