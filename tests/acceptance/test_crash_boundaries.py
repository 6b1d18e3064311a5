"""kill -9 before and after each kind of commit: the state before, or one whole new state.

§16 Crash boundaries, §9, §10, §12; invariants I5, I6, I7, I8, I12. A real coordinator, a scripted
host that asks again, and a model on loopback that counts. ``OPTCHAT_TEST_SEEDS`` lives for each
point.
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
from typing import Any, Literal

import pytest

from optchat.config import Config
from optchat.coordinator.client import Client, RemoteError
from optchat.coordinator.doctor import examine
from optchat.engine.deps import Deps
from optchat.engine.forget import UNSCRUBBED
from optchat.errors import Unreachable
from optchat.storage.sqlite import SqliteStore
from optchat.storage.sqlite import store as store_module
from optchat.storage.sqlite.migrations import MIGRATIONS, backup_path, migrate
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.testing.endpoint import Endpoint
from optchat.testing.scripted import ScriptedSession
from optchat.wire import (
    DoctorRequest,
    ForgetRequest,
    ForgetResponse,
    StatusResponse,
    ToolRequest,
    ToolResponse,
)
from tests.durability.crashing import MIGRATED, POINTS
from tests.e2e.support_b import Memory, Remote, eventually, temporary_memory
from tests.harness.remains import copied, remains, rows

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
        self.going = ""
        self.before: dict[str, list[Any]] = {}
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

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def talk(self) -> None:
        """Conversations, an edit and two removals, all summarised and published before the next."""
        remote = Remote(self)  # type: ignore[arg-type]
        a, b, c = (ScriptedSession(remote, name) for name in "ABC")
        published = 0
        for session, asked in ((a, "first osprey47"), (b, "second"), (a, "third")):
            session.turn(f"{asked}: {LONG}", f"answer to {asked}: {LONG}")
            published += 1
            self.drained(published)
        a.edited(3, "I take the answer to third back.")
        a.sync(idle=True)
        self.drained(published)
        a.turn(f"fourth: {LONG}", f"answer to fourth: {LONG}")
        c.turn(f"fifth bustard48: {LONG}", f"answer to fifth: {LONG}")
        self.drained(published + 2)
        self.forget("session", "C", "bustard48")
        self.drained(published + 2)
        self.forget("turn", "pub:0", "osprey47")
        self.drained(published + 2)
        a.turn(f"sixth: {LONG}", f"answer to sixth: {LONG}")
        self.drained(published + 3)

    def forget(self, what: Literal["session", "turn"], name: str, word: str) -> None:
        """Remove; asked again after a crash, there is either still all of it or nothing any more.

        In the end no tool finds the word that it held, and no byte of it is left.
        """
        self.going, self.before = word, kept(self.memory)
        crashes = self.crashes
        try:
            request = ForgetRequest(what=what, name=name, directory="/project")
            self.call("/v1/forget", request, ForgetResponse)
        except RemoteError as error:
            if error.code != "not_found" or self.crashes == crashes:
                raise
        eventually(lambda: self.memory.rows(f"select 1 from meta where {SCRUBBED}"))
        assert not remaining(self.memory, word)
        search = ToolRequest(
            tool="memory_search", args_json=json.dumps({"query": word}), directory="/project"
        )
        assert self.call("/v1/tool", search, ToolResponse).output.startswith("0 of")

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
    "records": "select s.host_session, g.number, seq, event_key, kind, hex(b.hash) from record r "
    "join generation g on g.id = r.generation_id join session s using (session_id) "
    "join blob b on b.id = r.blob",
    "turns": "select s.host_session, t.generation, key, start_seq, end_seq_exclusive, outcome, "
    "pin is null, news = '' from turn t join session s using (session_id)",
    "publications": "select seq, s.host_session, p.generation, start_seq, end_seq_exclusive, "
    "outcome, died is null from publication p join session s using (session_id)",
    "nodes": "select coalesce((select s.host_session || substr(t.name, 3 + length(session_id)) "
    "from session s where t.name like 'g:' || session_id || ':%'), 'p'), start, count, kind, "
    "label, text from node n join tree t on t.id = n.tree where died is null",
    "removals": "select what, counts, places from removal",
}
SCRUBBED = f"key = '{UNSCRUBBED}' and value = '0'"


def kept(memory: Memory) -> dict[str, list[Any]]:
    """All that matters of a store, by the host's names instead of random ids."""
    return {name: sorted(memory.rows(sql), key=repr) for name, sql in KEPT.items()}


def scratch(memory: Memory) -> Path:
    return memory.home.with_name("copy")


def remaining(memory: Memory, word: str) -> dict[str, list[str]]:
    """The files that still hold any byte of a word."""
    return remains(memory.home, (word,), scratch(memory))


def is_readable(memory: Memory, word: str) -> bool:
    """Whether a row, original or index tells a word."""
    copy = copied(memory.home, scratch(memory)) / memory.paths.store.name
    return any(word.encode() in data for _, data in rows(copy))


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
        lived.stop()
        lived.memory.paths.socket.unlink()
        shutil.copytree(lived.memory.home, home)
        passed = json.loads((lived.memory.home.parent / "points.json").read_text())
        made = Reference(home, {**passed, "migration": 1}, kept(lived.memory), len(lived.calls))
    assert all(passed.get(point) for point in POINTS if point != "migration"), passed
    return made


def is_there(point: str, what: Any, lived: Life) -> bool:
    """Whether the commit that was in flight is in the store."""
    look = lived.memory.rows
    match point:
        case "admission":
            return bool(look(f"select 1 from turn where turn_id = '{what}' and pin is not null"))
        case "seal":
            number, generation, records = what
            found = look(
                "select g.length from generation g join member m using (session_id) "
                f"where m.number = {number} and g.number = {generation}"
            )
            return bool(found) and found[0][0] >= records
        case "node":
            tree, start, count, text = what
            found = look(
                "select text from node where died is null and "
                f"tree = (select id from tree where name = '{tree}') "
                f"and start = {start} and count = {count}"
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
        case "forget":
            removed = not is_readable(lived.memory, lived.going)
            name, at_ms = what
            logged = look(f"select 1 from removal where what = '{name}' and at_ms = {at_ms}")
            assert bool(logged) == removed
            assert removed or kept(lived.memory) == lived.before
            return removed
        case "scrub":
            assert not is_readable(lived.memory, lived.going)
            return not remaining(lived.memory, lived.going)
        case _:
            return bool(look("select 1 from sqlite_schema where name = 'more'"))


def whole(lived: Life) -> None:
    """No torn view: our own check of everything finds no fault in what the crash left.

    In a copy: to open a store moves its log, and the next coordinator is to find what was left.
    """
    copy = copied(lived.memory.home, scratch(lived.memory)) / lived.memory.paths.store.name
    steps = MIGRATED if lived.migrated else MIGRATIONS
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store_module, "migrate", partial(migrate, migrations=steps))
        store = SqliteStore(copy)
    try:
        deps = Deps(Config(), ManualClock(), CountedIds())
        assert examine(store, deps, DoctorRequest(full=True)).faults == []
    finally:
        store.close()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_kill_leaves_the_state_before_or_the_whole_state_after(
    reference: Reference, point: str, seed: int
) -> None:
    """I6, I5, I12: one or the other, and in the end what would have been without the crash."""
    side = ("before", "after")[seed % 2]
    nth = random.Random(f"{point} {seed}").randint(1, reference.passed[point])
    seen: list[bool] = []

    def look(lived: Life) -> None:
        told = lived.memory.home / "crash.json"
        what = json.loads(told.read_text())
        told.unlink()  # it may hold words that are to be forgotten
        seen.append(is_there(point, what, lived))
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
        lived.stop()
        assert kept(lived.memory) == reference.kept
        made = 0 if point == "migration" else reference.calls
        # At most the one call whose answer was not committed yet is made a second time.
        again = len(lived.calls) - made
        assert 0 <= again <= 1
        assert len(lived.calls) - len(set(lived.calls)) <= again
        if point in ("node", "publication", "forget"):
            assert again <= (side == "before")
