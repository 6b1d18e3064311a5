"""A service over a store, with its clock, ids and summary model decided by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from optchat.compactor.models import DeterministicModel, SummaryModel
from optchat.compactor.worker import Worker
from optchat.config import Compactor, Config, Memory, Recall, Sharing
from optchat.coordinator import service as service_module
from optchat.coordinator.importing import Importing
from optchat.coordinator.reconciling import Reconciling
from optchat.coordinator.service import Service
from optchat.core.tree import SessionTree
from optchat.engine.deps import Deps
from optchat.engine.sessions import own_lineage
from optchat.storage.ports import JobState, Store, Tx
from optchat.storage.sqlite import SqliteStore
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.testing.scripted import ScriptedSession


class Bench:
    """One data directory and what runs over it."""

    def __init__(
        self,
        folder: Path,
        *,
        sharing: Sharing | None = None,
        recall: Recall | None = None,
        **memory: Any,
    ) -> None:
        self.folder = folder
        memory.setdefault("readiness_timeout_ms", 0)
        memory.setdefault("fallback", False)
        self.config = Config(
            memory=Memory(**memory),
            sharing=sharing or Sharing(),
            recall=recall or Recall(),
            compactor=Compactor(model="deterministic"),
        )
        self.clock = ManualClock()
        self.ids = CountedIds()
        self.deps = Deps(self.config, self.clock, self.ids)
        self.model: SummaryModel = DeterministicModel()
        self.store: Store = SqliteStore(folder / "memory.db", self.clock)
        self.service = Service(self.store, self.deps, folder)

    def reopen(self) -> None:
        """Close the store and open it again, as a restart does; sessions go on with the new one."""
        self.store.close()
        self.store = SqliteStore(self.folder / "memory.db", self.clock)
        self.service.store = self.service.requests.store = self.store
        self.service.importing = Importing(self.store, self.deps)
        self.service.reconciling = Reconciling(self.store, self.deps, self.service.importing)

    def session(self, name: str = "A", **options: Any) -> ScriptedSession:
        return ScriptedSession(self.service, name, **options)

    def worker(self, name: str = "w", model: SummaryModel | None = None) -> Worker:
        return Worker(self.store, self.deps, model or self.model, name)

    def drain(self, limit: int = 100_000) -> int:
        """Run jobs until none is due; how many ran."""
        worker = self.worker()
        for count in range(limit):
            if not worker.run_one():
                return count
        return limit

    def read(self, work: Callable[[Tx], Any]) -> Any:
        return self.store.read(work)

    def counts(self) -> dict[str, int]:
        return self.service.status().jobs

    def scope(self, name: str = "/project") -> Any:
        found = self.read(lambda tx: [s for s in tx.sessions.scopes() if s.name == name])
        return found[0] if found else None

    def publications(self, name: str = "/project") -> tuple[Any, ...]:
        scope = self.scope(name)
        if scope is None:
            return ()
        return self.read(
            lambda tx: tx.publications.range(scope.scope_id, 0, max(scope.publications, 1) + 9)
        )

    def records(self, name: str = "A", generation: int | None = None) -> tuple[Any, ...]:
        """The own records of a session's generation, the current one if not said."""

        def work(tx: Tx) -> tuple[Any, ...]:
            held = tx.sessions.session_of_host("scripted", name)
            if held is None:
                return ()
            number = held.generation if generation is None else generation
            return tx.records.range(SessionTree(held.session_id, number), 0, 1_000_000)

        return self.read(work)

    def history(self, name: str = "A") -> tuple[Any, ...]:
        """All records of a session as it is now, inherited ones included."""

        def work(tx: Tx) -> tuple[Any, ...]:
            held = tx.sessions.session_of_host("scripted", name)
            return tuple(
                record
                for piece in own_lineage(tx, held).segments
                for record in tx.records.range(piece.tree, piece.start, piece.end_exclusive)
            )

        return self.read(work)

    def turns(self, name: str = "A") -> tuple[Any, ...]:
        def work(tx: Tx) -> tuple[Any, ...]:
            held = tx.sessions.session_of_host("scripted", name)
            return tx.turns.of_session(held.session_id) if held is not None else ()

        return self.read(work)

    def held(self, name: str = "A") -> Any:
        return self.read(lambda tx: tx.sessions.session_of_host("scripted", name))

    def payload(self, record: Any) -> bytes:
        return self.read(lambda tx: b"".join(tx.blobs.chunks(record.payload)))

    def state(self) -> Any:
        """All that is sealed, published and queued, to be compared before and after."""

        def work(tx: Tx) -> Any:
            found: list[Any] = []
            for scope in tx.sessions.scopes():
                found.append((scope, tx.publications.range(scope.scope_id, 0, 10_000)))
                for session in tx.sessions.sessions(scope.scope_id):
                    tree = SessionTree(session.session_id, session.generation)
                    found.append(
                        (
                            session,
                            tx.records.range(tree, 0, 100_000),
                            tx.turns.of_session(session.session_id),
                            tx.membership.messages(session.session_id),
                        )
                    )
            return found, {s: n for s, n in tx.jobs.counts().items() if n}, tx.meta.csn()

        return self.read(work)


@pytest.fixture(autouse=True)
def _no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sessions' directories are names only; nothing asks git about them."""
    monkeypatch.setattr(service_module, "observed_commit", lambda directory: None)


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        folder = tmp_path / f"data-{len(made)}"
        folder.mkdir()
        made.append(Bench(folder, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.store.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


@pytest.fixture
def failed_jobs(bench: Bench) -> Callable[[], int]:
    return lambda: bench.read(lambda tx: tx.jobs.counts().get(JobState.FAILED, 0))
