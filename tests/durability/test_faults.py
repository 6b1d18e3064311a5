"""What goes wrong around the store has a name, leaves nothing half done, and is got over (§9, §10).

Read-only folders, newer schemas, other programs' files, unusable configurations and a disk that is
really full are tried on the real coordinator in tests/integration/test_coordinator.py.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import apsw
import msgspec
import pytest

from optchat.compactor.worker import Worker
from optchat.compactor.workers import Workers
from optchat.coordinator import client as client_module
from optchat.coordinator.client import EXIT_NOT_OWNER, Client
from optchat.coordinator.daemon import take_over
from optchat.engine.deps import Deps
from optchat.errors import DiskFull, IntegrityError, StorageError
from optchat.limits import JOB_LEASE_MS
from optchat.storage.ports import JobState
from optchat.storage.sqlite import writer as writer_module
from optchat.testing.scripted import ScriptedSession
from tests.durability.conftest import LONG, Patient
from tests.durability.powerloss import disk
from tests.durability.test_power_loss import content
from tests.e2e.support_b import Remote, temporary_memory
from tests.engine.conftest import Bench

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal, named", [(apsw.FullError, DiskFull), (apsw.IOError, StorageError)]
)
def test_a_write_that_the_disk_refuses_leaves_nothing_and_goes_on_with_room(
    tmp_path, monkeypatch, refusal, named
):
    """I6: refused at its first write, its second and so on; the log is moved in the midst of it."""
    monkeypatch.setattr(writer_module, "CHECKPOINT_PAGES", 30)
    with disk() as made:
        made.refusal = refusal
        bench = Bench(tmp_path)
        session = bench.session("A")
        session.turn("first", LONG)
        bench.drain()
        session.user("second " + LONG)
        before = bench.store._writer.do(content)
        refused = 0
        while True:
            made.writes_left = refused
            try:
                session.sync()
            except named:
                refused += 1
            else:
                break
            assert bench.store._writer.do(content) == before
        made.writes_left = None
        assert refused > 10
        session.assemble()
        session.assistant("done " + LONG, terminal="completed")
        session.sync(idle=True)
        bench.drain()
        assert len(bench.publications()) == 2
        assert bench.store.damage() == ()
        bench.store.close()


def test_compaction_without_room_loses_no_job_and_no_line(tmp_path):
    """§10: the job is leased, put back or still there; with room it is made, once."""
    with disk() as made:
        bench = Bench(tmp_path)
        bench.session("A").turn("ask", LONG)
        worker = bench.worker()
        for room in range(40):
            made.writes_left = room
            with contextlib.suppress(StorageError):
                worker.run_one()
            bench.clock.advance(JOB_LEASE_MS + 1)
        made.writes_left = None
        bench.clock.advance(HOUR_MS)
        bench.drain()
        counts = bench.counts()
        assert counts["failed"] == 0
        assert counts["ready"] == counts["waiting"] == counts["leased"] == 0
        assert len(bench.publications()) == 1
        assert bench.store.damage() == ()
        bench.store.close()


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS, 400 * DAY_MS, -HOUR_MS])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_clock_that_jumps_changes_no_order_and_makes_nothing_wait(tmp_path, jump_ms, restarted):
    """§5, §9: order is that of numbers; what was put off does not wait for the lost time again."""
    bench = Bench(tmp_path)
    a, b = bench.session("A"), bench.session("B")
    workers = Workers(bench.store, without_threads(bench.deps), lambda: None, threading.Event())
    a.turn("before", LONG)
    bench.drain()
    b.turn("at the jump", LONG)
    bench.clock.advance(jump_ms)
    if restarted:
        bench.store.write(lambda tx: take_over(tx, bench.clock.now_ms()))
    else:
        workers.watch_clock()
    a.turn("after", LONG)
    bench.drain()
    assert [p.seq for p in bench.publications()] == [0, 1, 2]
    assert [p.born for p in bench.publications()] == sorted(p.born for p in bench.publications())
    assert bench.counts()["done"] == sum(bench.counts().values())
    asked = b.turn("what was said?", "that")
    assert "before" in asked.base + "".join(n.text for n in asked.news)
    workers.close()
    bench.store.close()


def without_threads(deps: Deps) -> Deps:
    compactor = msgspec.structs.replace(deps.config.compactor, workers=0)
    return replace(deps, config=msgspec.structs.replace(deps.config, compactor=compactor))


def test_what_an_owner_held_that_is_gone_is_due_at_once(tmp_path):
    """§10: no restart waits for a lease to run out, least of all after the clock was set back."""
    bench = Bench(tmp_path)
    bench.session("A").turn("ask", LONG)
    now_ms = bench.clock.now_ms()
    assert bench.store.write(lambda tx: tx.jobs.claim("w-gone", now_ms, JOB_LEASE_MS))
    bench.clock.advance(-DAY_MS)
    bench.store.write(lambda tx: take_over(tx, bench.clock.now_ms()))
    bench.drain()
    assert len(bench.publications()) == 1
    bench.store.close()


def test_a_machine_that_sleeps_in_every_call_uses_up_no_attempt(tmp_path):
    """§9: a lease that ran out is taken over; it has not failed, however often it happens."""
    bench = Bench(tmp_path)
    bench.session("A").turn("ask", LONG)
    jobs = bench.counts()["ready"]
    taken = []
    for _ in range(20):
        now_ms = bench.clock.now_ms()
        taken.append(bench.store.write(lambda tx, n=now_ms: tx.jobs.claim("w", n, JOB_LEASE_MS)))
        bench.clock.advance(8 * HOUR_MS)
    assert jobs
    assert {job.attempts for job in taken} == {1}
    stale = taken[0]
    assert not bench.store.write(lambda tx: tx.jobs.finish(stale.job_id, stale.token))
    bench.drain()
    assert bench.counts()["failed"] == 0
    assert len(bench.publications()) == 1
    bench.store.close()


def test_a_job_that_ends_its_coordinator_each_time_is_set_aside_in_the_end(tmp_path):
    """§10: the attempts of owners that are gone count, so that a poisoned job does not go on."""
    bench = Bench(tmp_path)
    bench.session("A").turn("ask", LONG)
    for _ in range(40):
        now_ms = bench.clock.now_ms()
        bench.store.write(lambda tx, n=now_ms: tx.jobs.claim("w", n, JOB_LEASE_MS))
        bench.store.write(lambda tx: tx.jobs.end_leases())
    worker = Worker(bench.store, bench.deps, bench.model, "w")
    while worker.run_one():
        pass
    failed = bench.read(lambda tx: tx.jobs.listed(JobState.FAILED, 9))
    assert failed
    assert "its holder ended each time" in failed[0].error
    bench.store.close()


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_search_index_is_an_error_of_searching_alone(patient: Patient):
    """§10: named, with the doctor as the next step; zoom, dates and requests go on."""
    patient.a.user("where was it?")
    patient.a.sync()
    patient.a.assemble()
    patient.run_sql("update record_fts_data set block = zeroblob(length(block)) where id > 10")
    with pytest.raises(IntegrityError) as caught:
        patient.a.call("memory_search", query="broker")
    assert caught.value.hint == "optchat doctor"
    assert patient.a.call("memory_zoom", ref="pub:0").output
    assert patient.a.call("memory_sessions").output
    assert patient.a.assemble().state == "ready"


def test_a_damaged_original_is_an_error_of_that_original_alone(patient: Patient):
    """I1: never other bytes under its name, never a page that looks whole."""
    patient.run_sql("update pack set data = zeroblob(length(data)) where id = 2")
    patient.b.user("what was said?")
    patient.b.sync()
    assert patient.b.assemble().state == "ready"
    refused = served = 0
    for seq in range(6):
        try:
            patient.b.call("memory_zoom", ref=f"s1:1:{seq}")
            served += 1
        except IntegrityError:
            refused += 1
    assert refused >= 1
    assert served >= 3


# --- old readers and many processes ---------------------------------------------------------------


def test_a_reader_of_an_hour_old_state_costs_log_and_nothing_else(tmp_path, monkeypatch):
    """I6: writers and readers go on; the log grows with what is written and shrinks afterwards."""
    monkeypatch.setattr(writer_module, "CHECKPOINT_PAGES", 100)
    monkeypatch.setattr(writer_module, "TRUNCATE_PAGES", 400)
    monkeypatch.setattr("optchat.storage.sqlite.connection.CHECKPOINT_WAIT_MS", 10)
    monkeypatch.setattr("optchat.storage.sqlite.connection.LOG_BYTES_KEPT", 400 * 4096)
    bench = Bench(tmp_path)
    bench.store._writer.truncate_at = 400
    log = tmp_path / "memory.db-wal"
    session = bench.session("A")
    entered, leave = threading.Event(), threading.Event()

    def hold(tx) -> tuple[int, int]:
        before = tx.records.count()
        entered.set()
        leave.wait(60)
        return before, tx.records.count()

    with ThreadPoolExecutor(1) as pool:
        old = pool.submit(bench.store.read, hold)
        assert entered.wait(10)
        turns = 60  # one a minute
        for turn in range(turns):
            bench.clock.advance(HOUR_MS // turns)
            session.turn(f"request {turn}", LONG + str(turn))
            bench.drain()
        grown = log.stat().st_size
        leave.set()
        assert old.result() == (0, 0)
    print(f"{turns} turns beside an old reader: {grown // 1024} KiB of log")  # noqa: T201
    assert grown > 400 * 4096
    for turn in range(3):
        session.turn(f"after {turn}", LONG)
        bench.drain()
    assert log.stat().st_size <= 400 * 4096
    assert len(bench.publications()) == turns + 3
    bench.store.close()


def test_eight_processes_at_once_make_one_owner_and_every_client_is_served():
    """§9: one wins the lock, seven say so and go, and eight clients notice nothing of it."""
    with temporary_memory() as memory:
        started = [memory.serve() for _ in range(8)]

        def talk(number: int) -> int:
            client_module.ensure(memory.home, timeout_s=90)
            with Client(memory.paths) as client:
                session = ScriptedSession(Remote(client), f"S{number}")
                for turn in range(2):
                    session.turn(f"request {turn} of {number}", f"answer {turn}")
                return client.health().pid

        with ThreadPoolExecutor(8) as pool:
            pids = set(pool.map(talk, range(8)))
        memory.published(16, timeout=60)
        assert len(pids) == 1
        status = memory.status()
        assert status.records == 32
        assert len(status.scopes[0].sessions) == 8
        losers = [process for process in started if process.pid not in pids]
        assert {process.wait(60) for process in losers} == {EXIT_NOT_OWNER}
        assert len(losers) >= 7
        assert status.health.epoch == 1


def test_the_files_of_a_reader_that_is_gone_are_gone_too(tmp_path: Path):
    """After a clean close nothing but the store is left to be copied."""
    bench = Bench(tmp_path)
    bench.session("A").turn("ask", "answer")
    bench.store.close()
    assert sorted(p.name for p in tmp_path.glob("memory.db*")) == ["memory.db"]
