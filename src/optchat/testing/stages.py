"""The two stages of the demo: the coordinator alone, and the real host."""

from __future__ import annotations

import hashlib
import queue
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from optchat.coordinator.client import Client, RemoteError, ensure
from optchat.coordinator.paths import Paths
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import (
    CapturedRequest,
    LoopbackProvider,
    Reply,
    call,
    content_text,
    text,
)
from optchat.testing.scripted import ScriptedSession, text_of
from optchat.testing.settings import local
from optchat.wire import (
    AssembleRequest,
    AssembleResponse,
    Health,
    StatusResponse,
    SyncRequest,
    SyncResponse,
    ToolRequest,
    ToolResponse,
)

WAIT_S = 30.0


class RemoteCoordinator:
    """A running coordinator, as a scripted session talks to it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def sync(self, request: SyncRequest) -> SyncResponse:
        return self.client.call("/v1/sync", request, SyncResponse)

    def assemble(self, request: AssembleRequest) -> AssembleResponse:
        return self.client.call("/v1/assemble", request, AssembleResponse)

    def tool(self, request: ToolRequest) -> ToolResponse:
        return self.client.call("/v1/tool", request, ToolResponse)


def until(condition: Callable[[], bool], what: str) -> None:
    """Look until it holds.

    Raises:
        TimeoutError: it did not within ``WAIT_S``.
    """
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {WAIT_S:.0f} s for {what}")
        time.sleep(0.02)


class _Memory:
    """The coordinator of a data directory of its own, for the length of a story."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "config.toml").write_text(local(), encoding="utf-8")
        ensure(home)
        self.client = Client(Paths(home))
        self._expected = 0

    def await_turn(self, what: str) -> None:
        """Wait until one more turn than before is published."""
        self._expected += 1
        until(lambda: self._published() >= self._expected, what)

    def _published(self) -> int:
        status = self.client.call("/v1/status", None, StatusResponse)
        return sum(scope.publications for scope in status.scopes)

    def close(self) -> None:
        self.client.call("/v1/stop", None, Health)
        self.client.close()


class CoordinatorStage:
    """The story without a host: scripted sessions against the real coordinator."""

    def __init__(self, home: Path) -> None:
        self._memory = _Memory(home)
        self._sessions: dict[str, ScriptedSession] = {}
        self._running: set[str] = set()

    def close(self) -> None:
        self._memory.close()

    def _session(self, name: str) -> ScriptedSession:
        coordinator = RemoteCoordinator(self._memory.client)
        return self._sessions.setdefault(name, ScriptedSession(coordinator, name))

    def turn(self, session: str, asked: str, answered: str) -> None:
        self._finish(session)
        self._session(session).turn(asked, answered)
        self._memory.await_turn(f"a turn of {session}")

    def _finish(self, session: str) -> None:
        if session in self._running:
            self._running.remove(session)
            self._session(session).assistant("Done.", terminal="completed")
            self._session(session).sync(idle=True)
            self._memory.await_turn(f"the running turn of {session}")

    def begin(self, session: str, asked: str) -> None:
        self._finish(session)
        self._session(session).user(asked)
        self._session(session).sync()
        self._session(session).assemble()
        self._running.add(session)

    def request(self, session: str) -> str:
        answer = self._session(session).assemble()
        return answer.base + "".join(news.text for news in answer.news)

    def call(self, session: str, tool: str, **args: str) -> str:
        try:
            return self._session(session).call(tool, **args).output
        except RemoteError as error:
            return f"{error.info.code}: {error.info.message}"

    def original(self, session: str, text: str) -> str:
        held = any(text in text_of(m) for m in self._session(session).messages)
        return hashlib.sha256(text.encode()).hexdigest() if held else ""


class HostStage:
    """The story on the real host, whose model is a loopback provider that plays the answers.

    A running turn is a model call that waits: the provider's thread hands its request over and
    blocks until the story says what the model answers.
    """

    def __init__(self, folder: Path, plugin: Path) -> None:
        self._memory = _Memory(folder / "memory")
        self._provider = LoopbackProvider()
        self._provider.responder = self._respond
        self._provider.__enter__()
        self._host = OpenCodeHost(
            folder / "host",
            self._provider.base_url,
            plugins=[(plugin.as_uri(), {"command": [sys.executable, "-m", "optchat"]})],
            env={"OPTCHAT_HOME": str(folder / "memory")},
        )
        self._host.__enter__()
        self._ids: dict[str, str] = {}
        self._running: set[str] = set()
        self._arrived: dict[str, queue.Queue[CapturedRequest]] = {}
        self._replies: dict[str, queue.Queue[Reply]] = {}
        self._last: dict[str, CapturedRequest] = {}

    def close(self) -> None:
        for session in list(self._running):
            self._replies[self._ids[session]].put(text("Done."))
        self._host.__exit__(None, None, None)
        self._provider.close()
        self._memory.close()

    def _respond(self, request: CapturedRequest) -> Reply | None:
        session_id = request.session_id or ""
        if session_id not in self._arrived:
            return None
        self._arrived[session_id].put(request)
        return self._replies[session_id].get(timeout=WAIT_S * 4)

    def _id(self, session: str) -> str:
        if session not in self._ids:
            session_id = self._host.create_session(title=f"Session {session}")
            self._ids[session] = session_id
            self._arrived[session_id] = queue.Queue()
            self._replies[session_id] = queue.Queue()
        return self._ids[session]

    def turn(self, session: str, asked: str, answered: str) -> None:
        self.begin(session, asked)
        self._finish(session, answered)

    def _finish(self, session: str, answered: str) -> None:
        self._running.remove(session)
        self._replies[self._id(session)].put(text(answered))
        self._memory.await_turn(f"a turn of {session}")

    def begin(self, session: str, asked: str) -> None:
        if session in self._running:
            self._finish(session, "Done.")
        session_id = self._id(session)
        self._host.prompt_async(session_id, asked)
        self._last[session] = self._arrived[session_id].get(timeout=WAIT_S)
        self._running.add(session)

    def request(self, session: str) -> str:
        return memory_of(self._last[session])

    def call(self, session: str, tool: str, **args: str) -> str:
        session_id = self._id(session)
        self._replies[session_id].put(call(tool, args))
        self._last[session] = self._arrived[session_id].get(timeout=WAIT_S)
        return content_text(self._last[session].messages[-1])

    def original(self, session: str, text: str) -> str:
        for message in self._host.messages(self._id(session)):
            for part in message["parts"]:
                if part.get("type") == "text" and text in part["text"]:
                    return hashlib.sha256(part["text"].encode()).hexdigest()
        return ""


def memory_of(request: CapturedRequest) -> str:
    """The blocks of ours in a captured request."""
    whole = "\n".join(content_text(message) for message in request.messages)
    blocks = re.findall(r"<optchat_(?:memory|news)>.*?</optchat_(?:memory|news)>", whole, re.DOTALL)
    return "\n".join(blocks)
