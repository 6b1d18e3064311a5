"""The clients of a soak: each drives conversations of its own at random, over the real socket."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from optchat.coordinator.client import Client, RemoteError, ensure
from optchat.errors import Unreachable
from optchat.testing.scripted import ScriptedSession
from optchat.wire import (
    AssembleRequest,
    AssembleResponse,
    ForgetRequest,
    ForgetResponse,
    SyncRequest,
    SyncResponse,
    ToolRequest,
    ToolResponse,
)
from tests.e2e.support_b import Memory, Remote
from tests.harness.request_reader import check_sent
from tests.soak.model import Model, Talk

T = TypeVar("T")

TALKS_MAX = 4
FILLER = "and this is said so that not every line fits as it stands, and some must be summarised; "


@dataclass(frozen=True, slots=True)
class Stubborn:
    """A coordinator that may be killed at any time: whoever misses it starts it and asks again."""

    memory: Memory
    remote: Remote

    def sync(self, request: SyncRequest) -> SyncResponse:
        return self.again(lambda: self.remote.sync(request))

    def assemble(self, request: AssembleRequest) -> AssembleResponse:
        return self.again(lambda: self.remote.assemble(request))

    def tool(self, request: ToolRequest) -> ToolResponse:
        return self.again(lambda: self.remote.tool(request))

    def forget(self, session: str) -> None:
        """Forget a whole session. A call that was cut off may have done it already."""
        request = ForgetRequest(what="session", name=session, directory="/project")
        try:
            self.again(lambda: self.remote.client.call("/v1/forget", request, ForgetResponse))
        except RemoteError as error:
            if error.code != "not_found":
                raise

    def again(self, ask: Callable[[], T]) -> T:
        for _ in range(50):
            try:
                return ask()
            except Unreachable:
                ensure(self.memory.home, timeout_s=60)
        raise AssertionError("the coordinator cannot be reached, however often it is started")


class SoakClient:
    """One client and the conversations that are its own."""

    def __init__(self, number: int, model: Model, memory: Memory, stop: threading.Event) -> None:
        self.number = number
        self.model = model
        self.stop = stop
        self.random = random.Random(f"{model.seed}/{number}")
        self.socket = Client(memory.paths)
        self.coordinator = Stubborn(memory, Remote(self.socket))
        self.talks: list[Talk] = []
        self.made = 0

    def run(self) -> None:
        """Go on until everybody is to stop; whoever finds something wrong stops everybody."""
        try:
            while not self.stop.is_set():
                self.step()
        finally:
            self.stop.set()

    def step(self) -> None:
        """One operation, chosen at random, after which every turn is closed again."""
        if not self.talks or (len(self.talks) < TALKS_MAX and self.random.random() < 0.1):
            self.begin()
        talk = self.random.choice(self.talks)
        chosen = self.random.choices(
            (self.turn, self.rewind, self.edit, self.fork, self.forget), (60, 8, 8, 6, 4)
        )[0]
        chosen(talk)
        self.model.count(chosen.__name__)
        self.model.tell(f"{chosen.__name__} {talk.session.id}: {' '.join(sorted(talk.words))}")

    def begin(self) -> None:
        self.made += 1
        session = ScriptedSession(self.coordinator, f"c{self.number}-{self.made}")
        session.sync(idle=True)
        self.take(Talk(session=session))

    def take(self, talk: Talk) -> None:
        self.talks.append(talk)
        self.model.add(talk)

    def text(self) -> str:
        return f"{self.model.word()} {FILLER * self.random.choice((0, 0, 1, 12))}".strip()

    def turn(self, talk: Talk) -> None:
        """A whole turn, with what a model might look up in it."""
        session = talk.session
        past, gone = talk.words, set(self.model.dead)
        session.user(self.text())
        session.sync()
        answer = session.assemble()
        assert answer.state == "ready", answer
        check_sent(session, answer)
        if self.random.random() < 0.5:
            self.look(talk, past, gone)
            check_sent(session, session.assemble())
        tools = (("bash", {"command": "true"}, self.text()),) if self.random.random() < 0.3 else ()
        session.assistant(self.text(), terminal="completed", tools=tools)
        session.sync(idle=True)

    def look(self, talk: Talk, past: set[str], gone: set[str]) -> None:
        """Words of its past are found and lead to the original; what was dead before is not."""
        self.model.count("look")
        if past:
            word = self.random.choice(sorted(past))
            found = self.call(talk, "memory_search", query=f'"{word}"', family=True)
            assert found.refs, f"{word} of {talk.session.id} was not found"
            opened = self.call(talk, "memory_zoom", ref=found.refs[0], max_tokens=8_000)
            assert word in opened.output, f"{found.refs[0]} does not hold {word}"
        if gone:
            word = self.random.choice(sorted(gone))
            found = self.call(talk, "memory_search", query=f'"{word}"', family=True)
            assert not found.refs, (
                f"{talk.session.id} found {word}, which is dead, at {found.refs}:\n"
                f"{self.model.about(word)}"
            )

    def call(self, talk: Talk, tool: str, **args: str | int) -> ToolResponse:
        """A tool's answer. Whoever's snapshot a deletion invalidated takes a fresh one (§12)."""
        while True:
            try:
                return talk.session.call(tool, **args)
            except RemoteError as error:
                if error.code != "snapshot_expired":
                    raise
                self.model.count("expired")
                check_sent(talk.session, talk.session.assemble())

    def rewind(self, talk: Talk) -> None:
        """Back to before a turn, and on from there another way."""
        if not talk.session.messages:
            return
        position = self.random.choice(talk.starts())
        before = talk.words
        talk.cut(position)
        self.turn(talk)
        self.model.lose(before - talk.words)

    def edit(self, talk: Talk) -> None:
        """Another text in a message of its own; what follows it stays."""
        own = range(talk.inherited, len(talk.session.messages))
        if not own:
            return
        before = talk.words
        talk.session.edited(self.random.choice(own), self.text())
        talk.session.sync(idle=True)
        self.model.lose(before - talk.words)

    def fork(self, talk: Talk) -> None:
        if not talk.session.messages or len(self.talks) >= TALKS_MAX:
            return
        self.made += 1
        position = self.random.choice([*talk.starts(), len(talk.session.messages)])
        child = talk.session.fork(f"c{self.number}-{self.made}", position)
        # The original's state is what a fork inherits; its next turns are its own.
        child.sync(idle=True)
        self.model.tell(f"fork {child.id} of {talk.session.id} at {position}")
        self.take(Talk(session=child, inherited=position))

    def forget(self, talk: Talk) -> None:
        """Gone for good, also when its host tells of it once more."""
        self.talks.remove(talk)
        talk.session.sync(idle=True)
        self.coordinator.forget(talk.session.id)
        self.model.lose(talk.words, of=talk)
        assert talk.session.sync(idle=True).sealed == 0
