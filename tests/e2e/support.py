"""A real host with the real plugin and a coordinator of its own, and reading what it sent.

A test module makes its fixture with ``memory_fixture()``; all tests of a module share one host and
use sessions of their own, unless the module says ``scope="function"``.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from subprocess import PIPE
from typing import Any, TypeVar

import apsw
import pytest

from optchat.coordinator.client import Client
from optchat.coordinator.paths import Paths
from optchat.errors import Unreachable
from optchat.testing.hostfiles import PluginEntry, write_json
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import (
    CapturedRequest,
    Gate,
    LoopbackProvider,
    Reply,
    ToolCall,
    calls,
    canonical_bytes,
    content_text,
    failure,
    text,
)
from optchat.testing.settings import local
from optchat.wire import TOOL_NAMES, SessionCounts, StatusResponse
from tests.harness.request_reader import MemoryRead, NativeTurn, check_coverage, read_request

Json = dict[str, Any]
T = TypeVar("T")

PLUGIN = resources.files("optchat") / "hosts" / "opencode" / "plugin" / "optchat.js"
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

    def records(self, session: str) -> int:
        counts = self.counts(session)
        return counts.records if counts is not None else 0

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

    ``config`` is the data directory's ``config.toml``, with a local model unless it names one;
    ``plugin`` are the plugin's options.
    """
    # A short path of its own: a Unix socket's is limited to about a hundred bytes, and everybody
    # who computes it must come to the same one.
    home = Path(tempfile.mkdtemp(prefix="optchat-e2e-"))
    (home / "config.toml").write_text(local(config), encoding="utf-8")
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


@contextmanager
def alone(memory: Memory) -> Iterator[None]:
    """The host without the plugin and nothing of ours at its side; afterwards with it again."""
    host = memory.host
    host.stop()
    stop_coordinator(memory.home)
    file = host.config_folder / "opencode.json"
    config = file.read_text(encoding="utf-8")
    write_json(file, {**json.loads(config), "plugin": []})
    host.start()
    yield
    host.stop()
    file.write_text(config, encoding="utf-8")
    host.start()


def memory_fixture(
    *, scope: Any = "module", configs: Mapping[str, str] | None = None, **options: Any
) -> Any:
    """A fixture that yields a ``Memory``; options as for ``running_memory``.

    With ``configs`` each test runs once under each of these settings.
    """
    params = [pytest.param(config, id=name) for name, config in (configs or {}).items()] or None

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
    body["tools"] = [t for t in body.get("tools", ()) if t["function"]["name"] not in TOOL_NAMES]
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
    told = part.get("text")
    return isinstance(told, str) and bool(NEWS.fullmatch(told) or BASE.fullmatch(told))


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


def answering(
    session: str, model: Callable[[CapturedRequest], Generator[Reply, CapturedRequest, None]]
) -> Callable[[CapturedRequest], Reply | None]:
    """A responder that plays one session's model: each reply is yielded for the request before."""
    running: Generator[Reply, CapturedRequest, None] | None = None

    def responder(request: CapturedRequest) -> Reply | None:
        nonlocal running
        if request.session_id != session:
            return None
        if running is None:
            running = model(request)
            return next(running)
        return running.send(request)

    return responder


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
    return all(b.startswith(a) for a, b in itertools.pairwise(sent))


def host_turns(messages: list[Json]) -> list[NativeTurn]:
    """A host session's turns for the coverage reader: the records they must have given, by §3.

    For sessions without steering, compaction or shell commands: each user message opens a turn.
    """
    turns: list[NativeTurn] = []
    at = 0
    for message in messages:
        texts: list[str] = []
        count = 0
        for part in message["parts"]:
            if part["type"] == "text" and part["text"]:
                count += 1
                texts.append(part["text"])
            elif part["type"] == "tool":
                count += 2
                texts.append(part["state"].get("output") or part["state"].get("error") or "")
        if message["info"]["role"] == "user":
            turns.append(NativeTurn(start=at, end=at, texts=(), key=message["info"]["id"]))
        last = turns[-1]
        at += count
        turns[-1] = NativeTurn(start=last.start, end=at, texts=(*last.texts, *texts), key=last.key)
    return turns


def conversation(messages: list[Json]) -> list[Json]:
    """A host session's messages without what its own compaction put among them."""
    kept: list[Json] = []
    overflowed = False
    for message in messages:
        info, parts = message["info"], message["parts"]
        compaction = next((p for p in parts if p["type"] == "compaction"), None)
        goes_on = any((p.get("metadata") or {}).get("compaction_continue") for p in parts)
        if compaction is not None:
            overflowed = compaction.get("overflow") is True
        elif info["role"] == "user" and overflowed and not goes_on:
            overflowed = False  # a copy of what the user said
        elif not info.get("summary") and not goes_on:
            kept.append(message)
    return kept


def turns_so_far(messages: list[Json]) -> list[NativeTurn]:
    """The turns of these messages, without steering, each text with the number of its record."""
    turns: list[NativeTurn] = []
    at, running = 0, False
    for message in messages:
        info = message["info"]
        if not running or info["role"] == "user":
            turns.append(NativeTurn(start=at, end=at, texts=()))
        running = info["role"] == "user" or info.get("finish") in (None, "tool-calls")
        for part in message["parts"]:
            if part["type"] == "text" and part["text"]:
                said, number, at = part["text"].strip(), at, at + 1
            elif part["type"] == "tool":
                state = part["state"]
                said, number, at = state.get("output") or state.get("error") or "", at + 1, at + 2
            else:
                continue
            last = turns[-1]
            turns[-1] = replace(
                last, end=at, texts=(*last.texts, said), records=(*last.records, number)
            )
    if not running:  # the host goes on by itself, which is a turn without a request of the user
        turns.append(NativeTurn(start=at, end=at, texts=()))
    return turns


def check_each_request(memory: Memory, session: str) -> list[MemoryRead]:
    """Every request against the conversation as it was then, down to the live turn's steps (I2)."""
    messages = memory.host.messages(session)
    asked = [
        at
        for at, m in enumerate(messages)
        if m["info"]["role"] == "assistant" and not m["info"].get("summary")
    ]
    requests = memory.provider.requests(session)
    assert len(requests) == len(asked)
    reads: list[MemoryRead] = []
    for request, at in zip(requests, asked, strict=True):
        turns = turns_so_far(conversation(messages[:at]))
        reads.append(read_request(request.messages))
        check_coverage(reads[-1], turns=turns)
        check_pairs(request)
    return reads


def check_covered(memory: Memory, session: str) -> None:
    """Every request of a session shows every earlier record and publication once (I2)."""
    check_requests(memory.host, memory.provider.requests(session), session)


def check_requests(host: OpenCodeHost, requests: list[CapturedRequest], session: str) -> None:
    """The same for these requests of a session of ``host``."""
    turns = host_turns(host.messages(session))
    for request in requests:
        read = read_request(request.messages)
        live = next(i for i, turn in enumerate(turns) if turn.start == read.news[-1].own_records)
        assert turns[live].texts[0] in [told for role, told in read.native if role == "user"][-1]
        check_coverage(read, turns=[*turns[:live], _so_far(turns[live])])


def _so_far(turn: NativeTurn) -> NativeTurn:
    """The live turn as far as every request of it must hold it: what the user asked."""
    return NativeTurn(start=turn.start, end=turn.end, texts=turn.texts[:1], key=turn.key)


# The same script on a host without the plugin and on one with it.


@dataclass(slots=True)
class Run:
    """What one run of the script left behind, as plain data."""

    after_turn: list[list[Json]]
    stored: dict[str, list[Json]]
    requests: list[CapturedRequest]
    files: dict[str, bytes]

    def of(self, number: int, purpose: str = "main") -> list[CapturedRequest]:
        """The requests of the script's nth session."""
        ids = list(dict.fromkeys(r.session_id for r in self.requests if r.purpose == "main"))
        return [r for r in self.requests if r.session_id == ids[number] and r.purpose == purpose]


@cache
def twins() -> tuple[Run, Run]:
    """The script without the plugin, then with it, one after the other at the same paths.

    So nothing that names a path differs, and the reported usage is scripted, for it would depend on
    what was sent.
    """
    with tempfile.TemporaryDirectory(prefix="optchat-twin-") as name:
        folder = Path(name)
        with (
            LoopbackProvider() as provider,
            OpenCodeHost(folder / "host", provider.base_url) as host,
        ):
            turns = varied_turns(host, provider, lambda session: None)
            host.stop()
            plain = _run(host, provider, turns)
        shutil.rmtree(folder / "host")
        with running_memory(folder) as memory:
            # Each turn sees the one before it published, so that there are news to take out.
            turns = varied_turns(memory.host, memory.provider, _Publishing(memory))
            for session in {r.session_id for r in memory.provider.requests() if r.session_id}:
                check_covered(memory, session)
            memory.host.stop()
            ours = _run(memory.host, memory.provider, turns)
    return plain, ours


@dataclass(slots=True)
class _Publishing:
    memory: Memory
    count: int = 0

    def __call__(self, session: str) -> None:
        self.count += 1
        eventually(lambda: self.memory.publications() >= self.count, what="the publication")


def varied_turns(
    host: OpenCodeHost, provider: LoopbackProvider, done: Callable[[str], None]
) -> list[list[Json]]:
    """Two sessions, seven turns: text, parallel calls, failing ones, an error, an abort."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}
    seen: list[list[Json]] = []

    def bash(word: str) -> ToolCall:
        arguments = {"command": f"echo {word}", "description": "say a word"}
        return ToolCall(name="bash", arguments=arguments, id=f"call_{word}")

    missing = {"filePath": str(host.project / "missing.txt")}
    wrong = ToolCall(name="read", arguments=missing, id="call_missing")

    def turn(session: str, prompt: str, *replies: Reply, abort: bool = False) -> None:
        provider.plan(session, *(replace(reply, usage=usage) for reply in replies))
        if abort:
            with closing(host.events()) as events:
                host.prompt_async(session, prompt)
                events.wait(
                    lambda e: (
                        e["type"] == "message.part.delta"
                        and e["properties"]["sessionID"] == session
                    )
                )
                host.abort(session)
                events.wait_final(session)
        else:
            host.prompt(session, prompt)
        seen.append(host.messages(session))
        done(session)

    first, second = host.create_session(), host.create_session(title="second")
    turn(first, "What is it?", text("It is a parser – größer als ✓"))
    turn(second, "Say two words", calls(bash("one"), bash("two")), text("said"))
    turn(first, "Read it", calls(wrong, bash("three")), text("there is none"))
    turn(second, "Fail", failure(400, "no such thing"))
    turn(first, "Go on", text("half an answer", gate_mid=Gate()), abort=True)
    turn(first, "Again", calls(bash("four")), calls(bash("five")), text("done"))
    turn(second, "And <now> & then?", text("the end"))
    provider.wait_for(1, first, purpose="title")
    return seen


def _run(host: OpenCodeHost, provider: LoopbackProvider, turns: list[list[Json]]) -> Run:
    return Run(
        after_turn=turns,
        stored=stored_rows(host),
        requests=provider.requests(purpose=None),
        files=host_files(host),
    )


def stored_rows(host: OpenCodeHost) -> dict[str, list[Json]]:
    """The messages and parts in a stopped host's store, in the order of their ids."""
    path = host.home / "data" / "opencode" / "opencode.db"
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {
            table: [
                {"id": id_, "of": of, **json.loads(data)}
                for id_, of, data in connection.execute(
                    f"select id, {of}, data from {table} order by {of}, id"
                )
            ]
            for table, of in (("message", "session_id"), ("part", "message_id"))
        }
    finally:
        connection.close()


def host_files(host: OpenCodeHost) -> dict[str, bytes]:
    """Every file that a host wrote or was given, but for the links to its packages."""
    return {
        str(path.relative_to(host.home)): path.read_bytes()
        for path in sorted(host.home.rglob("*"))
        if path.is_file() and not path.is_symlink() and not _is_program(path)
    }


def _is_program(path: Path) -> bool:
    """The runtime keeps what it has translated of larger programs, our plugin's among them."""
    return path.parent.name == "@t@" and path.suffix == ".pile"


INJECTED = re.compile(
    rb"optchat_memory|optchat_news|<shared_memory|<own_history|Memory from optchat|"
    rb"(?:prt|msg)_optchat|\bpub:\d|\bpub<\d|pub&lt;\d|\bs\d+:\d+:\d+\b"
)


def injected(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Where anything that the plugin puts into requests is in a host's files."""
    found = {name: INJECTED.search(data) for name, data in files.items()}
    return {name: match[0] for name, match in found.items() if match is not None}


def comparable(value: Any, names: dict[str, str] | None = None) -> Any:
    """A host's data with its ids numbered by first appearance and its times taken out.

    A stored provider error names the endpoint's port and the time of its answer: taken out as well.
    """
    names = {} if names is None else names
    if isinstance(value, dict):
        times = ("time", "date")
        return {k: "-" if k in times else comparable(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [comparable(item, names) for item in value]
    if isinstance(value, str):
        value = _ENDPOINT.sub("http://endpoint", value)
        return _HOST_ID.sub(lambda m: names.setdefault(m[0], f"{m[1]}#{len(names)}"), value)
    return value


_ENDPOINT = re.compile(r"http://127\.0\.0\.1:\d+")
_HOST_ID = re.compile(r"\b(ses|msg|prt)_[0-9A-Za-z]{20,}")
