"""kill -9 before and after each kind of commit: the state before, or one whole new state.

§16 Crash boundaries, §9, §10; invariants I5, I6, I7, I12. A real coordinator, a scripted host that
asks again, and a model on loopback that counts. ``OPTCHAT_TEST_SEEDS`` lives for each point.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from optchat.config import Config
from optchat.coordinator.client import Client
from optchat.coordinator.doctor import examine
from optchat.engine.deps import Deps
from optchat.errors import Unreachable
from optchat.storage.sqlite import SqliteStore
from optchat.storage.sqlite import store as store_module
from optchat.storage.sqlite.migrations import MIGRATIONS, backup_path, migrate
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.testing.endpoint import Endpoint
from optchat.testing.scripted import ScriptedSession
from optchat.wire import DoctorRequest, StatusResponse
from tests.durability.crashing import MIGRATED, POINTS
from tests.e2e.support_b import Memory, Remote, eventually, temporary_memory

pytestmark = [pytest.mark.hostless, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("OPTCHAT_TEST_SEEDS", "2"))
LONG = "The retry in src/net/http.ts waits 250 ms; the log shows ECONNRESET from the proxy. " * 10
SETTINGS = """
[memory]
own_high_bytes = 700
own_low_bytes = 400
shared_high_bytes = 700
shared_low_bytes = 400
[compactor]
model = "openai"
url = "{url}"
model_name = "m-1"
workers = 1
hold_seconds = 0
batch_lines = 1
"""


class Life:
    """A data directory, the coordinator that serves it now, and a host that does not give up."""

    def __init__(self, memory: Memory, endpoint: Endpoint, crash: str, *, migrated: bool) -> None:
        self.memory = memory
        self.endpoint = endpoint
        self.migrated = migrated
        self.crashes = 0
        self.at_crash: Callable[[Life], None] = lambda _: None
        memory.configure(SETTINGS.format(url=endpoint.url))
        self._start(crash)

    def _start(self, crash: str) -> None:
        env = {**os.environ, **self.memory.env, "OPTCHAT_TEST_CRASH": crash}
        env["OPTCHAT_TEST_MIGRATED"] = "1" if self.migrated else ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.durability.crashing"],
            cwd=ROOT,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.memory.started.append(self.process)
        eventually(lambda: self.process.poll() is not None or self.memory.health())

    def call(self, *arguments: Any) -> Any:
        """One request; where the coordinator died over it, again to the next one."""
        while True:
            with Client(self.memory.paths) as client:
                try:
                    return client.call(*arguments)
                except Unreachable:
                    assert self.process.wait(30) == -9
                    self.crashes += 1
                    self.at_crash(self)
                    self._start("")

    def talk(self) -> None:
        """Two conversations and an edit, each step summarised and published before the next."""
        remote = Remote(self)  # type: ignore[arg-type]
        a, b = ScriptedSession(remote, "A"), ScriptedSession(remote, "B")
        published = 0
        for session, asked in ((a, "first"), (b, "second"), (a, "third")):
            session.turn(f"{asked}: {LONG}", f"answer to {asked}: {LONG}")
            published += 1
            self.drained(published)
        a.edited(3, "I take the answer to third back.")
        a.sync(idle=True)
        self.drained(published)
        a.turn(f"fourth: {LONG}", f"answer to fourth: {LONG}")
        self.drained(published + 1)

    def drained(self, published: int) -> None:
        def done() -> bool:
            status = self.call("/v1/status", None, StatusResponse)
            pending = sum(status.jobs[s] for s in ("waiting", "ready", "leased"))
            return sum(s.publications for s in status.scopes) >= published and not pending

        eventually(done, 60)

    @property
    def calls(self) -> list[tuple[str, ...]]:
        """What each call to the model was about, without the codes that are drawn anew."""
        return [
            tuple(f"{b.head} {b.body}" for b in r.asked.blocks.values())
            for r in self.endpoint.received
        ]


@contextmanager
def life(crash: str = "", home: Path | None = None) -> Iterator[Life]:
    with temporary_memory() as memory, Endpoint() as endpoint:
        if home is not None:
            shutil.copytree(home, memory.home)
        yield Life(memory, endpoint, crash, migrated=home is not None)


KEPT = {
    "records": "select s.number, r.generation, seq, event_key, kind, payload from record r "
    "join session s using (session_id)",
    "turns": "select s.number, t.generation, key, start_seq, end_seq_exclusive, outcome, "
    "pin is null, news = '' from turn t join session s using (session_id)",
    "publications": "select seq, s.number, p.generation, start_seq, end_seq_exclusive, outcome, "
    "died is null from publication p join session s using (session_id)",
    "nodes": "select coalesce((select s.number || substr(n.tree, 3 + length(session_id)) "
    "from session s where n.tree like 'g:' || session_id || ':%'), 'p'), start, count, kind, "
    "label, text from node n where died is null",
}


def kept(memory: Memory) -> dict[str, list[Any]]:
    """All that matters of a store, by the numbers that it gives instead of random ids."""
    return {name: sorted(memory.rows(sql), key=repr) for name, sql in KEPT.items()}


@dataclass(frozen=True, slots=True)
class Reference:
    """The same script without a crash."""

    home: Path
    passed: dict[str, int]
    kept: dict[str, list[Any]]
    calls: int


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    home = tmp_path_factory.mktemp("reference") / "home"
    with life() as lived:
        lived.talk()
        lived.memory.stop()
        shutil.copytree(lived.memory.home, home)
        passed = json.loads((home / "points.json").read_text())
        made = Reference(home, {**passed, "migration": 1}, kept(lived.memory), len(lived.calls))
    assert all(passed.get(point) for point in POINTS if point != "migration"), passed
    return made


def is_there(point: str, what: Any, look: Callable[[str], list[Any]]) -> bool:
    """Whether the commit that was in flight is in the store."""
    match point:
        case "admission":
            return bool(look(f"select 1 from turn where turn_id = '{what}' and pin is not null"))
        case "seal":
            number, generation, records = what
            found = look(
                "select g.length from generation g join session s using (session_id) "
                f"where s.number = {number} and g.number = {generation}"
            )
            return bool(found) and found[0][0] >= records
        case "node":
            tree, start, count, text = what
            found = look(
                "select text from node where died is null and "
                f"tree = '{tree}' and start = {start} and count = {count}"
            )
            return [row[0] for row in found] == [text]
        case "publication":
            return bool(look(f"select 1 from publication where turn_id = '{what}'"))
        case "view":
            return bool(
                look(f"select 1 from tree_view where tree = '{what[0]}' and revision = {what[1]}")
            )
        case "retirement":
            retired = {r[0] for r in look("select seq from publication where died is not null")}
            return set(what) <= retired
        case _:
            return bool(look("select 1 from sqlite_schema where name = 'more'"))


def whole(lived: Life) -> None:
    """No torn view: our own check of everything finds no fault in what the crash left."""
    steps = MIGRATED if lived.migrated else MIGRATIONS
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store_module, "migrate", partial(migrate, migrations=steps))
        store = SqliteStore(lived.memory.paths.store)
    try:
        deps = Deps(Config(), ManualClock(), CountedIds())
        assert examine(store, deps, DoctorRequest(full=True)).faults == []
    finally:
        store.close()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_leaves_the_state_before_or_the_whole_state_after(
    reference: Reference, point: str, seed: int
) -> None:
    """I6, I5, I12: one or the other, and in the end what would have been without the crash."""
    side = ("before", "after")[seed % 2]
    nth = random.Random(f"{point} {seed}").randint(1, reference.passed[point])
    seen: list[bool] = []

    def look(lived: Life) -> None:
        what = json.loads((lived.memory.home / "crash.json").read_text())
        seen.append(is_there(point, what, lived.memory.rows))
        if point == "migration":
            assert backup_path(lived.memory.paths.store, len(MIGRATIONS)).exists()
        whole(lived)

    with life(f"{point}:{side}:{nth}", reference.home if point == "migration" else None) as lived:
        lived.at_crash = look
        if point == "migration":
            lived.drained(0)
        else:
            lived.talk()
        print(f"{point} {side} {nth}: {len(lived.calls)} calls")  # noqa: T201
        assert lived.crashes == 1
        assert seen == [side == "after"]
        lived.memory.stop()
        assert kept(lived.memory) == reference.kept
        made = 0 if point == "migration" else reference.calls
        # At most the one call whose answer was not committed yet is made a second time.
        again = len(lived.calls) - made
        assert 0 <= again <= 1
        assert len(lived.calls) - len(set(lived.calls)) <= again
        if point in ("node", "publication"):
            assert again <= (side == "before")
