"""An import by the coordinator as a process: cut short, repeated, from a copy, and reconciled.

§3, §12; I5, I6. The host's stores are files that nobody has open, but where a test says otherwise.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optchat.coordinator.client import Client, RemoteError
from optchat.hosts.opencode.transcript import place
from optchat.wire import (
    ImportRequest,
    ImportStatus,
    ImportStatusRequest,
    SessionInfo,
    SyncRequest,
    SyncResponse,
)
from tests.e2e.support_b import Memory, eventually, temporary_memory
from tests.harness.host_store import change, make
from tests.harness.sealed import sealed

KILLS = 10
SESSIONS = 1_100
SETTINGS = "[import]\nauto = false\n"


@pytest.fixture
def memory() -> Iterator[Memory]:
    with temporary_memory(SETTINGS) as made:
        yield made


def held(memory: Memory) -> dict[str, list[Any]]:
    return sealed(memory.paths.store)


def take_in(memory: Memory, path: Path, *options: str) -> dict[str, Any]:
    done = memory.cli("import", "opencode", "--db", str(path), *options, "--json")
    assert done.status == 0, done
    return done.data


def whole(memory: Memory) -> None:
    done = memory.cli("doctor", "--full", "--json")
    assert done.data["faults"] == []


def test_an_import_that_is_killed_at_ten_points_comes_to_what_one_in_a_piece_does(
    memory: Memory, tmp_path: Path
) -> None:
    """I6: each transaction is there or not; the next import goes on from there."""
    store = make(tmp_path / "opencode.db", SESSIONS)
    request = ImportRequest(path=str(store))
    records: list[int] = []
    for kill in range(1, KILLS + 1):
        process = memory.serve()
        eventually(memory.health)
        with Client(memory.paths) as client:
            status = client.call("/v1/import", request, ImportStatus)
            while status.running and status.done < SESSIONS * kill // (KILLS + 1):
                ask = ImportStatusRequest(id=status.id)
                status = client.call("/v1/import-status", ask, ImportStatus)
            assert status.running or kill == KILLS
            process.send_signal(signal.SIGKILL)
        process.wait(10)
        records.append(len(held(memory)["records"]))
    assert records == sorted(records)
    assert records[0] < records[-1]
    done = take_in(memory, store)
    assert done["error"] is None
    whole(memory)
    with temporary_memory(SETTINGS) as other:
        take_in(other, store)
        assert held(other) == held(memory)


def test_a_second_import_and_one_from_a_copy_keep_records_and_refs(
    memory: Memory, tmp_path: Path
) -> None:
    """I5: nothing is read again that has not changed, and a copy is no other store."""
    store = make(tmp_path / "opencode.db", 30)
    assert take_in(memory, store, "--dry-run")["sessions"] == 30
    first = take_in(memory, store)
    assert first["sessions"] == 30
    before = held(memory)
    assert take_in(memory, store)["skipped"] == {"unchanged": 30}
    copy = shutil.copy(store, tmp_path / "elsewhere.db")
    assert take_in(memory, Path(copy))["skipped"] == {"known from another store": 30}
    assert held(memory) == before
    # An older state of it takes nothing back, whether the store itself is there or not.
    old = make(tmp_path / "old.db", 30)
    lost = "delete from message where id > 'msg_0010' and id like '%b'"
    change(old, lost, "update session set time_updated = 9")
    assert take_in(memory, old)["records"] == 0
    store.rename(tmp_path / "moved.db")
    assert take_in(memory, old)["skipped"] == {"older copy": 30}
    assert held(memory) == before
    # Where it has moved to, it is the store.
    assert take_in(memory, tmp_path / "moved.db")["records"] == 0
    assert held(memory) == before
    whole(memory)


def test_only_what_was_asked_for_is_taken_in(memory: Memory, tmp_path: Path) -> None:
    """By project and by time; each that is passed over is counted under its reason."""
    store = make(tmp_path / "opencode.db", 30)
    some = take_in(memory, store, "--project", "/code/p1", "--since", "2023-11-15")
    assert some["sessions"] + sum(some["skipped"].values()) == 30
    assert set(some["skipped"]) == {"other project", "older"}
    assert {row[4] for row in held(memory)["sessions"]} == {"/code/p1"}


def test_a_store_that_is_none_is_refused_and_nothing_is_kept(
    memory: Memory, tmp_path: Path
) -> None:
    """An error says what to do next."""
    (tmp_path / "other.db").write_bytes(b"no database, but a text of some length " * 30)
    for path in ("missing.db", "other.db"):
        done = memory.cli("import", "opencode", "--db", str(tmp_path / path), "--json")
        assert done.status == 1
        assert done.data["error"]["hint"]


def test_at_each_start_membership_is_brought_up_to_the_store_before_anything_is_read(
    memory: Memory, tmp_path: Path
) -> None:
    """§12: deleted, renamed, moved, gone back behind, edited and gone on."""
    store = make(tmp_path / "opencode.db", 12)
    take_in(memory, store)
    memory.cli("stop")
    text = json.dumps({"type": "text", "text": "quagga instead"})
    change(
        store,
        "delete from session where id = 'ses_0000'",
        "update session set title = 'renamed', time_updated = 1 where id = 'ses_0001'",
        "update session set directory = '/code/p0/sub', time_updated = 1 where id = 'ses_0003'",
        """update session set revert = '{"messageID":"msg_000400a"}', time_updated = 1
           where id = 'ses_0004'""",
        f"update part set data = '{text}', time_updated = 5 where id = 'prt_000500a'",
        "update session set time_updated = 1 where id = 'ses_0005'",
    )
    found = memory.cli("search", "question 000000", "--directory", "/code/p0", "--json")
    assert "ses_0000" not in str(held(memory)["sessions"])
    assert not [h for h in found.data.get("hits", []) if "000000" in json.dumps(h)]
    kept = {row[0]: row for row in held(memory)["sessions"]}
    assert kept["ses_0001"][3] == "renamed"
    assert kept["ses_0003"][4] == "/code/p0/sub"
    assert kept["ses_0004"][2] == 1
    assert kept["ses_0005"][2] == 1
    zoomed = memory.cli("search", "quagga", "--directory", "/code/p2", "--json").data
    assert zoomed["hits"]
    gone = memory.cli("search", '"question 000400"', "--directory", "/code/p1", "--json").data
    assert not gone["hits"]
    whole(memory)


def test_what_was_moved_to_where_it_is_isolated_is_withdrawn_before_anything_is_read(
    memory: Memory, tmp_path: Path
) -> None:
    """§12; I4. Its host has not touched the time that says when it changed."""
    memory.configure(f'{SETTINGS}[sharing]\nisolated = ["/code/p0/private"]\n')
    store = make(tmp_path / "opencode.db", 12)
    take_in(memory, store)
    where = ("--directory", "/code/p0", "--json")
    assert memory.cli("search", "000300", *where).data["hits"]
    memory.cli("stop")
    change(store, "update session set directory = '/code/p0/private' where id = 'ses_0003'")
    assert not memory.cli("search", "000300", *where).data["hits"]
    assert memory.cli("search", "000600", *where).data["hits"]
    listed = memory.cli("sessions", *where).data["sessions"]
    assert "ses_0003" not in {s["host_session"] for s in listed}
    whole(memory)


@pytest.mark.parametrize("how", ["gone", "another", "unreadable"])
def test_a_store_that_cannot_be_asked_deletes_nothing(
    memory: Memory, tmp_path: Path, how: str
) -> None:
    """§12: a missing or unmounted file, and one that was made anew in its place, say nothing."""
    store = make(tmp_path / "opencode.db", 5)
    take_in(memory, store)
    before = held(memory)
    memory.cli("stop")
    if how == "unreadable":
        with store.open("r+b") as file:
            file.write(b"\0" * 4096)
    else:
        store.rename(tmp_path / "away.db")
    if how == "another":
        make(store, 1)
    memory.ensure()
    assert held(memory) == before
    whole(memory)


def test_the_originals_of_another_plugin_s_trees_are_taken_in(
    memory: Memory, tmp_path: Path
) -> None:
    """§8: in the tree's order, without its summaries and without what a model thought."""
    project = tmp_path / "work"
    folder = project / ".opencode" / "plugins" / "memory-tree"

    def put(session: str, name: str, value: Any) -> None:
        file = folder / "data" / "sessions" / session / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value), encoding="utf-8")

    def leaf(start: int, *said: tuple[str, Any]) -> dict[str, Any]:
        details = json.dumps([{"role": role, "content": content} for role, content in said])
        end = start + len(said) - 1
        return {"level": 0, "summary": "impala", "round_start": start, "round_end": end,
                "details": details, "is_active": 0}  # fmt: skip

    thought = [{"type": "reasoning", "text": "kudu"}, {"type": "text", "text": "We use bongo."}]
    put("ses_b", "nodes/node0_002.json", leaf(2, ("user", "And now?"), ("assistant", thought)))
    put("ses_b", "nodes/node0_001.json", leaf(0, ("user", "Which one?"), ("tool", "gemsbok")))
    put("ses_b", "nodes/node1_001.json", {"level": 1, "summary": "impala", "details": None})
    put("ses_b", "buffer-states.json", {"raw": [{"role": "user", "content": "oribi"}]})
    put("ses_bad", "nodes/node0_001.json", "no node")
    (folder / "data" / "sessions" / "ses_bad" / "nodes" / "node0_002.json").write_text("{")
    command = ("import", "memory-tree", str(folder), "--json")
    done = memory.cli(*command)
    assert done.status == 1  # one of the trees cannot be read, and nothing is half done
    shutil.rmtree(folder / "data" / "sessions" / "ses_bad")
    assert memory.cli(*command).data["records"] == 6
    assert memory.cli(*command).data["skipped"] == {"unchanged": 1}
    found = {
        word: bool(memory.cli("search", word, "--directory", str(project), "--json").data["hits"])
        for word in ("which", "gemsbok", "bongo", "oribi", "kudu", "impala")
    }
    assert found == {"which": True, "gemsbok": True, "bongo": True, "oribi": True,
                     "kudu": False, "impala": False}  # fmt: skip
    whole(memory)


def speak(client: Client, store: Path) -> None:
    """As the plugin does of a session of one project in that store."""
    session = SessionInfo(
        host="opencode",
        id="ses_0004",
        project_key="prj_0001",
        project_directory="/code/p1",
        directory="/code/p1",
        store=place.identity(store),
    )
    client.call("/v1/sync", SyncRequest(session=session, messages=[]), SyncResponse)


def test_a_project_s_history_comes_in_by_itself_once_it_is_used(tmp_path: Path) -> None:
    """§8: of that project and in the background; what the host speaks of itself is left to it."""
    store = make(tmp_path / "opencode.db", 12)
    with temporary_memory("[import]\nauto = true\n") as memory:
        memory.ensure()
        with Client(memory.paths) as client:
            speak(client, store)
        wanted = {"ses_0001", "ses_0007", "ses_0010"}
        eventually(lambda: {row[0] for row in held(memory)["records"]} == wanted)
        whole(memory)


def test_without_it_nothing_comes_in_that_nobody_asked_for(memory: Memory, tmp_path: Path) -> None:
    """The switch in config.toml, and a store that is not the host's own place."""
    store = make(tmp_path / "opencode.db", 3)
    memory.ensure()
    with Client(memory.paths) as client:
        speak(client, store)
        with pytest.raises(RemoteError):  # no import has begun
            client.call("/v1/import-status", ImportStatusRequest(id=1), ImportStatus)
    memory.cli("stop")
    memory.ensure()
    assert not held(memory)["records"]
