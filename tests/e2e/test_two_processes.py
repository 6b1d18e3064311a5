"""Two host processes over one project, and several coordinators that want to serve it.

§9 (one owner, snapshots), host-opencode.md 9: neither process sees the other's events.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from optchat.coordinator.client import EXIT_NOT_OWNER
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import Gate, LoopbackProvider, call, text
from tests.e2e.support import check_requests
from tests.e2e.support_b import (
    Memory,
    alive,
    base_of,
    eventually,
    has_memory,
    news_of,
    temporary_memory,
)

Pair = tuple[OpenCodeHost, OpenCodeHost]


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with temporary_memory() as made:
        made.ensure()
        yield made


@pytest.fixture(scope="module")
def provider() -> Iterator[LoopbackProvider]:
    with LoopbackProvider() as running:
        yield running


@pytest.fixture(scope="module")
def pair(
    memory: Memory, provider: LoopbackProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("two")
    first = OpenCodeHost(home, provider.base_url, plugins=[memory.plugin()], env=memory.env)
    with first, first.sibling() as second:
        yield first, second
        provider.clear_plans()


def test_each_process_sees_the_others_turns_at_its_next_turn(
    memory: Memory, provider: LoopbackProvider, pair: Pair
) -> None:
    """§9, §16: five turns to and fro; each next turn of the other process has the line."""
    sessions = [host.create_session(title=f"process {i}") for i, host in enumerate(pair)]
    published = len(memory.publications())
    for turn in range(5):
        at = turn % 2
        provider.plan(sessions[at], text(f"finding number {turn}"))
        pair[at].prompt(sessions[at], f"step {turn}")
        published += 1
        memory.published(published)
        request = provider.requests(sessions[at])[-1]
        assert has_memory(request)
        if turn:
            foreign = base_of(request) + "".join(news_of(request))
            assert f"finding number {turn - 1}" in foreign
    for host, session in zip(pair, sessions, strict=True):
        check_requests(host, provider.requests(session), session)
    status = memory.status()
    assert len(status.scopes) == 1
    assert not status.notices


def test_a_turn_that_runs_does_not_see_what_the_other_process_publishes_meanwhile(
    memory: Memory, provider: LoopbackProvider, pair: Pair
) -> None:
    """§9, I3: the snapshot holds across processes, until the next turn."""
    slow, quick = (host.create_session(title=t) for host, t in zip(pair, "XY", strict=True))
    gate = Gate()
    listing = {"filePath": str(pair[0].project)}
    provider.plan(slow, call("read", listing, gate=gate), text("finished"), text("next"))
    pair[0].prompt_async(slow, "a long task")
    gate.wait_entered()
    published = len(memory.publications())
    provider.plan(quick, text("published meanwhile"))
    pair[1].prompt(quick, "a short task")
    memory.published(published + 1)
    gate.open()
    provider.wait_for(2, slow)
    memory.published(published + 2)
    first, continued = provider.requests(slow)
    assert "published meanwhile" not in continued.text
    assert base_of(continued) == base_of(first)
    assert news_of(continued) == news_of(first)
    pair[0].prompt(slow, "and now")
    assert "published meanwhile" in provider.requests(slow)[-1].text
    check_requests(pair[0], provider.requests(slow), slow)


def test_of_three_coordinators_started_at_once_one_serves(memory: Memory) -> None:
    """§9: the lock elects one; the others end with a clear message, and nothing is disturbed."""
    with temporary_memory() as contested:
        started = [contested.serve() for _ in range(3)]
        health = eventually(contested.health)
        losers = [process for process in started if process.pid != health.pid]
        assert len(losers) == 2
        for process in losers:
            out, err = process.communicate(timeout=30)
            assert process.returncode == EXIT_NOT_OWNER
            assert f"another coordinator serves {contested.home}" in out + err
            assert "Traceback" not in out + err
        assert contested.health() == health
        assert _owners(started) == [health.pid]


def _owners(started: list[subprocess.Popen[str]]) -> list[int]:
    return [process.pid for process in started if alive(process.pid)]
