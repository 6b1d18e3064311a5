"""Oversized payloads: the whole of them, in bounded memory, resumable (§4)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from optchat.compactor.chunks import CHUNK_BYTES, _cut_length
from optchat.config import Caps
from optchat.testing.endpoint import asked_of, obedient


def text_of(kilobytes: int) -> str:
    line = "{n:07d} GET /api/items/{n} 200 in 12 ms from worker-{w} with größe ok\n"
    made = []
    size = 0
    n = 0
    while size < kilobytes * 1024:
        one = line.format(n=n, w=n % 7)
        if n % 5_000 == 4_999:
            one = f"{n:07d} ERROR ECONNRESET in src/net/http.ts after 250 ms\n"
        made.append(one)
        size += len(one.encode())
        n += 1
    return "".join(made)


def large(bench, kilobytes: int):
    a = bench.session()
    a.assistant("", tools=(("bash", {"c": "cat log"}, text_of(kilobytes)),))
    a.sync()
    bench.clock.advance(bench.config.compactor.hold_ms + 1)
    return bench.tree()


def chunks(bench, level=0):
    tree = bench.tree()
    record = bench.read(lambda tx: tx.records.record(tree, 1))
    plan = bench.read(lambda tx: _plan(tx, record.payload))
    found = bench.read(lambda tx: tx.chunks.of(record.payload, plan))
    return record, [c for c in found if c.level == level]


def _plan(tx, payload):
    from optchat.compactor.prompts import prompts

    for budget in (12, 6, 4, 1_000_000, 40):
        plan = f"{prompts().version} {CHUNK_BYTES} {budget}"
        if tx.chunks.of(payload, plan):
            return plan
    return ""


def covers_once(record, pieces) -> bool:
    ends = [0, *(c.end_exclusive for c in pieces)]
    starts = [c.start for c in pieces]
    return starts == ends[:-1] and ends[-1] == record.payload_bytes


def test_a_payload_within_the_budget_is_read_whole(bench):
    large(bench, 200)
    bench.finish()
    record, pieces = chunks(bench)
    assert covers_once(record, pieces)
    assert all(c.read == c.end_exclusive - c.start for c in pieces)
    node = bench.node(1)
    assert node.label == "result bash in parts"
    assert node.evidence == "1..2"
    assert len(bench.model.calls) <= len(pieces) + 2


def test_past_its_budget_the_rest_is_recorded_as_not_read(make_bench):
    bench = make_bench(
        caps=Caps(
            day_calls=0,
            day_tokens=0,
            turn_calls=0,
            turn_tokens=0,
            idle_hour_calls=0,
            idle_hour_tokens=0,
            payload_calls=6,
        )
    )
    large(bench, 1_500)
    bench.finish()
    record, pieces = chunks(bench)
    assert covers_once(record, pieces)
    unread = [c for c in pieces if not c.read]
    assert len(unread) > 30
    assert all("were not read" in c.text for c in unread)
    assert any("ERROR" in c.text for c in unread), "what sounds like trouble is told"
    assert "read" in bench.node(1).label
    assert "of 1.5 MB" in bench.node(1).label
    assert len(bench.model.calls) <= 6 + 4


def test_a_crash_goes_on_where_it_was(bench):
    class Killed(BaseException):
        pass

    def script(asked):
        if len(bench.model.calls) == 4:
            raise Killed
        return obedient(asked)

    bench.model.script = script
    large(bench, 250)
    with pytest.raises(Killed):
        bench.worker().run_one()
    done = [c for c in chunks(bench)[1] if c.text]
    assert len(done) == 3
    bench.clock.advance(3_600_000)
    bench.finish()
    heads = [b.head for c in bench.model.calls for b in asked_of(c).blocks.values()]
    again = {h for h in heads if heads.count(h) > 1 and h.startswith("part")}
    assert len(again) == 1, "only the one in flight was asked for twice"
    record, pieces = chunks(bench)
    assert covers_once(record, pieces)
    assert bench.node(1) is not None


def test_a_cap_stops_it_between_two_pieces_and_it_goes_on_the_next_day(make_bench):
    bench = make_bench(
        caps=Caps(
            day_calls=3,
            day_tokens=0,
            turn_calls=0,
            turn_tokens=0,
            idle_hour_calls=0,
            idle_hour_tokens=0,
        )
    )
    large(bench, 200)
    bench.drain()
    assert len(bench.model.calls) == 3
    assert bench.node(1) is None
    bench.clock.advance(86_400_000)
    for _ in range(6):
        bench.drain()
        bench.clock.advance(86_400_000)
    assert bench.node(1) is not None
    assert bench.counts().get("failed", 0) == 0


@pytest.mark.parametrize("tail", [b"", b"a", "é".encode(), "€".encode(), "𝄞".encode()])
def test_a_cut_splits_no_character(tail):
    raw = ("€" * 4_000).encode()[: 9_000 - len(tail)] + tail
    for extra in range(4):
        data = raw + "𝄞€é".encode()[:extra]
        length = _cut_length(data)
        assert 0 < length <= len(data)
        if length < len(data):
            data[length:].decode("utf-8", "ignore")
            assert data[length] & 0xC0 != 0x80


MEMORY = """
import json, os, sys, pathlib
sys.path.insert(0, {root!r})
from optchat.compactor.desk import Desk
from optchat.compactor.worker import Worker
from optchat.config import Caps, Compactor, Config
from optchat.core.records import Record, RecordKind, Session, Generation, Turn
from optchat.core.scopes import Scope
from optchat.core.tree import SessionTree
from optchat.engine.deps import Deps
from optchat.engine.nodes import enqueue_node
from optchat.refs import Span
from optchat.storage.sqlite import SqliteStore
from optchat.coordinator.ids import CountedIds
from optchat.testing.clockwork import ManualClock
from optchat.testing.endpoint import ScriptedModel, obedient
folder = pathlib.Path({tmp!r})
is_new = not (folder / "memory.db").exists()
clock = ManualClock()
settings = Compactor(model="openai", url="http://x", model_name="m", caps=Caps())
store = SqliteStore(folder / "memory.db", clock)
deps = Deps(Config(compactor=settings), clock, CountedIds(store.write(lambda tx: tx.meta.raise_epoch())))
line = b"%07d GET /api/items 200 in 12 ms from worker with text that goes on\\n"
payload = b"".join(line % n for n in range({size} // 70 + 1))[:{size}]
def seal(tx):
    tx.sessions.put_scope(Scope(scope_id="project:p", name="p", sessions=1))
    tx.sessions.put_session(Session(session_id="s", host="h", host_session="x", scope_id="project:p",
        number=1, project_id="p", generation=0, title="t", directory="/d", created_ms=1, updated_ms=1))
    tx.sessions.put_generation(Generation(session_id="s", number=0))
    tx.turns.put(Turn(turn_id="t", session_id="s", generation=0, key="k", start_seq=0, opened_ms=1))
    blob = tx.blobs.put(payload)
    tx.records.append([Record(session_id="s", generation=0, seq=0, event_key="e", turn_id="t",
        message_id="m", kind=RecordKind.TOOL_RESULT, host_time_ms=1, sealed_ms=1, payload=blob,
        payload_bytes=len(payload), project_id="p", tool="bash")], [b""])
    enqueue_node(tx, deps, SessionTree("s", 0), Span(0, 1), "s", "project:p", waits_for=())
    return blob
blob = store.write(seal) if is_new else store.read(
    lambda tx: tx.records.record(SessionTree("s", 0), 0).payload)
whole = len(payload)
del payload
clock.advance(10**7 if is_new else 10**8)
desk = Desk(settings, clock.now_ms)
def script(asked):
    if len(model.calls) == {kill_at}:
        os.kill(os.getpid(), 9)
    return obedient(asked)
model = ScriptedModel(script)
worker = Worker(store, deps, model, "w", desk)
while worker.run_one():
    pass
node = store.read(lambda tx: tx.trees.node(SessionTree("s", 0), Span(0, 1)))
from optchat.compactor.prompts import prompts
pieces = [c for c in store.read(lambda tx: tx.chunks.of(blob, prompts().version + " 32768 12")) if not c.level]
ends = [0] + [c.end_exclusive for c in pieces]
# Not ru_maxrss, which begins with the size of the process that this one was forked from.
status = pathlib.Path("/proc/self/status").read_text().split()
peak_kb = int(status[status.index("VmHWM:") + 1])
print(json.dumps(dict(peak_mb=peak_kb / 1024, label=node.label,
    pieces=len(pieces), once=[c.start for c in pieces] == ends[:-1] and ends[-1] == whole,
    calls=len(model.calls))))
"""


@pytest.mark.timeout(300)
def test_50_mb_stay_under_300_mb_of_memory_also_over_a_kill(tmp_path):
    """§4, §10: kill -9 at the fifth call; the next process goes on with what is recorded."""
    killed = large_process(tmp_path, kill_at=5)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2_000:]
    done = large_process(tmp_path, kill_at=0)
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["once"], found
    assert found["peak_mb"] < 300, found
    assert found["calls"] <= 16 - 4, "what the first process had read was not read again"


def large_process(tmp_path, kill_at):
    root = str(Path(__file__).resolve().parents[2])
    code = MEMORY.format(root=root, tmp=str(tmp_path), size=50 * 1024 * 1024, kill_at=kill_at)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=280
    )
