"""An import reads the host's store as the plugin tells it, whichever of the two comes first (§3)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from optchat.testing.hostfiles import write_json
from optchat.testing.provider import ToolCall, calls, text
from tests.e2e.support import (
    Memory,
    eventually,
    memory_fixture,
    stop_coordinator,
    varied_turns,
)

memory = memory_fixture(scope="function")

SEALED = {
    "record": "session_id, generation, seq, event_key, kind, payload, host_time_ms, status, tool",
    "message": "session_id, position, message_id, digest, turn_id, start_seq, end_seq_exclusive",
    "turn": "turn_id, generation, key, start_seq, end_seq_exclusive, outcome, closed_ms",
    "publication": "scope_id, seq, session_id, turn_id, start_seq, end_seq_exclusive, born, died",
    "generation": "session_id, number, base_session_id, inherited, length",
    "session": "session_id, host_session, generation, title, directory, host_store",
    "project": "project_id, host_key, directory",
}


PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNg"
    "ZGIGAAAOAAfXb+R4AAAAAElFTkSuQmCC"
)


def sealed(memory: Memory) -> dict[str, list[Any]]:
    """All that is sealed and published, table by table."""
    db = apsw.Connection(str(memory.home / "memory.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {
            table: sorted(map(tuple, db.execute(f"select {names} from {table}")), key=repr)
            for table, names in SEALED.items()
        }
    finally:
        db.close()


def store_of(memory: Memory) -> str:
    return str(memory.host.home / "data" / "opencode" / "opencode.db")


def take_in(memory: Memory, *options: str) -> dict[str, Any]:
    return memory.optchat_json("import", "opencode", "--db", store_of(memory), *options)


@contextmanager
def alone(memory: Memory) -> Iterator[None]:
    """The host without the plugin and nothing of ours at its side; afterwards with it again."""
    host = memory.host
    host.stop()
    stop_coordinator(memory.home)
    file = host.config_folder / "opencode.json"
    config = file.read_text(encoding="utf-8")
    write_json(file, {**json.loads(config), "plugin": []})
    host.start()
    yield
    host.stop()
    file.write_text(config, encoding="utf-8")
    host.start()


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
    eventually(lambda: {row[2] for row in sealed(memory)["message"]} == held, what="every message")
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
    assert memory.status().jobs == {s: 0 for s in memory.status().jobs}
    sessions = [s["id"] for s in host.sessions()]
    for session in sessions:
        memory.turn(session, "and now?", text("more"))
    memory.wait_quiet()
    after = sealed(memory)
    for table in ("record", "message", "publication"):
        assert set(before[table]) <= set(after[table])
    assert [row[2] for row in after["session"]] == [0] * len(sessions)  # no generation was begun
    assert memory.optchat_json("doctor")["faults"] == []
