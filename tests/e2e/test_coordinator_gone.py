"""Without a coordinator the host works as if we were not there, and the person is told once.

§2 (memory is an aid), §9, §13; issue: "Coordinator gone". Every wait is bounded by the plugin's
options, which are short here.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from optchat.testing.hostevents import Event, EventStream
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import CapturedRequest, Gate, LoopbackProvider, call, text
from tests.e2e.support_b import Memory, eventually, has_memory, notices, temporary_memory

SHORT = {"start_timeout_ms": 1_500, "assemble_timeout_ms": 1_000, "sync_timeout_ms": 1_500}
BOUND_S = sum(SHORT.values()) / 1000
SLACK_S = 14.0  # on a loaded machine; still below the 20 s that a start may take
"""What the host itself takes for a turn on a machine with much else to do."""

RETURN_S = 75.0
"""A plugin that could not start a coordinator tries again after at most thirty seconds."""


@dataclass(slots=True)
class Gone:
    memory: Memory
    provider: LoopbackProvider
    host: OpenCodeHost
    events: EventStream
    slowest: float = 0.0
    sessions: list[str] = field(default_factory=list[str])

    def session(self) -> str:
        self.sessions.append(self.host.create_session(title=f"session {len(self.sessions)}"))
        return self.sessions[-1]

    def turn(self, session: str, prompt: str) -> CapturedRequest:
        """One whole turn; its request, and how long that took to come."""
        seen = len(self.provider.requests(session))
        begun = time.monotonic()
        self.host.prompt_async(session, prompt)
        request = self.provider.wait_for(seen + 1, session)[-1]
        self.slowest = time.monotonic() - begun
        self.finished(session)
        return request

    def finished(self, session: str) -> None:
        """Return when the session is idle and its last answer is a good one."""

        def look() -> bool:
            if self.host.status().get(session):
                return False
            last = self.host.messages(session)[-1]["info"]
            assert not last.get("error"), last
            return last["role"] == "assistant" and last.get("finish") == "stop"

        eventually(look, what="the end of the turn")

    def native_turns(self, session: str, count: int = 2) -> None:
        """Turns that go through without memory and without waiting for it."""
        for turn in range(count):
            request = self.turn(session, f"without memory {turn}")
            assert "<optchat" not in request.text
            assert self.slowest < BOUND_S + SLACK_S

    def memory_returns(self, session: str) -> None:
        """A turn has memory again, sooner or later, and none fails until then."""
        eventually(
            lambda: has_memory(self.turn(session, "is it back?")), RETURN_S, what="memory again"
        )

    def told(self) -> list[Event]:
        return notices(self.events)


@contextmanager
def running(folder: Path, *, command: list[str] | None = None) -> Iterator[Gone]:
    with temporary_memory() as memory, LoopbackProvider() as provider:
        if command is None:
            memory.ensure()
        plugin = memory.plugin(command=command, **SHORT)
        with OpenCodeHost(folder, provider.base_url, plugins=[plugin], env=memory.env) as host:
            host.tools()  # loads the plugins, which is not what is timed here
            yield Gone(memory, provider, host, host.events())
            provider.clear_plans()


def one_notice(gone: Gone, word: str) -> None:
    """Exactly one, with its reason and what to do."""
    told = gone.told()
    assert len(told) == 1, [e["properties"] for e in told]
    message = told[0]["properties"]["message"]
    assert word in message
    assert "Next: " in message


def test_a_coordinator_that_cannot_be_started_costs_one_notice(tmp_path: Path) -> None:
    """§13: the program is not there; three turns of two sessions go through natively."""
    with running(tmp_path, command=[str(tmp_path / "no-such-program")]) as gone:
        gone.native_turns(gone.session())
        gone.native_turns(gone.session(), 1)
        one_notice(gone, "unreachable")


def test_a_coordinator_killed_in_mid_turn_is_started_again(tmp_path: Path) -> None:
    """§9, §10: the turn goes on within the bound; memory is back, with what was there before."""
    with running(tmp_path) as gone:
        first = gone.session()
        gone.memory_returns(first)
        gate = Gate()
        target = {"filePath": str(gone.host.project)}
        gone.provider.plan(first, call("read", target, gate=gate), text("finished"))
        seen = len(gone.provider.requests(first))
        gone.host.prompt_async(first, "killed meanwhile")
        gate.wait_entered()
        pid = gone.memory.kill()
        begun = time.monotonic()
        gate.open()
        gone.provider.wait_for(seen + 2, first)
        assert time.monotonic() - begun < BOUND_S + SLACK_S
        gone.finished(first)
        second = gone.session()
        gone.memory_returns(second)
        assert gone.memory.health().pid != pid
        eventually(
            lambda: "killed meanwhile" in gone.turn(second, "what happened?").text,
            what="the turn in which it was killed",
        )
        assert len(gone.told()) <= 1


def test_a_replaced_socket_costs_one_notice_until_it_is_free_again(tmp_path: Path) -> None:
    """§9: something else lies in its place; it is not touched, and memory returns after it."""
    with running(tmp_path) as gone:
        session = gone.session()
        gone.memory_returns(session)
        gone.memory.kill()
        gone.memory.paths.socket.unlink()
        gone.memory.paths.socket.write_text("mine", encoding="utf-8")
        gone.native_turns(session)
        # Whether the bound or the failed start comes first decides on the reason.
        one_notice(gone, "Memory is off")
        assert gone.memory.paths.socket.read_text(encoding="utf-8") == "mine"
        gone.memory.paths.socket.unlink()
        gone.memory_returns(session)
        assert len(gone.told()) == 1


def test_a_socket_taken_from_a_living_coordinator_is_given_back(tmp_path: Path) -> None:
    """§9: it serves nobody without its socket, so it must not keep the lock for ever."""
    with running(tmp_path) as gone:
        session = gone.session()
        gone.memory_returns(session)
        gone.memory.paths.socket.unlink()
        request = gone.turn(session, "without its socket")
        assert gone.slowest < BOUND_S + SLACK_S
        if not has_memory(request):
            gone.memory_returns(session)
        assert len(gone.told()) <= 1


def test_a_slow_coordinator_delays_no_turn_beyond_the_bound(tmp_path: Path) -> None:
    """§13: it is stopped as if the machine had swapped it out; it is asked again later."""
    with running(tmp_path) as gone:
        session = gone.session()
        gone.memory_returns(session)
        told = len(gone.told())
        pid = gone.memory.health().pid
        os.kill(pid, signal.SIGSTOP)
        try:
            gone.native_turns(session, 3)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert len(gone.told()) == told + 1
        assert "Next: " in gone.told()[-1]["properties"]["message"]
        gone.memory_returns(session)
        assert gone.memory.health().pid == pid
