"""A service, a store and a scripted model, with time and ids decided by the test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from optchat.compactor.desk import Desk
from optchat.compactor.worker import Worker
from optchat.config import Caps, Compactor, Config, Memory
from optchat.coordinator import service as service_module
from optchat.coordinator.compaction import Compaction
from optchat.coordinator.service import Service
from optchat.core.tree import SessionTree
from optchat.engine.deps import Deps
from optchat.refs import Span
from optchat.storage.ports import JobState, Store, Tx
from optchat.storage.sqlite import SqliteStore
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.testing.endpoint import ScriptedModel
from optchat.testing.scripted import ScriptedSession

NO_CAPS = Caps(
    day_calls=0,
    day_tokens=0,
    turn_calls=0,
    turn_tokens=0,
    idle_hour_calls=0,
    idle_hour_tokens=0,
)


class Bench:
    """One data directory, a scripted model, and what runs over them."""

    def __init__(
        self,
        folder: Path,
        model: Any = None,
        *,
        store: Any = None,
        fallback: bool = False,
        **settings: Any,
    ) -> None:
        self.folder = folder
        settings.setdefault("caps", NO_CAPS)
        compactor = Compactor(model="openai", url="http://x", model_name="m", **settings)
        memory = Memory(readiness_timeout_ms=0, fallback=fallback)
        self.config = Config(memory=memory, compactor=compactor)
        self.clock = ManualClock()
        self.deps = Deps(self.config, self.clock, CountedIds())
        self.model = model or ScriptedModel()
        self.store: Store = store or SqliteStore(folder / "memory.db", self.clock)
        self.service = Service(self.store, self.deps, folder)
        self.active_ms: int | None = None
        self.desk = Desk(
            compactor,
            lambda: self.clock.now_ms() if self.active_ms is None else self.active_ms,
            warm_wait_s=0,
        )
        self.service.compaction = Compaction(self.store, self.deps, self.model, self.desk)
        self._names = itertools.count(1)

    def session(self, name: str = "A", **options: Any) -> ScriptedSession:
        return ScriptedSession(self.service, name, **options)

    def worker(self, name: str | None = None) -> Worker:
        return Worker(self.store, self.deps, self.model, name or f"w{next(self._names)}", self.desk)

    def drain(self, limit: int = 10_000) -> int:
        """Run what is due until nothing is; how many rounds that took."""
        worker = self.worker()
        for count in range(limit):
            if not worker.run_one():
                return count
        raise AssertionError("it does not end")

    def finish(self, rounds: int = 200) -> None:
        """Run everything, moving the clock over each delay."""
        for _ in range(rounds):
            self.drain()
            due = self.read(lambda tx: tx.jobs.next_due_ms())
            if due is None:
                return
            wait = max(due, self.desk.breaker.until_ms) - self.clock.now_ms()
            self.clock.advance(max(1, wait))
        raise AssertionError("it does not end")

    def read(self, work: Callable[[Tx], Any]) -> Any:
        return self.store.read(work)

    def counts(self) -> dict[str, int]:
        counts = self.read(lambda tx: tx.jobs.counts())
        return {s.value: n for s, n in counts.items() if n}

    def failed(self) -> tuple[Any, ...]:
        return self.read(lambda tx: tx.jobs.failed(100))

    def tree(self, name: str = "A") -> SessionTree:
        held = self.read(lambda tx: tx.sessions.session_of_host("scripted", name))
        return SessionTree(held.session_id, held.generation)

    def node(self, start: int, count: int = 1, name: str = "A") -> Any:
        tree = self.tree(name)
        return self.read(lambda tx: tx.trees.node(tree, Span(start, count)))

    def scope(self) -> Any:
        return self.read(lambda tx: tx.sessions.scopes())[0]

    def publications(self) -> tuple[Any, ...]:
        scope = self.scope()
        return self.read(lambda tx: tx.publications.range(scope.scope_id, 0, scope.publications))

    def published(self, seq: int = 0) -> Any:
        """The leaf of a publication."""
        from optchat.core.tree import ScopeTree

        tree = ScopeTree(self.scope().scope_id)
        return self.read(lambda tx: tx.trees.node(tree, Span(seq, 1)))

    def nodes(self, *names: str) -> list[Any]:
        """Every live node of some sessions and of the shared tree."""
        from optchat.core.tree import ScopeTree

        def work(tx: Tx) -> list[Any]:
            trees: list[Any] = [ScopeTree(s.scope_id) for s in tx.sessions.scopes()]
            for name in names or ("A",):
                held = tx.sessions.session_of_host("scripted", name)
                if held is not None:
                    trees.append(SessionTree(held.session_id, held.generation))
            found = []
            for tree in trees:
                for level in range(9):
                    for index in range(400 >> level or 1):
                        node = tx.trees.node(tree, Span(index << level, 1 << level))
                        if node is not None:
                            found.append(node)
            return found

        return self.read(work)

    def findings(self) -> dict[str, int]:
        found = self.read(lambda tx: tx.ledger.findings())
        return {name: times for _, _, name, times in found}

    def spent(self) -> Any:
        return self.read(lambda tx: tx.ledger.spent(0))

    def jobs(self, state: JobState) -> tuple[Any, ...]:
        return self.read(lambda tx: tx.jobs.listed(state, 1_000))


@pytest.fixture(autouse=True)
def _no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "observed_commit", lambda directory: None)


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(model: Any = None, **settings: Any) -> Bench:
        folder = tmp_path / f"data-{len(made)}"
        folder.mkdir()
        made.append(Bench(folder, model, **settings))
        return made[-1]

    yield make
    for bench in made:
        bench.store.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


def replaced(config: Config, **settings: Any) -> Config:
    """A configuration with other compactor settings."""
    return msgspec.structs.replace(
        config, compactor=msgspec.structs.replace(config.compactor, **settings)
    )
