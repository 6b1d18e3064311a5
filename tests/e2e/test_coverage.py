"""In every request each earlier record and each publication up to the snapshot is there once.

§6 (no silent loss of coverage), §7, §16 Slow compactor; I2. The reader of the requests shares no
code with the assembler. What a conversation holds is taken from the host's message list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from optchat.testing.hostfiles import ModelSpec, short_agent
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import (
    CapturedRequest,
    Gate,
    LoopbackProvider,
    Reply,
    call,
    failure,
    text,
)
from tests.e2e.support_b import Memory, eventually, last_error, temporary_memory
from tests.harness.request_reader import NativeTurn, check_coverage, read_request

WINDOW = ModelSpec(id="window-12k", context=12_288, output=2_048)
WORDS = "the queue keeps each message until its consumer has acknowledged it and then drops it; "
WAITS = "[memory]\nreadiness_timeout_ms = 15000\n"
NO_WORKERS = f"{WAITS}[compactor]\nworkers = 0\n"


@dataclass(slots=True)
class Script:
    memory: Memory
    provider: LoopbackProvider
    host: OpenCodeHost
    steered: set[str] = field(default_factory=set[str])

    def turn(self, session: str, prompt: str, *replies: Reply) -> None:
        self.provider.plan(session, *replies)
        self.host.prompt(session, prompt, agent="short")

    def restart_coordinator(self, settings: str) -> None:
        """The next request finds one that works by these settings."""
        self.memory.stop()
        self.memory.configure(settings)
        self.memory.ensure()

    def check(self, session: str) -> list[int]:
        """Check all requests of a session; the snapshots that they show."""
        requests = self.provider.requests(session)
        answers = self._answers(session)
        assert len(requests) == len(answers)
        return [
            self._check(request, self._turns(session, answer))
            for request, answer in zip(requests, answers, strict=True)
        ]

    def _check(self, request: CapturedRequest, turns: list[NativeTurn]) -> int:
        read = read_request(request.body)
        check_coverage(read, turns=turns)
        return read.snapshot

    def _answers(self, session: str) -> list[int]:
        """The places of the messages that a request was made for, in the message list."""
        return [
            index
            for index, message in enumerate(self.host.messages(session))
            if message["info"]["role"] == "assistant"
        ]

    def _turns(self, session: str, before: int) -> list[NativeTurn]:
        """The turns as they were when the message at that place was asked for (§5)."""
        turns: list[NativeTurn] = []
        seq, running = 0, False
        for message in self.host.messages(session)[:before]:
            info, parts = message["info"], message["parts"]
            texts, count = _said(parts)
            opens = info["role"] == "user" and info["id"] not in self.steered
            if not running or opens:
                turns.append(NativeTurn(start=seq, end=seq, texts=()))
            running = True
            seq += count
            open_turn = turns[-1]
            turns[-1] = NativeTurn(start=open_turn.start, end=seq, texts=(*open_turn.texts, *texts))
            if info["role"] == "assistant" and info.get("finish") != "tool-calls":
                running = False
        return turns


def _said(parts: list[dict]) -> tuple[tuple[str, ...], int]:
    """What a request holds of a message, and how many records it gives (§3)."""
    texts: list[str] = []
    count = 0
    for part in parts:
        if part["type"] == "text" and part["text"]:
            texts.append(part["text"])
            count += 1
        elif part["type"] == "tool":
            texts += [part["state"].get("output") or part["state"].get("error") or ""]
            count += 2
    return tuple(t.strip() for t in texts if t.strip()), count


def long(seed: str, size: int = 1_800) -> str:
    return f"[{seed}] " + WORDS * (size // len(WORDS))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Script]:
    with temporary_memory(WAITS) as memory, LoopbackProvider() as provider:
        memory.ensure()
        with OpenCodeHost(
            tmp_path_factory.mktemp("coverage"),
            provider.base_url,
            plugins=[memory.plugin()],
            models=(WINDOW,),
            model=WINDOW.id,
            agents={"short": short_agent("memory_*", "read")},
            env=memory.env,
        ) as host:
            yield Script(memory, provider, host)
            provider.clear_plans()


def test_nothing_is_lost_or_doubled_over_turns_folds_steering_and_a_slow_compactor(
    script: Script,
) -> None:
    """§6, §7, I2: two sessions in turn, folds, a steered turn, no summaries for a while."""
    a, b = (script.host.create_session(title=t) for t in "AB")
    notes = script.host.project / "notes.txt"
    notes.write_text(long("notes", 900), encoding="utf-8")
    reading = {"filePath": str(notes)}
    for turn in range(8):
        script.turn(a, f"A{turn} asks", call("read", reading), text(long(f"A{turn}")))
        script.turn(b, f"B{turn} asks {long('b', 600)}", text(f"B{turn} answers briefly"))
    assert len(script.memory.folds(a)) >= 3

    _steer(script, a)

    # No summary is made: what has none stays native, and is neither waited for nor lost.
    script.memory.published(17)
    script.restart_coordinator(NO_WORKERS)
    published = len(script.memory.publications())
    for turn in range(3):
        script.turn(a, f"A asks meanwhile {turn}", text(long(f"A meanwhile {turn}", 900)))
        script.turn(b, f"B asks meanwhile {turn}", text(long(f"B meanwhile {turn}", 900)))
    assert len(script.memory.publications()) == published
    assert script.memory.status().jobs["ready"] > 0

    script.restart_coordinator(WAITS)
    script.memory.published(published + 6)
    script.turn(a, "A asks, and it fails", failure(400, "no"))
    for turn in range(5):
        script.turn(a, f"A asks again {turn}", call("read", reading), text(long(f"again {turn}")))
        script.turn(b, f"B asks again {turn}", text(long(f"B again {turn}")))
    assert last_error(script.host, a) == last_error(script.host, b) == ""

    for session in (a, b):
        snapshots = script.check(session)
        assert snapshots == sorted(snapshots)
        assert snapshots[-1] > published
    assert len(script.memory.folds(a)) >= 5


def _steer(script: Script, session: str) -> None:
    """A message that comes while a tool step runs belongs to the running turn (§5)."""
    gate = Gate()
    reading = {"filePath": str(script.host.project / "notes.txt")}
    sent = len(script.provider.requests(session))
    script.provider.plan(session, call("read", reading, gate=gate), text("steered and done"))
    script.host.prompt_async(session, "a longer task", agent="short")
    gate.wait_entered()
    script.host.prompt_async(session, "no, rather this", agent="short")
    user = eventually(
        lambda: next(
            (
                message["info"]["id"]
                for message in script.host.messages(session)
                if message["parts"] and message["parts"][0].get("text") == "no, rather this"
            ),
            None,
        ),
        what="the steering message",
    )
    script.steered.add(user)
    gate.open()
    script.provider.wait_for(sent + 2, session)
    eventually(lambda: not script.host.status().get(session), what="the end of the turn")
