"""Whatever happened, no call of one scope tells of another (§8, §11; I4).

Random histories of three scopes and of isolated sessions: turns, tools, rewinds, forks, isolation
and moves. Then every tool, under its own and under other systems' names, is called with the refs,
session names, host ids and cursors of every other scope. Each answer is, byte for byte and
statement for statement, that for a name that never was; and no word of another scope is in any.

A sample in the suite; ``OPTCHAT_TEST_HISTORIES=2000`` runs as many.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from optchat.compactor.models import DeterministicModel
from optchat.compactor.worker import Worker
from optchat.config import Compactor, Config, Memory, Recall, Sharing
from optchat.coordinator import service as service_module
from optchat.coordinator.service import Service
from optchat.engine.deps import Deps
from optchat.errors import OptChatError
from optchat.refs import ScopeId
from optchat.storage.ports import Tx
from optchat.storage.sqlite import SqliteStore
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.testing.scripted import ScriptedSession
from optchat.wire import ShareRequest
from tests.harness.statements import recorded

HISTORIES = int(os.environ.get("OPTCHAT_TEST_HISTORIES", "12"))
FIRST = int(os.environ.get("OPTCHAT_TEST_FUZZ_SEED", "0"))
PROBES = 24
"""Calls for each reader and history, each made for a foreign name and for one that never was."""

PLACES = (("P", "/p"), ("Q", "/q"), ("R", "/code/r"), ("R", "/code/s"), ("I", "/isolated"))
CONFIG = Config(
    memory=Memory(readiness_timeout_ms=0),
    sharing=Sharing(isolated=["/isolated"], profiles={"work": ["/code/r", "/code/s"]}),
    compactor=Compactor(model="deterministic"),
    recall=Recall(aliases=True),
)
REFUSED = frozenset({"not_found", "bad_input", "snapshot_expired", "superseded"})


def marker(session: str) -> str:
    """A word that this session alone says, and that is no part of another's."""
    return f"quokka{session.lower()}x"


class History:
    """One store and what happened in it."""

    def __init__(self, folder: Path, seed: int, asked: list[str]) -> None:
        self.rng = random.Random(seed)
        self.asked = asked
        self.clock = ManualClock()
        self.store = SqliteStore(folder / f"{seed}.db", self.clock)
        self.deps = Deps(CONFIG, self.clock, CountedIds())
        self.service = Service(self.store, self.deps, folder)
        self.sessions: list[ScriptedSession] = []
        self.cursors: dict[str, list[tuple[str, dict[str, Any], str]]] = {}
        self.said: dict[str, set[str]] = {}
        for number in range(self.rng.randrange(5, 9)):
            name, directory = self.rng.choice(PLACES)
            self._add(
                ScriptedSession(
                    self.service, f"{name}{number}", directory=directory, title=f"title of {number}"
                )
            )

    def _add(self, session: ScriptedSession) -> None:
        self.sessions.append(session)
        self.said[session.id] = set()

    def happen(self) -> None:
        for session in self.sessions:
            self._turn(session)
        for _ in range(self.rng.randrange(4, 14)):
            session = self.rng.choice(self.sessions)
            self.clock.advance(1_000)
            match self.rng.randrange(8):
                case 0 if session.messages:
                    session.clock_ms += 1_000
                    del session.messages[-self.rng.randrange(1, len(session.messages) + 1) :]
                    session.sync(idle=True)
                case 1 if len(self.sessions) < 10 and session.messages:
                    name = f"{session.id}f{len(self.sessions)}"
                    fork = session.fork(name, len(session.messages), known=self.rng.random() < 0.7)
                    self._add(fork)
                    self.said[name] = set(self.said[session.id])
                    fork.sync(idle=True)
                case 2:
                    self._share(session)
                case 3:
                    self.drain()
                case _:
                    self._turn(session)
        self.drain()

    def _turn(self, session: ScriptedSession) -> None:
        """A turn that holds the word of its session alone."""
        own = marker(session.id)
        self.said[session.id].add(own)
        session.user(f"{own} asks for words {self.rng.randrange(100)}")
        session.sync()
        session.assemble()
        tools = (("bash", {"command": f"grep {own}", "filePath": f"src/{own}.ts"}, f"{own} " * 3),)
        session.assistant(f"{own} answers with words", tools=tools, terminal="completed")
        session.sync(idle=True)

    def _share(self, session: ScriptedSession) -> None:
        choice = self.rng.choice(("isolated", "project", None))
        self.service.share(
            ShareRequest(
                session=session.id,
                sharing=choice,  # pyright: ignore[reportArgumentType]
            )
        )

    def drain(self) -> None:
        worker = Worker(self.store, self.deps, DeterministicModel(), "w")
        while worker.run_one():
            pass

    # --- who may read what ---

    def scope_of(self, session: ScriptedSession) -> str:
        def work(tx: Tx) -> str:
            held = tx.sessions.session_of_host("scripted", session.id)
            assert held is not None
            return held.scope_id

        return self.store.read(work)

    def size_of(self, scope: str) -> tuple[int, int]:
        """How many publications and sessions a scope has had."""
        scopes = self.store.read(lambda tx: tx.sessions.scopes())
        found = next((s for s in scopes if s.scope_id == scope), None)
        return (found.publications, found.sessions) if found is not None else (0, 0)

    def knows(self, scope: str, session: ScriptedSession) -> bool:
        """Whether a scope knows a session, also one that left it and stays with what it said."""

        def work(tx: Tx) -> bool:
            return tx.sessions.session_called(ScopeId(scope), session.id) is not None

        return self.store.read(work)

    def readers(self) -> list[ScriptedSession]:
        """Each session in a turn of its own, with a snapshot."""
        for session in self.sessions:
            session.user("look")
            session.sync()
            session.assemble()
        return self.sessions

    # --- asking ---

    def call(
        self, reader: ScriptedSession, tool: str, args: dict[str, Any], *names: str
    ) -> tuple[str, list[str]]:
        """What was said, without the names that were asked for, and each statement."""
        self.asked.clear()
        try:
            answer = reader.call(tool, **args)
            said = msgspec.json.encode([answer.output, answer.refs, answer.data_json]).decode()
            # A cursor names the question by its hash.
            said = said.replace(json.loads(answer.data_json)["cursor"] or "no cursor", "CURSOR")
        except OptChatError as error:
            if error.code not in REFUSED:
                raise
            said = f"{error.code}: {error.message} {error.hint}"
        for index, name in enumerate(names):
            said = said.replace(name, f"NAME{index}")
        return said, list(self.asked)


SEARCHED = {"query": "words"}


Probe = tuple[str, dict[str, Any], tuple[str, ...]]


def probes(number: int, count: int, host: str) -> list[Probe]:
    """Every tool with every kind of name: of a session, of a publication, of the host."""
    session, message = f"s{number}", f"{host}-m1"
    record = f"{session}:0:0"
    found: list[Probe] = []
    for name in (f"pub:{count}", f"pub:{count & ~1}+2", record, f"{record}+2"):
        found += [
            ("memory_zoom", {"ref": name}, (name,)),
            ("memory_date", {"ref": name}, (name,)),
            ("memory_messages", {"ref": name, "before": 1}, (name,)),
            ("search_memory_tree", {"node_id": name}, (name,)),
        ]
    for name in (session, host):
        found += [
            ("memory_messages", {"session": name}, (name,)),
            ("memory_sessions", {"parent": name}, (name,)),
            ("memory_search", {"query": "words", "session": name}, (name,)),
            ("memory_search", {"query": f"words session:{name}"}, (name,)),
            ("recall", {"query": "words", "sessionID": name}, (name,)),
            ("recall", {"query": "words", "excludeSessionID": name}, (name,)),
            ("recall", {"query": "words", "sessions": [name]}, (name,)),
            ("recall_messages", {"sessionID": name}, (name,)),
            ("recall_sessions", {"parentID": name}, (name,)),
        ]
        for ref in (message, record):
            asked = {"messageID": ref, "sessionID": name}
            found += [
                ("recall_get", asked, (ref, name)),
                ("recall_context", {**asked, "window": 2}, (ref, name)),
            ]
    return [*found, ("recall_get", {"messageID": message}, (message,))]


LISTS: list[tuple[str, dict[str, Any]]] = [
    ("memory_search", {"query": "words", "limit": 1}),
    ("memory_search", {"query": "quokka"}),
    ("memory_sessions", {"limit": 1}),
    ("memory_messages", {"session": "current", "limit": 1}),
    ("recall", {"query": "words", "results": 1}),
    ("recall_sessions", {"limit": 1}),
    ("memory_zoom", {"ref": "s1:0:0", "max_tokens": 16}),
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that is run, as it is run."""
    return recorded(monkeypatch)


@pytest.fixture(autouse=True)
def _no_git() -> Iterator[None]:
    with mock.patch.object(service_module, "observed_commit", return_value=None):
        yield


@pytest.mark.timeout(60 + 20 * HISTORIES)
def test_no_call_of_one_scope_tells_of_another(tmp_path: Path, asked: list[str]) -> None:
    compared = 0
    for seed in range(FIRST, FIRST + HISTORIES):
        history = History(tmp_path, seed, asked)
        try:
            history.happen()
            compared += _check(history)
        except BaseException as error:
            error.add_note(f"OPTCHAT_TEST_FUZZ_SEED={seed} OPTCHAT_TEST_HISTORIES=1")
            raise
        finally:
            history.store.close()
            (tmp_path / f"{seed}.db").unlink()
    print(f"{HISTORIES} histories, {compared} pairs of calls")  # noqa: T201
    assert compared > HISTORIES * 20


def _check(history: History) -> int:
    readers = history.readers()
    scopes = {s.id: history.scope_of(s) for s in readers}
    cursors = {s.id: _cursors(s) for s in readers}
    compared = 0
    for reader in readers:
        count, members = history.size_of(scopes[reader.id])
        hidden = [s for s in readers if not history.knows(scopes[reader.id], s)]
        secret = {w for s in hidden for w in history.said[s.id]}
        secret -= {w for s in readers if s not in hidden for w in history.said[s.id]}
        for other in hidden:
            others, other_members = history.size_of(scopes[other.id])
            # Where the other scope has more, a number that is one there and none here.
            session, publication = max(members + 1, other_members), max(count, others - 1)
            pairs = zip(
                probes(session, publication, other.id),
                probes(session + 900, publication + 900, "never"),
                probes(session + 1_800, publication + 1_800, "nowhere"),
                strict=True,
            )
            chosen = history.rng.sample([*pairs], PROBES // max(1, len(hidden)) + 1)
            for (tool, args, names), (_, never_args, nevers), (_, nowhere_args, _) in chosen:
                history.call(reader, tool, nowhere_args)  # what is read once for a snapshot
                told = history.call(reader, tool, args, *names)
                expected = history.call(reader, tool, never_args, *nevers)
                assert told == expected, f"{reader.id} asks {tool} {args} for {never_args}"
                assert not [w for w in secret if w in told[0]], f"{reader.id}: {tool} {args}"
                compared += 1
            for tool, args, cursor in cursors[other.id]:
                said, _ = history.call(reader, tool, {**args, "cursor": cursor})
                assert not [w for w in secret if w in said], f"{reader.id}: {tool} {args} {cursor}"
        for tool, args in LISTS:
            said, _ = history.call(reader, tool, args)
            assert not [w for w in secret if w in said], f"{reader.id}: {tool} {args}"
    return compared


def _cursors(session: ScriptedSession) -> list[tuple[str, dict[str, Any], str]]:
    found: list[tuple[str, dict[str, Any], str]] = []
    for tool, args in LISTS:
        try:
            cursor = json.loads(session.call(tool, **args).data_json).get("cursor")
        except OptChatError:
            continue
        if cursor:
            found.append((tool, args, cursor))
    return found
