"""Every store under the same claims; a new store is one more parameter."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from optchat.core.publications import CoverPart, Publication
from optchat.core.records import Generation, Outcome, Record, RecordKind, Session, Turn
from optchat.core.scopes import Scope
from optchat.core.snapshots import Visibility
from optchat.core.tree import Node, NodeKind, SessionTree, Tree, cover
from optchat.refs import BlobHash, Csn, ProjectId, ScopeId, SessionId, Span, TurnId
from optchat.storage.memory import MemoryStore
from optchat.storage.ports import Job, JobKind, JobState, Store, Tx
from optchat.storage.sqlite import SqliteStore
from optchat.storage.words import indexed
from tests.harness.found import records


def _memory(_folder: Path) -> Store:
    return MemoryStore()


def _sqlite(folder: Path) -> Store:
    return SqliteStore(folder / "store.db")


STORES: dict[str, Callable[[Path], Store]] = {"memory": _memory, "sqlite": _sqlite}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = STORES[request.param](tmp_path)
    yield made
    made.close()


class World:
    """A store with short ways to fill it; what is not said gets a plain default."""

    scope_id = ScopeId("project:p1")

    def __init__(self, store: Store) -> None:
        self.store = store
        self.write = store.write
        self.read = store.read
        self._ids = itertools.count(1)

    def scope(self, scope_id: ScopeId = scope_id) -> None:
        self.write(lambda tx: tx.sessions.put_scope(Scope(scope_id=scope_id, name="shown")))

    def session(self, session_id: str, scope_id: ScopeId = scope_id) -> SessionTree:
        """A session with generation 0, and its scope if that is new."""

        def work(tx: Tx) -> None:
            scope = tx.sessions.scope(scope_id) or Scope(scope_id=scope_id, name="shown")
            tx.sessions.put_scope(replace(scope, sessions=scope.sessions + 1))
            tx.sessions.put_session(
                self.a_session(session_id, scope_id=scope_id, number=scope.sessions + 1)
            )
            tx.sessions.put_generation(Generation(session_id=SessionId(session_id), number=0))

        self.write(work)
        return SessionTree(SessionId(session_id), 0)

    def seal(self, tree: SessionTree, *texts: str, host_time_ms: int = 0) -> tuple[int, ...]:
        """Seal one record for each text at the end of ``tree``."""

        def work(tx: Tx) -> tuple[int, ...]:
            made: list[int] = []
            for text in texts:
                generation = tx.sessions.generation(tree.session_id, tree.generation)
                assert generation is not None
                payload = tx.blobs.put(text.encode("utf-8", "replace"))
                record = self.a_record(
                    tree, generation.length, payload=payload, host_time_ms=host_time_ms
                )
                tx.records.append([record], [indexed(text).encode()])
                made.append(record.seq)
            return tuple(made)

        return self.write(work)

    def publish(
        self,
        tree: SessionTree,
        start: int,
        end: int,
        *,
        scope_id: ScopeId = scope_id,
        cover_of: SessionTree | None = None,
        opened_ms: int = 10,
        completed_ms: int = 20,
        title: str = "",
    ) -> Publication:
        """Publish ``[start, end)`` of ``tree`` as one turn, at the next commit."""

        def work(tx: Tx) -> Publication:
            scope = tx.sessions.scope(scope_id)
            assert scope is not None
            made = self.a_publication(
                tree,
                scope.publications,
                scope_id=scope_id,
                start_seq=start,
                end_seq_exclusive=end,
                cover=tuple(CoverPart(cover_of or tree, span) for span in cover(start, end)),
                born=tx.meta.next_csn(),
                opened_ms=opened_ms,
                completed_ms=completed_ms,
                title=title,
            )
            assert tx.publications.append(made)
            return made

        return self.write(work)

    def now(self, scope_id: ScopeId = scope_id, **changes: object) -> Visibility:
        """What a person sees of the scope at the last commit; ``changes`` narrow it."""

        def work(tx: Tx) -> Visibility:
            scope = tx.sessions.scope(scope_id)
            return Visibility(
                scope_id=scope_id,
                csn=tx.meta.csn(),
                publication_end=scope.publications if scope is not None else 0,
                policy_revision=1,
                retention_epoch=1,
            )

        return replace(self.read(work), **changes)

    def search(self, visibility: Visibility, *told: str, **more: Any) -> dict[str, set[str]]:
        """What each record matched of words and phrases, by the record's name."""
        found = self.read(lambda tx: records(tx, visibility, *told, **more))
        return {f"{tree}:{seq}": matched for (tree, seq), matched in found.items()}

    def a_session(self, session_id: str, **changes: object) -> Session:
        made = Session(
            session_id=SessionId(session_id),
            host="opencode",
            host_session=f"host-{session_id}",
            scope_id=self.scope_id,
            number=1,
            project_id=ProjectId("p1"),
            generation=0,
            title="A title",
            directory="/somewhere",
            created_ms=1,
            updated_ms=2,
        )
        return replace(made, **changes)

    def a_record(self, tree: SessionTree, seq: int, **changes: object) -> Record:
        made = Record(
            session_id=tree.session_id,
            generation=tree.generation,
            seq=seq,
            event_key=f"{tree}:{seq}",
            turn_id=TurnId("t1"),
            message_id="m1",
            kind=RecordKind.USER,
            host_time_ms=1,
            sealed_ms=2,
            payload=BlobHash(""),
            payload_bytes=0,
            project_id=ProjectId("p1"),
        )
        return msgspec.structs.replace(made, **changes)

    def a_turn(self, turn_id: str, **changes: object) -> Turn:
        made = Turn(
            turn_id=TurnId(turn_id),
            session_id=SessionId("a"),
            generation=0,
            key=f"message-{turn_id}",
            start_seq=0,
            opened_ms=1,
        )
        return replace(made, **changes)

    def a_node(self, tree: Tree, span: Span, revision: int = 1, **changes: object) -> Node:
        made = Node(
            tree=tree,
            span=span,
            revision=revision,
            kind=NodeKind.SUMMARY,
            label="user",
            text="what was said",
            input_hash=f"in-{revision}",
            model="fake",
            prompt_version="1",
            born=Csn(1),
        )
        return msgspec.structs.replace(made, **changes)

    def a_publication(self, tree: SessionTree, seq: int, **changes: object) -> Publication:
        made = Publication(
            scope_id=self.scope_id,
            seq=seq,
            session_id=tree.session_id,
            generation=tree.generation,
            turn_id=TurnId(f"turn-{next(self._ids)}"),
            start_seq=0,
            end_seq_exclusive=1,
            outcome=Outcome.COMPLETED,
            opened_ms=10,
            completed_ms=20,
            published_ms=30,
            cover=(CoverPart(tree, Span(0, 1)),),
            born=Csn(1),
        )
        return replace(made, **changes)

    def a_job(self, job_id: str, **changes: object) -> Job:
        made = Job(
            job_id=job_id,
            kind=JobKind.NODE,
            target=f"target-{job_id}",
            session_id=SessionId("a"),
            scope_id=self.scope_id,
            input_hash="in",
            state=JobState.READY,
        )
        return replace(made, **changes)


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


@pytest.fixture
def two_worlds(tmp_path: Path) -> Iterator[list[World]]:
    """Every store at once, to be compared."""
    stores = [make(tmp_path) for make in STORES.values()]
    yield [World(store) for store in stores]
    for store in stores:
        store.close()
