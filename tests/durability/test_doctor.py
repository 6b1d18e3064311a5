"""``optchat doctor``: each kind of damage is named, with what is unharmed and what to run (§10, I1).

What can be made again is made again; no original is touched by that.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import filelock
import pytest

from optchat.coordinator.client import Client
from optchat.errors import IntegrityError
from optchat.hosts.opencode import install
from optchat.testing.scripted import ScriptedSession
from optchat.wire import ExportRequest
from tests.durability.conftest import LONG
from tests.e2e.support_b import Memory, Remote, temporary_memory

NEWEST_SHARED = "tree like 'p:%' and revision = (select max(revision) from tree_view v where v.tree = tree_view.tree)"
DAMAGE = {
    "a summary of a session": (["delete from node where tree in (select id from tree where name like 'g:%') and count = 4"], "summaries are gone"),
    "a verbatim line": (["delete from node where tree in (select id from tree where name like 'g:%:0') and count = 1 and start = 0"], "summaries are gone"),
    "a line that the shared view names": (["delete from node where tree in (select id from tree where name like 'p:%') and start = 0"], "summaries are gone"),
    "the line of the newest publication": (
        ["delete from node where tree in (select id from tree where name like 'p:%') and count = 1 and start = (select max(seq) from publication)"],
        "summaries are gone",
    ),
    "a tombstone": (["delete from node where tree in (select id from tree where name like 'p:%') and kind = 2"], "summaries are gone"),
    "a view with a gap": (
        [f"update tree_view set entries = json_remove(entries, '$[0]') where {NEWEST_SHARED}"],
        "has a gap",
    ),
    "a view that ends early": (
        [f"update tree_view set entries = json_remove(entries, '$[#-1]') where {NEWEST_SHARED}"],
        "before the",
    ),
    "a job that waits for what is there": (
        [
            "delete from node where tree in (select id from tree where name like 'g:%:0') and count = 2 and start = 0",
            "insert into job_wait select ordinal, substr(target, 1, instr(target, '#') - 1), 0, 1 from job where target like 'g:%:0#0+2'",
            "update job set state = 'waiting' where ordinal in (select ordinal from job_wait)",
        ],
        "waits for lines that are there",
    ),
    "a turn that nobody is to publish": (
        [
            "delete from job where kind = 'turn' and target = (select turn_id from publication where seq = 0)",
            "delete from published where publication = 0",
            "delete from publication where seq = 0",
        ],
        "is not published",
    ),
    "the words of a record": (
        ["insert into record_fts (rowid, text) select min(doc), 'stray' from record"],
        "search index",
    ),
    "the pages of the search index": (
        ["update node_fts_data set block = zeroblob(length(block)) where id > 10"],
        "search index",
    ),
}  # fmt: skip
IRREPARABLE = {
    "an original": (["update pack set data = zeroblob(length(data)) where id = 2"], "the original of s"),
    "the whole of an original": (["delete from blob where id = (select blob from record limit 1)"], "the original of s"),
    "a record": (["delete from record where seq = 1 and generation_id = (select id from generation join member using (session_id) where generation.number = 0 and member.number = 1)"], "records are gone: s1:0:1"),
    "a generation": (["delete from generation where number = 0 and session_id = (select session_id from member where number = 2)"], "a part of the history of s2 is gone"),
    "a part of a cover": (["delete from published where publication = 1"], "the sources of pub:1 are not whole"),
    "a publication": (["delete from publication where seq = 1"], "publications of /project are gone: pub:1"),
}  # fmt: skip


def test_a_whole_store_has_no_fault(patient):
    found = patient.examine()
    assert found.faults == []
    assert found.checked["records"] == found.checked["originals hashed"] == len(patient.kept())


def test_work_that_is_queued_or_failed_in_sight_is_no_fault(patient):
    """What `optchat jobs` shows already is not told a second time as damage."""
    patient.a.turn("more", LONG)
    assert patient.counts()["ready"] > 0
    assert patient.examine().faults == []
    patient.run_sql("update job set state = 'failed' where state = 'ready'")
    assert patient.examine().faults == []


@pytest.mark.parametrize("name", DAMAGE)
def test_what_can_be_made_again_is_named_and_made_again(patient, name):
    """§10: named at first; after --repair and the compactor's work there is no fault left."""
    statements, told = DAMAGE[name]
    before = patient.kept()
    patient.run_sql(*statements)
    found = patient.examine()
    assert any(told in fault.what for fault in found.faults), found.faults
    assert all(fault.unharmed and fault.next for fault in found.faults)
    if name != "a turn that nobody is to publish":  # its number is gone as well
        mended = patient.examine(repair=True)
        assert mended.repaired
        patient.drain()
        assert patient.examine().faults == []
    assert patient.kept() == before
    patient.talk()
    assert patient.a.assemble().state in ("ready", "native")


@pytest.mark.parametrize("name", IRREPARABLE)
def test_what_is_lost_is_named_and_the_rest_is_served(patient, tmp_path, name):
    """§10, I1: an explicit integrity error, never a plausible answer; other refs lead on."""
    statements, told = IRREPARABLE[name]
    patient.run_sql(*statements)
    assert any(told in f.what for f in patient.examine(repair=True).faults)
    served = 0
    for record in (*patient.records("A", 1), *patient.records("B", 0)):
        with contextlib.suppress(IntegrityError):
            patient.payload(record)
            served += 1
    assert served >= 4
    assert IntegrityError("x").hint == "optchat doctor"


def test_a_lost_original_does_not_keep_the_others_from_being_exported(patient, tmp_path):
    """§10: the export says which one it could not read, and holds all others."""
    patient.run_sql("update pack set data = zeroblob(length(data)) where id = 2")
    made = patient.service.export(ExportRequest(folder=str(tmp_path / "out"), directory="/project"))
    texts = [p.read_text() for p in Path(made.folder).glob("pub-*.md")]
    assert any("this original cannot be read" in text for text in texts)
    assert sum(LONG.strip()[:60] in text for text in texts) >= 2


def test_a_turn_that_was_never_queued_is_published_after_a_repair(patient):
    """§9: what the outbox lost is found again from the turn itself."""
    patient.a.turn("unnoticed", LONG)
    patient.run_sql("delete from job where kind = 'turn' and state <> 'done'")
    patient.drain()
    published = len(patient.publications())
    assert any("is not published" in f.what for f in patient.examine().faults)
    patient.examine(repair=True)
    patient.drain()
    assert len(patient.publications()) == published + 1
    assert patient.examine().faults == []


def test_damaged_pages_are_told_and_what_can_be_read_is_checked_on(patient):
    """§10: the doctor does not stop at the first thing that it cannot read."""
    path = patient.folder / "memory.db"
    (page,) = patient.store._writer.do(
        lambda c: c.one("select pageno from dbstat where name = 'record' and pagetype = 'leaf'")
    )
    patient.store.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    patient.reopen()
    found = patient.examine()
    assert any("the database file is damaged" in f.what for f in found.faults)
    assert any("s1 of /project cannot be read" in f.what for f in found.faults)
    assert found.checked["scopes"] == 1


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def memory():
    with temporary_memory() as made:
        yield made


def doctor(memory: Memory, *more: str) -> tuple[int, dict]:
    done = memory.cli("doctor", "--json", *more)
    return done.status, json.loads(done.stdout)


def test_the_command_asks_the_coordinator_or_looks_itself(memory, monkeypatch, tmp_path):
    """One answer with and without a coordinator, and exit status 1 when something is wrong."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    status, found = doctor(memory)
    assert (status, found["checked"]) == (0, {})
    memory.ensure()
    with Client(memory.paths) as client:
        session = ScriptedSession(Remote(client), "A")
        session.turn("ask", LONG)
        memory.published(1)
    status, found = doctor(memory, "--full")
    assert (status, found["faults"], found["checked"]["records"]) == (0, [], 2)
    assert any("optchat install" in note for note in found["notes"])
    memory.stop()
    assert doctor(memory, "--full")[1]["checked"] == found["checked"]

    memory.paths.socket.write_text("mine")
    memory.paths.store.chmod(0o644)
    (memory.home / "config.toml").write_text("[memory]\nlayuot = 1\n")
    (memory.home / "memory.db.schema0.bak").write_bytes(b"no database" * 500)
    entry = ["file:///nowhere/optchat.js", {"command": ["/nowhere/python"]}]
    install.install(entry=entry)
    status, found = doctor(memory)
    assert status == 1
    whats = "\n".join(f["what"] for f in found["faults"])
    for told in (
        "memory.db.schema0.bak is damaged",
        "layuot",
        "/nowhere/optchat.js",
        "is no socket",
    ):
        assert told in whats
    told = memory.cli("doctor").stdout
    assert told.count("unharmed: ") == told.count("next: ") == len(found["faults"])
    # Opening the store has narrowed it already.
    assert memory.paths.store.stat().st_mode & 0o077 == 0


def test_a_store_that_cannot_be_opened_is_a_fault_with_a_next_step(memory):
    memory.home.mkdir(mode=0o700)
    memory.paths.store.write_bytes(b"no database at all, but long enough " * 100)
    status, found = doctor(memory)
    assert status == 1
    assert "cannot be opened" in found["faults"][0]["what"]
    assert found["faults"][0]["next"].startswith("move ")


def test_a_lock_without_an_answer_is_a_fault_and_the_store_is_left_alone(memory):
    """§9: somebody owns the directory, so that the doctor must not open it."""
    memory.ensure()
    memory.stop()
    before = memory.paths.store.read_bytes()
    with filelock.FileLock(memory.paths.lock, mode=0o600):
        status, found = doctor(memory, "--repair")
    assert status == 1
    assert "does not answer" in found["faults"][0]["what"]
    assert str(memory.paths.log) in found["faults"][0]["next"]
    assert memory.paths.store.read_bytes() == before
