"""Forgetting in random histories: gone everywhere, nothing else lost, both stores alike (§12, I8).

Every message has a word of its own. Sessions take turns, are edited, rewound, replayed and forked
while workers take jobs and the service restarts; in between sessions, turns and times are
forgotten. What a removal took must be nowhere in the store from then on, whatever comes after; what
it did not take must be there, reachable and covered.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from optchat.config import Sharing
from optchat.core.tree import cover
from optchat.engine.deps import Deps
from optchat.engine.sessions import lineage, own_lineage
from optchat.engine.tombstones import NO_DIGEST
from optchat.errors import BadInput, NotFound, OptChatError
from optchat.storage.memory import MemoryStore
from optchat.testing.scripted import ScriptedSession
from optchat.wire import ForgetRequest, ToolRequest
from tests.harness.remains import copied, rows
from tests.harness.request_reader import check_sent
from tests.properties.test_engine_equivalence import CONFIG, World, compare, worlds

TOKEN = re.compile(r"zq[0-9a-z]+x")
FILLER = "with some words around it so that it needs a summary " * 14


@dataclass
class Forgetting(World):
    """A world whose messages can be told apart, and what was forgotten of them so far."""

    forgotten: set[str] = field(default_factory=set)
    # Conversations of which a reader of the host's messages cannot know the records' numbers any
    # more: what is sealed anew after an edit has no place for a message that was forgotten.
    shorter: set[str] = field(default_factory=set)
    serial: int = 0

    def with_policy(self, forks: str) -> None:
        sharing = Sharing(isolated=["/isolated"], forks=forks)
        self.deps = Deps(replace_config(sharing), self.clock, self.ids)
        self.restart()

    def step(self, action: tuple[Any, ...]) -> Any:
        kind, which, size = action
        session = self.sessions[which % len(self.sessions)]
        self.clock.advance(1_000)
        self.serial += 1
        token = f"{session.id.lower()}{self.serial}"
        text = f"zq{token}x {FILLER if size % 2 else ''}"
        if kind in ("edit", "rewind") and self.has_gaps(session):
            self.shorter.add(session.id)
        match kind:
            case "turn":
                session.user(f"please {text}")
                first = session.sync(), self.assembled(session)
                tools = (("bash", {"n": size}, f"output zq{token}tx"),)
                session.assistant(
                    f"well, {text}", tools=tools if size % 3 else (), terminal="completed"
                )
                return first, session.sync(idle=True)
            case "ask":
                session.user(f"please {text}")
                return session.sync(), self.assembled(session)
            case "edit" if session.messages:
                session.edited(size % len(session.messages), f"edited {text}")
                return session.sync(idle=True)
            case "fork":
                return self.fork(session, size)
            case "forget":
                return self.forget(session, size)
            case "read":
                return self.told()
            case _:
                return super().step(action)

    def assembled(self, session: ScriptedSession) -> Any:
        answer = session.assemble()
        if answer.state == "ready" and session.id not in self.shorter:
            check_sent(session, answer)
        shown = answer.base + "".join(n.text for n in answer.news)
        assert self.forgotten.isdisjoint(TOKEN.findall(shown))
        return answer

    def has_gaps(self, session: ScriptedSession) -> bool:
        def work(tx: Any) -> bool:
            held = tx.sessions.session_of_host("scripted", session.id)
            messages = tx.membership.messages(held.session_id) if held is not None else ()
            return any(m.digest == NO_DIGEST for m in messages)

        return self.store.read(work)

    def fork(self, origin: ScriptedSession, size: int) -> Any:
        """The host copies a conversation up to a message; one that is forgotten is no origin."""
        held = self.store.read(lambda tx: tx.sessions.session_of_host("scripted", origin.id))
        if held is None or held.disabled or len(self.sessions) > 8:
            return None
        name = f"F{len(self.sessions)}"
        self.shorter |= {name} if origin.id in self.shorter else set()
        made = origin.fork(name, size % (len(origin.messages) + 1))
        self.sessions.append(made)
        self.busy.append(False)
        return made.sync(idle=bool(size % 2))

    def forget(self, session: ScriptedSession, size: int) -> Any:
        """One of the ways to forget; what went is what the store's records lack afterwards."""
        before = self.tokens()
        what, name, where = self.store.read(lambda tx: self.target(tx, session, size))
        request = ForgetRequest(what=what, name=name, scope=where)
        try:
            tried = self.service.forget(replace_dry(request))
            assert self.tokens() == before
            answer = self.service.forget(request)
        except (NotFound, BadInput) as error:
            assert self.tokens() == before
            return error.code, error.message
        assert answer.removal == tried.removal
        gone = before - self.tokens()
        self.forgotten |= gone
        self.check_gone()
        return answer.removal.counts, answer.removal.places, sorted(gone)

    def target(self, tx: Any, session: ScriptedSession, size: int) -> tuple[str, str, str]:
        held = tx.sessions.session_of_host("scripted", session.id)
        if held is None:
            return "session", session.id, "none"
        scope = tx.sessions.scope(held.scope_id)
        length = own_lineage(tx, held).length
        return (
            ("session", session.id),
            ("turn", f"pub:{size % max(1, scope.publications)}"),
            ("turn", f"s{held.number}:{held.generation}:{size % max(1, length)}"),
            ("turn", f"s{held.number}:0:{size % max(1, length)}"),
            ("before", "2023-11-15"),
        )[size % 5] + (held.scope_id,)

    def tokens(self) -> set[str]:
        """The words of every record that is kept."""

        def work(tx: Any) -> set[str]:
            found: set[str] = set()
            for scope in tx.sessions.scopes():
                for session in tx.sessions.sessions(scope.scope_id):
                    for g in tx.sessions.generations(session.session_id):
                        for record in tx.records.range(g.tree, 0, g.length):
                            payload = b"".join(tx.blobs.chunks(record.payload)).decode()
                            found.update(TOKEN.findall(payload))
            return found

        return self.store.read(work)

    def everything(self) -> str:
        """All that the store holds, in whatever table."""
        if isinstance(self.store, MemoryStore):
            return repr(self.store._tables)
        copy = copied(self.folder, self.folder.with_name(f"{self.folder.name}-copy"))
        try:
            held = rows(copy / "memory.db")
            return b"\n".join(data for _, data in held).decode("utf-8", "replace")
        finally:
            shutil.rmtree(copy)

    def check_gone(self) -> None:
        if self.forgotten:
            assert self.forgotten.isdisjoint(TOKEN.findall(self.everything()))

    def check_whole(self) -> None:
        """Each history is contiguous, its records read back, its nodes are all made."""

        def work(tx: Any) -> None:
            for scope in tx.sessions.scopes():
                for session in tx.sessions.sessions(scope.scope_id):
                    for g in tx.sessions.generations(session.session_id):
                        history = lineage(tx, g.tree)
                        assert history.length == g.length
                        at = 0
                        for piece in history.segments:
                            assert piece.start == at
                            at = piece.end_exclusive
                            assert tx.sessions.session(piece.tree.session_id) is not None
                            for r in tx.records.range(piece.tree, piece.start, piece.end_exclusive):
                                tx.blobs.verify(r.payload)
                        for span in cover(0, g.length):
                            assert tx.trees.node(history.tree_of(span), span) is not None
                for p in tx.publications.range(scope.scope_id, 0, scope.publications):
                    if p.died is None:
                        for part in p.cover:
                            assert tx.trees.node(part.tree, part.span) is not None

        self.store.read(work)

    def told(self) -> Any:
        """What a person reads of each scope."""
        found: list[Any] = []
        for scope in self.store.read(lambda tx: tx.sessions.scopes()):
            for tool, args in (
                ("memory_sessions", {}),
                ("memory_search", {"query": "please well output edited"}),
                ("memory_zoom", {"ref": "pub:0"}),
                ("memory_zoom", {"ref": "pub:0+2"}),
                ("memory_zoom", {"ref": "s1:0:0"}),
            ):
                found.append(self.person(scope.scope_id, tool, args))
        assert self.forgotten.isdisjoint(TOKEN.findall(repr(found)))
        return found

    def person(self, scope: str, tool: str, args: dict[str, Any]) -> Any:
        try:
            request = ToolRequest(tool=tool, args_json=json.dumps(args), scope=scope)
            return self.service.tool(request).output
        except OptChatError as error:
            return error.code, error.message


def replace_config(sharing: Sharing) -> Any:
    return msgspec.structs.replace(CONFIG, sharing=sharing)


def replace_dry(request: ForgetRequest) -> ForgetRequest:
    return msgspec.structs.replace(request, dry_run=True)


ACTIONS = st.tuples(
    st.sampled_from(
        ["turn"] * 8
        + ["forget"] * 3
        + ["work"] * 2
        + ["drain", "ask", "edit", "rewind", "replay", "replay", "restart", "fork", "fork", "read"]
    ),
    st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5]),
    st.integers(0, 60),
)


@pytest.mark.slow
@pytest.mark.timeout(400)  # seconds, for a machine that does much beside
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(ACTIONS, min_size=15, max_size=45), st.sampled_from(["keep", "forget"]))
def test_what_was_forgotten_is_nowhere_and_the_rest_is_whole(actions, forks):
    with worlds(Forgetting) as (durable, plain):
        durable.with_policy(forks)
        plain.with_policy(forks)
        for action in actions:
            note(str(action))
            compare(lambda a=action: durable.step(a), lambda a=action: plain.step(a))
        compare(durable.settle, plain.settle)
        for world in (durable, plain):
            jobs = world.status()["jobs"]
            assert (jobs["failed"], jobs["waiting"]) == (0, 0)
            world.check_whole()
            world.check_gone()
        compare(durable.told, plain.told)
        # Every host tells all of it again, and every conversation goes on.
        for session in durable.sessions:
            session.sync(idle=True)
        durable.settle()
        durable.check_gone()
        assert durable.forgotten == plain.forgotten
