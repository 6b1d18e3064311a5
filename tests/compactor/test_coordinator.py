"""The whole way through a real coordinator process: configuration, model, bill, kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from optchat.coordinator import client
from optchat.coordinator.paths import Paths
from optchat.testing.endpoint import Endpoint, Raw, obedient
from optchat.testing.scripted import ScriptedSession
from optchat.wire import (
    AssembleResponse,
    Health,
    SpendRequest,
    SpendResponse,
    StatusResponse,
    SyncResponse,
    ToolResponse,
)

LONG = "The retry in src/net/http.ts waits 250 ms; the log shows ECONNRESET from the proxy. " * 10
CONFIG = """
[compactor]
model = "openai"
url = "{url}"
model_name = "m-1"
workers = 1
hold_seconds = 0
timeout_seconds = 5

[compactor.caps]
day_calls = {calls}
"""


class Remote:
    """The coordinator over its socket, as a scripted host sees it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        client.ensure(home)
        self.client = client.Client(Paths(home))

    def sync(self, request: Any) -> Any:
        return self.client.call("/v1/sync", request, SyncResponse)

    def assemble(self, request: Any) -> Any:
        return self.client.call("/v1/assemble", request, AssembleResponse)

    def tool(self, request: Any) -> Any:
        return self.client.call("/v1/tool", request, ToolResponse)

    def status(self) -> StatusResponse:
        return self.client.call("/v1/status", None, StatusResponse)

    def spend(self) -> SpendResponse:
        return self.client.call("/v1/spend", SpendRequest(), SpendResponse)

    def pid(self) -> int:
        return self.client.call("/v1/health", None, Health).pid


def until(what: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Remote]]:
    home = tmp_path / "home"
    made: list[Remote] = []

    def begin(endpoint: Endpoint, calls: int = 0) -> Remote:
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "config.toml").write_text(CONFIG.format(url=endpoint.url, calls=calls))
        made.append(Remote(home))
        return made[-1]

    yield begin
    if made:
        subprocess.run(
            [sys.executable, "-m", "optchat", "stop"],
            env={**os.environ, "OPTCHAT_HOME": str(home)},
            check=False,
            capture_output=True,
        )
        for one in made:
            one.client.close()


def cli(home: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "optchat", *arguments, "--json"],
        env={**os.environ, "OPTCHAT_HOME": str(home)},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def test_a_turn_is_summarised_published_and_on_the_bill(start):
    with Endpoint() as endpoint:
        remote = start(endpoint)
        ScriptedSession(remote, "A").turn("look at it", LONG)
        until(lambda: any(s.publications for s in remote.status().scopes))
        spend = cli(remote.home, "spend")
        assert spend["total"]["calls"] == len(endpoint.received) >= 1
        assert spend["by_model"][0]["name"] == "m-1"
        jobs = cli(remote.home, "jobs")
        assert jobs["failed"] == []
        assert remote.status().summariser == "openai"


def test_a_cap_is_told_and_resume_goes_on(start):
    with Endpoint() as endpoint:
        remote = start(endpoint, calls=2)
        session = ScriptedSession(remote, "A")
        for n in range(5):
            session.turn(f"look at {n}", f"{n} {LONG}")
        until(lambda: any("today's calls" in n for n in remote.status().notices))
        assert len(endpoint.received) == 2
        session.user("and now?")
        assert "today's calls" in (session.sync().notice or "")
        assert session.assemble().state == "ready"
        cli(remote.home, "resume")
        until(lambda: len(endpoint.received) == 4)


def test_kill_9_in_a_call_pays_at_most_that_call_twice(start):
    hanging = True

    def script(received: Any) -> Any:
        if hanging and len(endpoint.received) == 3:
            return Raw(hang=True)
        return obedient(received.asked)

    with Endpoint(script) as endpoint:
        remote = start(endpoint)
        a, b, c = (ScriptedSession(remote, name) for name in "ABC")
        for session in (a, b, c):
            session.turn(f"look at {session.id}", f"{session.id} {LONG}")
        until(lambda: len(endpoint.received) == 3)
        os.kill(remote.pid(), signal.SIGKILL)
        hanging = False
        endpoint.released.set()
        again = Remote(remote.home)
        # The rest is made, and what was in flight, at once: its lease ended with its owner.
        until(lambda: again.status().jobs["done"] == sum(again.status().jobs.values()))
        assert sum(s.publications for s in again.status().scopes) == 3
        assert again.spend().unfinished == 1, "the call that was cut off is on the bill"
        committed = {code for r in endpoint.received[:2] for code in r.asked.codes}
        asked_again = {code for r in endpoint.received[3:] for code in r.asked.codes}
        assert not committed & asked_again
        again.client.close()
