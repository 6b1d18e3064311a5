"""What was deleted is in no later request, no tool finds it, and no byte is left (§12, §16)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import apsw

from optchat.testing.provider import CapturedRequest, Reply, ToolCall, calls, text
from tests.e2e.support import (
    OPTCHAT,
    Memory,
    answers,
    eventually,
    memory_fixture,
    shared_lines,
    stop_coordinator,
)
from tests.harness.remains import remains

memory = memory_fixture(scope="function")

DECISION = "We use the osprey47 broker, and never the bustard48 one."
PROBES = (
    ToolCall(name="memory_search", arguments={"query": "osprey47"}),
    ToolCall(name="memory_zoom", arguments={"ref": "pub:0"}),
    ToolCall(name="memory_zoom", arguments={"ref": "s1:0:1"}),
    ToolCall(name="memory_date", arguments={"ref": "pub:0"}),
    ToolCall(name="memory_sessions"),
)


def optchat(memory: Memory, *words: str) -> Any:
    env = {**os.environ, "OPTCHAT_HOME": str(memory.home)}
    command = [*OPTCHAT, *words, "--json"]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90, check=True)
    return json.loads(run.stdout)


def told(memory: Memory) -> tuple[str, str]:
    """A decides, and B is told of it."""
    a, b = (memory.host.create_session(title=name) for name in "AB")
    memory.turn(a, "Which broker shall we use?", text(DECISION))
    memory.turn(b, "hello", text("hello"))
    assert [x for x in shared_lines(memory.provider.requests(b)[0]) if "osprey47" in x.text]
    return a, b


def knows_nothing(memory: Memory, b: str) -> None:
    """B's next turn: its automatic memory and what its tools find."""
    before = len(memory.provider.requests(b))
    memory.provider.plan(b, calls(*PROBES), text("done"))
    memory.host.prompt(b, "and what was decided?")
    first, second = memory.provider.requests(b)[before:]
    assert not [x for x in shared_lines(first) if "osprey47" in x.text or "bustard48" in x.text]
    assert "osprey47" not in first.text
    search, zoom, record, date, sessions = answers(second)
    assert search.startswith("0 of")
    assert all("names nothing in this memory" in x for x in (zoom, record, date))
    assert "s1 " not in sessions
    check_later(memory, b, before)


def check_later(memory: Memory, b: str, before: int) -> None:
    """What B was sent from then on has no word of it, but for the question that its tool was."""
    for request in memory.provider.requests(b)[before:]:
        assert "bustard48" not in request.text


def no_byte_left(memory: Memory) -> None:
    """After the coordinator was quiet for a moment (I8)."""
    eventually(lambda: not _remains(memory), what="the bytes to go")


def _remains(memory: Memory) -> dict[str, list[str]]:
    """Of a word that B never said itself, unlike what it searched for."""
    scratch = memory.home.with_name(f"{memory.home.name}-copy")
    try:
        return remains(memory.home, ("bustard48",), scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def test_a_session_deleted_in_the_host_is_gone_from_the_next_request(memory: Memory) -> None:
    """§12, §16; I8: by the host's own delete, while everything runs."""
    a, b = told(memory)
    memory.host.delete(a)
    knows_nothing(memory, b)
    assert memory.counts(a) is None
    no_byte_left(memory)


def test_a_session_deleted_while_nothing_ran_is_gone_after_the_next_start(memory: Memory) -> None:
    """§12: neither plugin nor coordinator saw it; the comparison at the start does."""
    a, b = told(memory)
    keep = memory.host.create_session(title="keep")
    memory.turn(keep, "what of this?", text("heron49 stays"))
    memory.host.stop()
    stop_coordinator(memory.home)
    _delete_without_plugin(memory, a)
    memory.host.start()
    knows_nothing(memory, b)
    assert memory.counts(a) is None
    assert memory.published(keep) == 1
    no_byte_left(memory)


def _delete_without_plugin(memory: Memory, session: str) -> None:
    """As the host deletes: its rows, in its store, with nobody there to be told."""
    path = memory.host.home / "data" / "opencode" / "opencode.db"
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.execute("pragma foreign_keys = on")
    connection.execute("delete from session where id = ?", (session,))
    connection.close()


def test_a_session_forgotten_by_command_stays_so_while_the_host_has_it(memory: Memory) -> None:
    """§12: ``optchat forget``; the host goes on with that conversation, without memory of it."""
    a, b = told(memory)
    folder = str(memory.host.project)
    tried = optchat(memory, "forget", "session", a, "--directory", folder, "--dry-run")
    assert memory.published(a) == 1
    done = optchat(memory, "forget", "session", a, "--directory", folder)
    assert done["removal"]["counts"] == tried["removal"]["counts"]
    assert done["removal"]["counts"]["sessions"] == 1
    assert not _remains(memory)
    knows_nothing(memory, b)
    before = len(memory.provider.requests(a))
    memory.provider.plan(a, text("of course"))
    memory.host.prompt(a, "do you remember?")
    (request,) = memory.provider.requests(a)[before:]
    assert DECISION in request.text  # the host's own transcript
    assert not shared_lines(request)
    assert memory.counts(a) is None
    no_byte_left(memory)
    log = optchat(memory, "forget", "log")
    assert log["removals"][0]["what"] == done["removal"]["what"]


def test_a_turn_that_runs_meanwhile_gets_its_memory_anew(memory: Memory) -> None:
    """§9, §12: its snapshot is invalid, so its continuation has a fresh one and its tools too."""
    a, b = told(memory)
    folder = str(memory.host.project)
    rounds: list[list[str]] = []

    def model(request: CapturedRequest) -> Reply | None:
        if request.session_id != b:
            return None
        rounds.append(answers(request))
        if len(rounds) == 1:
            return calls(ToolCall(name="memory_sessions"))
        if len(rounds) == 2:
            optchat(memory, "forget", "session", a, "--directory", folder)
            return calls(ToolCall(name="memory_search", arguments={"query": "osprey47"}))
        return calls(*PROBES) if len(rounds) == 3 else text("done")

    before = len(memory.provider.requests(b))
    memory.provider.responder = model
    memory.host.prompt(b, "look into it")
    memory.provider.responder = None
    requests = memory.provider.requests(b)[before:]
    assert [bool([x for x in shared_lines(r) if "osprey47" in x.text]) for r in requests] == [
        True,
        True,
        False,
        False,
    ]
    assert "snapshot" in rounds[2][0]  # refused, and told that the next request has a fresh one
    assert rounds[3][0].startswith("0 of")
    memory.wait_published(b, 2)
