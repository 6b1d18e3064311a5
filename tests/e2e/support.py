"""A real host with the real plugin and a coordinator of its own, and reading what it sent.

A test module makes its fixture with ``memory_fixture()``; all tests of a module share one host and
use sessions of their own, unless the module says ``scope="function"``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from subprocess import PIPE
from typing import Any, TypeVar

import pytest

from optchat.coordinator.client import Client
from optchat.coordinator.paths import Paths
from optchat.errors import Unreachable
from optchat.testing.hostfiles import PluginEntry
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import (
    CapturedRequest,
    LoopbackProvider,
    Reply,
    canonical_bytes,
    content_text,
)
from optchat.wire import SessionCounts, StatusResponse

Json = dict[str, Any]
T = TypeVar("T")

PLUGIN = resources.files("optchat") / "hosts" / "opencode" / "plugin" / "optchat.js"
TOOLS = ("memory_date", "memory_search", "memory_sessions", "memory_zoom")
OPTCHAT = (sys.executable, "-m", "optchat")
PATIENCE_S = 30.0
# A loaded test machine must not look like a coordinator that is gone.
PATIENT = {"start_timeout_ms": 40_000, "assemble_timeout_ms": 20_000, "sync_timeout_ms": 30_000}


def eventually(
    look: Callable[[], T | None], timeout: float = PATIENCE_S, *, what: str | None = None
) -> T:
    """What ``look`` returns once it is neither None nor False; other processes need a moment."""
    deadline = time.monotonic() + timeout
    while True:
        seen = look()
        if seen is not None and seen is not False:
            return seen
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what or look} did not come true within {timeout} s")
        time.sleep(0.05)  # a poll's pace, not a wait for something to have happened


def plugin_entry(command: tuple[str, ...] = OPTCHAT, **options: Any) -> PluginEntry:
    """The plugin as a host's configuration names it; ``optchat`` is this environment's."""
    return (f"file://{PLUGIN}", {"command": list(command), **options})


@dataclass(slots=True, kw_only=True)
class Memory:
    """One host with the plugin, the model endpoint it talks to, and its data directory."""

    provider: LoopbackProvider
    host: OpenCodeHost
    home: Path
    client: Client

    # What the coordinator says.

    def status(self) -> StatusResponse | None:
        """The coordinator's own account; None while none answers."""
        try:
            return self.client.call("/v1/status", None, StatusResponse)
        except Unreachable:
            return None

    def counts(self, session: str) -> SessionCounts | None:
        """What is held of one host session."""
        status = self.status()
        rows = [r for s in status.scopes for r in s.sessions] if status is not None else []
        return next((row for row in rows if row.host_session == session), None)

    def published(self, session: str) -> int:
        counts = self.counts(session)
        return counts.published if counts is not None else 0

    def publications(self) -> int:
        """Publications of all scopes together."""
        status = self.status()
        return sum(s.publications for s in status.scopes) if status is not None else 0

    def wait_published(self, session: str, count: int) -> SessionCounts:
        """The session's counts once it has at least ``count`` publications."""

        def look() -> SessionCounts | None:
            counts = self.counts(session)
            return counts if counts is not None and counts.published >= count else None

        return eventually(look, what=f"publication {count} of {session}")

    def wait_quiet(self) -> StatusResponse:
        """The status once no summary is waited for, queued or being made."""

        def look() -> StatusResponse | None:
            status = self.status()
            if status is None or any(status.jobs[s] for s in ("waiting", "ready", "leased")):
                return None
            return status

        return eventually(look, what="a quiet queue")

    def name(self, session: str) -> str:
        """How refs name a host session, such as s3."""
        counts = self.counts(session)
        assert counts is not None, f"{session} is not known"
        return counts.ref

    # Driving.

    def turn(
        self, session: str, prompt: str, *replies: Reply, **options: Any
    ) -> list[CapturedRequest]:
        """One whole turn, until it is published: the requests that it sent."""
        before, sent = self.published(session), len(self.provider.requests(session))
        self.provider.plan(session, *replies)
        self.host.prompt(session, prompt, **options)
        self.wait_published(session, before + 1)
        return self.provider.requests(session)[sent:]

    def optchat(self, *arguments: str) -> str:
        """Run the command line on this data directory, as a person would."""
        done = subprocess.run(
            [*OPTCHAT, *arguments],
            env=self.host.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"optchat {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def optchat_json(self, *arguments: str) -> Json:
        return json.loads(self.optchat(*arguments, "--json"))


@contextmanager
def running_memory(
    folder: Path,
    *,
    config: str = "",
    command: tuple[str, ...] = OPTCHAT,
    plugin: Mapping[str, Any] | None = None,
    start: bool = True,
    env: Mapping[str, str] | None = None,
    **host_options: Any,
) -> Iterator[Memory]:
    """Start it all in ``folder``; afterwards stop host and coordinator and leave nothing running.

    ``config`` is the data directory's ``config.toml``, ``plugin`` the plugin's options.
    """
    # A short path of its own: a Unix socket's is limited to about a hundred bytes, and everybody
    # who computes it must come to the same one.
    home = Path(tempfile.mkdtemp(prefix="optchat-e2e-"))
    if config:
        (home / "config.toml").write_text(config, encoding="utf-8")
    with LoopbackProvider() as provider:
        host = OpenCodeHost(
            folder / "host",
            provider.base_url,
            plugins=[plugin_entry(command, **{**PATIENT, **(plugin or {})})],
            env={"OPTCHAT_HOME": str(home), **(env or {})},
            **host_options,
        )
        client = Client(Paths(home))
        memory = Memory(provider=provider, host=host, home=home, client=client)
        try:
            if start:
                # Both start side by side; the plugin would start the coordinator itself.
                ensure = subprocess.Popen([*command, "ensure"], env=host.env, stdout=PIPE)
                host.start()
                ensure.communicate(timeout=60)
            yield memory
        finally:
            provider.clear_plans()
            client.close()
            host.stop()
            stop_coordinator(home)
            shutil.rmtree(home, ignore_errors=True)


def stop_coordinator(home: Path) -> None:
    """``optchat stop``; what it cannot stop would outlive the tests, so that is an error."""
    env = {**os.environ, "OPTCHAT_HOME": str(home)}
    subprocess.run([*OPTCHAT, "stop"], env=env, check=True, capture_output=True, timeout=60)


def memory_fixture(
    *, scope: Any = "module", configs: Mapping[str, str] | None = None, **options: Any
) -> Any:
    """A fixture that yields a ``Memory``; options as for ``running_memory``.

    With ``configs`` each test runs once under each of these settings.
    """
    params = [pytest.param(text, id=name) for name, text in (configs or {}).items()] or None

    @pytest.fixture(scope=scope, params=params)
    def memory_host(
        tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
    ) -> Iterator[Memory]:
        chosen = {"config": request.param} if params else {}
        with running_memory(tmp_path_factory.mktemp("m"), **chosen, **options) as memory:
            yield memory

    return memory_host


# Reading a captured request. ``tests/harness/request_reader.py`` judges coverage; here is only what
# tests of single claims want to quote.

BASE = re.compile(r"<optchat_memory>\n.*?\n</optchat_memory>\n", re.DOTALL)
NEWS = re.compile(r"<optchat_news>\n.*?</optchat_news>\n\n", re.DOTALL)
SHARED = re.compile(r"<shared_memory[^>]*>\n(.*?)</shared_memory>", re.DOTALL)
OWN = re.compile(r"<own_history[^>]*>\n(.*?)</own_history>", re.DOTALL)
LINE = re.compile(r"^((?:pub|s\d+:\d+):\d+(?:\+\d+)?) (.*?) ?\| (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of memory as the model sees it."""

    ref: str
    label: str
    text: str


def lines(block: str) -> list[Line]:
    return [Line(*match.groups()) for match in LINE.finditer(block)]


def bases(request: CapturedRequest) -> list[str]:
    """Every base in a request, wherever it stands."""
    return [found for m in request.messages for found in BASE.findall(content_text(m))]


def news(request: CapturedRequest) -> list[str]:
    """Every news block in a request, in order."""
    return [found for m in request.messages for found in NEWS.findall(content_text(m))]


def shared_lines(request: CapturedRequest) -> list[Line]:
    """What a request shows of the scope: its base's shared view, then all news."""
    shared = [found for base in bases(request) for found in SHARED.findall(base)]
    return [line for block in (*shared, *news(request)) for line in lines(block)]


def own_lines(request: CapturedRequest) -> list[Line]:
    return [x for b in bases(request) for found in OWN.findall(b) for x in lines(found)]


def without_memory(request: CapturedRequest) -> Json:
    """The body with the base, the news blocks and our tools taken out, and nothing else.

    A user message of a single text is a plain string on the wire, one of several a list of parts:
    where our part was one of two, what is left is written as the host writes it.
    """
    body = json.loads(request.raw)
    body["tools"] = [t for t in body.get("tools", ()) if t["function"]["name"] not in TOOLS]
    if not body["tools"]:
        del body["tools"]
    messages = []
    for message in body["messages"]:
        content = message.get("content")
        if message["role"] == "system" and isinstance(content, str) and BASE.fullmatch(content):
            continue
        if message["role"] == "user" and isinstance(content, list):
            parts = [p for p in content if not _is_ours(p)]
            alone = len(parts) == 1 and len(content) > 1 and set(parts[0]) == {"type", "text"}
            message["content"] = parts[0]["text"] if alone else parts
        messages.append(message)
    body["messages"] = messages
    return body


def _is_ours(part: Json) -> bool:
    text = part.get("text")
    return isinstance(text, str) and bool(NEWS.fullmatch(text) or BASE.fullmatch(text))


def native_texts(request: CapturedRequest) -> list[tuple[str, str]]:
    """Role and text of each message with all memory taken out."""
    return [(m["role"], content_text(m)) for m in without_memory(request)["messages"]]


def tool_results(request: CapturedRequest) -> list[str]:
    """What the tools answered, in the request's order."""
    return [content_text(m) for m in request.messages if m["role"] == "tool"]


def answers(request: CapturedRequest) -> list[str]:
    """What the tools answered to the calls made last, in the calls' order."""
    asked = [m["tool_calls"] for m in request.messages if m.get("tool_calls")]
    told = {m["tool_call_id"]: content_text(m) for m in request.messages if m["role"] == "tool"}
    return [told[made["id"]] for made in asked[-1]] if asked else []


def check_pairs(request: CapturedRequest) -> None:
    """Each call is answered, once, right after the message that made it; nothing else is (I9)."""
    open_calls: list[str] = []
    for message in request.messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls, "a result without its call"
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls, f"calls without a result: {open_calls}"
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
        assert len(set(open_calls)) == len(open_calls), "one id for two calls"
    assert not open_calls, f"calls without a result at the end: {open_calls}"


def grows(requests: list[CapturedRequest]) -> bool:
    """Whether each request extends the one before it byte for byte."""
    sent = [canonical_bytes(request) for request in requests]
    return all(b.startswith(a) for a, b in zip(sent, sent[1:], strict=False))
