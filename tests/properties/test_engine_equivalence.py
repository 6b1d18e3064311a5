"""The whole engine over both stores: the same answers to any schedule, and full coverage (I2, I5).

Scripted sessions in two scopes and an isolated one take turns, steer, call tools in parallel,
rewind and are replayed, while workers take jobs in between and the service restarts. After each
step the two services have answered alike, and an independent reader finds every record and
publication.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import msgspec
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from optchat.compactor.models import DeterministicModel
from optchat.compactor.worker import Worker
from optchat.config import Compactor, Config, Memory, Sharing
from optchat.coordinator import service as service_module
from optchat.coordinator.service import Service
from optchat.engine.deps import Deps
from optchat.errors import OptChatError
from optchat.storage.memory import MemoryStore
from optchat.storage.ports import Store
from optchat.storage.sqlite import SqliteStore
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.testing.scripted import ScriptedSession
from optchat.wire import ModelInfo
from tests.harness.request_reader import check_sent

CONFIG = Config(
    memory=Memory(
        readiness_timeout_ms=0,
        own_high_bytes=3_000,
        own_low_bytes=1_500,
        shared_high_bytes=2_500,
        shared_low_bytes=1_200,
        news_bytes_max=1_500,
        shared_base_news_bytes_max=800,
    ),
    sharing=Sharing(isolated=["/isolated"]),
    compactor=Compactor(model="deterministic"),
)
SESSIONS = (("A", "/project"), ("B", "/project"), ("C", "/other"), ("D", "/isolated"))
WINDOWS = (200_000, 16_000, 8_000)


@dataclass
class World:
    """One store with its service, and its own copies of the scripted sessions."""

    folder: Path
    durable: bool
    clock: ManualClock = field(default_factory=ManualClock)
    ids: CountedIds = field(default_factory=CountedIds)
    sessions: list[ScriptedSession] = field(default_factory=list)
    busy: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deps = Deps(CONFIG, self.clock, self.ids)
        self.store: Store = self._open() if self.durable else MemoryStore()
        self.service = Service(self.store, self.deps, self.folder)
        for name, directory in SESSIONS:
            self.sessions.append(ScriptedSession(self.service, name, directory=directory))
            self.busy.append(False)

    def _open(self) -> Store:
        return SqliteStore(self.folder / "memory.db", self.clock)

    def restart(self) -> None:
        if self.durable:
            self.store.close()
            self.store = self._open()
        self.service = Service(self.store, self.deps, self.folder)
        for session in self.sessions:
            session.coordinator = self.service

    def settle(self) -> int:
        """Run every job, over every delay."""
        done = 0
        for _ in range(20):
            done += self.work(10_000, "w")
            due = self.store.read(lambda tx: tx.jobs.next_due_ms())
            if due is None:
                break
            self.clock.advance(max(1, due - self.clock.now_ms()))
        return done

    def work(self, count: int, name: str) -> int:
        worker = Worker(self.store, self.deps, DeterministicModel(), name)
        return sum(1 for _ in range(count) if worker.run_one())

    def step(self, action: tuple[Any, ...]) -> Any:
        """Do one thing; what came of it, in a form to be compared."""
        kind, which, size = action
        session = self.sessions[which % len(self.sessions)]
        busy = self.busy[which % len(self.sessions)]
        text = f"{kind} {session.count} " + "words of it " * (size if size < 50 else size * 8)
        self.clock.advance(1_000)
        match kind:
            case "ask":
                context = WINDOWS[size % len(WINDOWS)]
                session.model = ModelInfo(
                    provider="fake", id=f"m{context}", context_tokens=context, output_tokens=1_000
                )
                session.user(text)  # a running turn is interrupted by it
                self.busy[which % len(self.sessions)] = True
                return session.sync(), self.assembled(session)
            case "steer" if busy:
                session.user(text, opens=False)
                return session.sync(), self.assembled(session)
            case "tools" if busy:
                calls = tuple(("bash", {"n": n}, f"{n} {text}") for n in range(1 + size % 3))
                session.assistant("" if size % 2 else text, tools=calls)
                return session.sync(), self.assembled(session)
            case "end" if busy:
                outcome = ("completed", "interrupted", "failed")[size % 3]
                session.assistant(text, terminal=outcome)
                self.busy[which % len(self.sessions)] = False
                return session.sync(idle=bool(size % 2))
            case "replay":
                return session.sync()
            case "rewind" if not busy and session.messages:
                session.clock_ms += 1_000
                del session.messages[-(1 + size % len(session.messages)) :]
                return session.sync(idle=True)
            case "read" if busy:
                refs = ("pub:0", "pub:1", "pub:0+2", "s1:0:0", "s1:0:0+2", "s2:0:1", "s1:1:0")
                return [
                    self.called(session, "memory_zoom", ref=refs[size % len(refs)]),
                    self.called(session, "memory_date", ref=refs[size % len(refs)]),
                    self.called(session, "memory_search", query="words ask"),
                    self.called(session, "memory_search", query=f'"end {size}" bash'),
                    self.called(session, "memory_sessions"),
                ]
            case "work":
                return self.work(1 + size % 7, f"w{which}")
            case "drain":
                return self.work(10_000, "w")
            case "restart":
                self.restart()
            case _:
                pass
        return None

    def assembled(self, session: ScriptedSession) -> Any:
        answer = session.assemble()
        if answer.state == "ready":
            check_sent(session, answer)
            assert answer.estimated_tokens <= answer.limit_tokens
        else:
            assert answer.error is not None
            assert answer.error.code in ("memory_not_ready", "turn_too_large")
        return answer

    def called(self, session: ScriptedSession, tool: str, **args: Any) -> Any:
        try:
            return session.call(tool, **args)
        except OptChatError as error:
            return error.code, error.message

    def status(self) -> Any:
        told = msgspec.to_builtins(self.service.status())
        del told["health"]
        return told


ACTIONS = st.tuples(
    st.sampled_from(
        ["ask"] * 5
        + ["end"] * 5
        + ["tools"] * 3
        + ["work"] * 3
        + ["drain", "steer", "replay", "rewind", "restart", "read", "read"]
    ),
    st.sampled_from([0, 0, 0, 1, 1, 2, 3]),
    st.integers(0, 60),
)


W = TypeVar("W", bound=World)


@contextmanager
def worlds(kind: type[W]) -> Iterator[list[W]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(service_module, "observed_commit", return_value=None),
    ):
        made = [kind(Path(folder), durable=True), kind(Path(folder), durable=False)]
        try:
            yield made
        finally:
            made[0].store.close()


def compare(first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    ours, theirs = first(), second()
    assert ours == theirs
    return ours


@pytest.mark.slow
@pytest.mark.timeout(400)  # seconds, for a machine that does much beside
@settings(max_examples=6, deadline=None)
@given(st.lists(ACTIONS, min_size=20, max_size=60))
def test_both_stores_answer_alike_and_every_request_covers_everything(actions):
    with worlds(World) as (durable, plain):
        for action in actions:
            note(str(action))
            compare(lambda a=action: durable.step(a), lambda a=action: plain.step(a))
        compare(durable.status, plain.status)
        # In the end everything that is queued can be made, and every conversation goes on.
        compare(durable.settle, plain.settle)
        jobs = durable.status()["jobs"]
        assert (jobs["failed"], jobs["waiting"]) == (0, 0)
        for which in range(len(SESSIONS)):
            last = ("ask", which, 0)
            compare(lambda a=last: durable.step(a), lambda a=last: plain.step(a))
            answer = durable.sessions[which].assemble()
            assert answer.state == "ready", answer.error
