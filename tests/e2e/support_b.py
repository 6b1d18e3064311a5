"""A data directory with its real coordinator, and looks into it from outside.

Nothing here goes through the engine: what the store holds is read with plain statements, what the
coordinator says through its command line or its socket.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import optchat
from optchat.coordinator.client import Client
from optchat.coordinator.paths import Paths
from optchat.errors import CoordinatorError
from optchat.storage.sqlite.connection import Connection, Row
from optchat.testing.hostevents import Event, EventStream
from optchat.testing.hostfiles import PluginEntry
from optchat.testing.provider import CapturedRequest, content_text
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

T = TypeVar("T")

PLUGIN = Path(optchat.__file__).parent / "hosts" / "opencode" / "plugin" / "optchat.js"
COMMAND = [sys.executable, "-m", "optchat"]
CLI_TIMEOUT_S = 90.0
# A loaded test machine must not look like a coordinator that is gone.
PATIENT = {"start_timeout_ms": 40_000, "assemble_timeout_ms": 20_000, "sync_timeout_ms": 30_000}


def eventually(look: Callable[[], T], timeout: float = 30.0, *, what: str = "") -> T:
    """The first true answer of ``look``; the last one, or what it raised, is the failure."""
    deadline = time.monotonic() + timeout
    seen: object = None
    while True:
        try:
            seen = look()
            if seen:
                return seen
        except (AssertionError, CoordinatorError, OSError) as error:
            seen = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout} s: {what or look!r}; last seen: {seen!r}")
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Cli:
    """How one command ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def data(self) -> Any:
        return json.loads(self.stdout)


@dataclass(slots=True)
class Memory:
    """One data directory; ``stop`` it in the end."""

    home: Path
    settings: str = ""
    started: list[subprocess.Popen[str]] = field(default_factory=list[subprocess.Popen[str]])

    def __post_init__(self) -> None:
        if self.settings:
            self.configure(self.settings)

    def configure(self, settings: str) -> None:
        """Write config.toml for the next coordinator, with a local model unless it names one."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self.home / "config.toml"
        file.touch(mode=0o600)
        file.write_text(local(settings), encoding="utf-8")

    def _settle(self) -> None:
        """A coordinator of ours never waits for a host's model unless it is told to."""
        if not (self.home / "config.toml").exists():
            self.configure("")

    @property
    def paths(self) -> Paths:
        return Paths(self.home)

    @property
    def env(self) -> dict[str, str]:
        """What a host needs to find this directory."""
        return {"OPTCHAT_HOME": str(self.home)}

    def plugin(self, *, command: list[str] | None = None, **options: Any) -> PluginEntry:
        """Our plugin as an entry of the host's configuration; patient unless told otherwise."""
        self._settle()
        return (PLUGIN.as_uri(), {"command": command or COMMAND, **PATIENT, **options})

    # --- the coordinator ---

    def cli(self, *arguments: str, cwd: Path | None = None, timeout: float = CLI_TIMEOUT_S) -> Cli:
        done = subprocess.run(
            [*COMMAND, *arguments],
            env={**os.environ, **self.env},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Cli(done.returncode, done.stdout, done.stderr)

    def serve(self) -> subprocess.Popen[str]:
        """A coordinator in the foreground, as a child of the test."""
        self._settle()
        process = subprocess.Popen(
            [*COMMAND, "serve", "--foreground"],
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def ensure(self) -> dict[str, Any]:
        """Start the coordinator if none runs; what a plugin is told."""
        self._settle()
        done = self.cli("ensure", "--json")
        assert done.status == 0, done
        return done.data

    def health(self) -> Health:
        with Client(self.paths, timeout_s=5.0) as client:
            return client.health()

    def status(self) -> StatusResponse:
        with Client(self.paths, timeout_s=20.0) as client:
            return client.call("/v1/status", None, StatusResponse)

    def kill(self) -> int:
        """kill -9; returns once the process is gone."""
        pid = self.health().pid
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(pid), 10, what=f"process {pid} gone")
        return pid

    def stop(self) -> None:
        """Stop whatever serves this directory, whatever state it is in."""
        with contextlib.suppress(CoordinatorError, OSError):
            pid = self.health().pid
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.cli("stop", timeout=30)
            with contextlib.suppress(TimeoutError):
                eventually(lambda: not alive(pid), 5)
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=10)
        self.started.clear()

    def published(self, count: int, timeout: float = 30.0) -> None:
        """Return once at least so many turns are published and nothing is queued."""

        def done() -> bool:
            status = self.status()
            pending = sum(status.jobs.get(s, 0) for s in ("waiting", "ready", "leased"))
            return sum(s.publications for s in status.scopes) >= count and not pending

        eventually(done, timeout, what=f"{count} publications")

    # --- the store, from outside ---

    def rows(self, sql: str) -> list[Row]:
        connection = Connection(self.paths.store, readonly=True)
        try:
            return connection.all(sql)
        finally:
            connection.close()

    def nodes(self) -> dict[tuple[str, int, int, int], tuple[str, str, int, int | None]]:
        """(tree, start, count, revision) of every node, with (label, text, born, died)."""
        found = self.rows(
            "select name, start, count, revision, label, text, born, died from node "
            "join tree on tree.id = node.tree"
        )
        return {(r[0], r[1], r[2], r[3]): (r[4], r[5], r[6], r[7]) for r in found}

    def publications(self) -> list[Row]:
        return self.rows("select * from publication order by scope, seq")

    def folds(self, host_session: str) -> list[str]:
        """The causes of a host session's folds, oldest first."""
        found = self.rows(
            "select f.cause, s.host_session from fold f join session s using (session_id) "
            "order by f.made_ms, f.fold_id"
        )
        return [row[0] for row in found if row[1] == host_session]


def alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@contextlib.contextmanager
def temporary_memory(settings: str = "") -> Iterator[Memory]:
    """A data directory at a short path, since a socket's is bounded; all gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="optchat-b-"))
    memory = Memory(folder / "home", settings)
    try:
        yield memory
    finally:
        memory.stop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Remote:
    """What a scripted session talks to: a coordinator over its socket."""

    client: Client

    def sync(self, request: SyncRequest) -> SyncResponse:
        return self.client.call("/v1/sync", request, SyncResponse)

    def assemble(self, request: AssembleRequest) -> AssembleResponse:
        return self.client.call("/v1/assemble", request, AssembleResponse)

    def tool(self, request: ToolRequest) -> ToolResponse:
        return self.client.call("/v1/tool", request, ToolResponse)


# --- reading requests and notices -----------------------------------------------------------------


def base_of(request: CapturedRequest) -> str:
    """The memory block among the system messages, or nothing."""
    return next((t for t in request.system_texts if t.startswith("<optchat_memory>")), "")


def news_of(request: CapturedRequest) -> list[str]:
    """The news block of each message that has one."""
    texts = [content_text(m) for m in request.messages if m["role"] == "user"]
    end = "</optchat_news>"
    return [
        t[t.index("<optchat_news>") : t.index(end) + len(end)]
        for t in texts
        if "<optchat_news>" in t
    ]


def has_memory(request: CapturedRequest) -> bool:
    return bool(base_of(request)) and bool(news_of(request))


def notices(events: EventStream) -> list[Event]:
    """What the person was told by us."""
    return [e for e in events.of_type("tui.toast.show") if e["properties"]["title"] == "optchat"]


def last_error(host: Any, session: str) -> str:
    """The text of the last assistant message's error, or nothing."""
    found = [m["info"] for m in host.messages(session) if m["info"]["role"] == "assistant"]
    error = found[-1].get("error") if found else None
    return json.dumps(error, ensure_ascii=False) if error else ""
