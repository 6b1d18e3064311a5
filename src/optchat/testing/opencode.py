"""The real OpenCode, headless, in a folder of its own: started, driven, killed and restarted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from optchat.testing import reaper
from optchat.testing.hostapi import HostApi, HostError
from optchat.testing.hostevents import EventStream
from optchat.testing.hostfiles import (
    BIG,
    MODELS,
    PROVIDER_ID,
    ModelSpec,
    PluginEntry,
    configuration,
    environment,
    find_binary,
    make_project,
    preinstall,
    write_json,
)

__all__ = ["HostError", "OpenCodeHost", "RunResult"]

Json = dict[str, Any]
_LISTENING = "opencode server listening on"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a one-shot ``opencode run`` left behind."""

    status: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def events(self) -> list[Json]:
        """The lines of ``--format json``."""
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]

    @property
    def session_id(self) -> str:
        """The session the run used."""
        return str(next(e["sessionID"] for e in self.events if e.get("sessionID")))


class OpenCodeHost(HostApi):
    """One host process and its HTTP API; use it as a context manager.

    ``home`` holds everything the host writes; ``project`` is the folder it works in. Two hosts with
    the same home and project are two processes over one store, see ``sibling``.
    """

    def __init__(
        self,
        home: Path,
        provider_url: str,
        *,
        project: Path | None = None,
        plugins: Sequence[PluginEntry] = (),
        models: Sequence[ModelSpec] = MODELS,
        model: str = BIG.id,
        small_model: str | None = None,
        agents: Mapping[str, Json] | None = None,
        env: Mapping[str, str] | None = None,
        overrides: Mapping[str, Any] | None = None,
        config_name: str = "opencode.json",
        write_config: bool = True,
    ) -> None:
        binary = find_binary()
        if binary is None:
            raise FileNotFoundError("no OpenCode executable: run npm ci")
        self.binary = binary
        self.home = home
        super().__init__(project=make_project(project or home / "project"), model=model)
        self.config_folder = home / "config" / "opencode"
        self.env = environment(home, env)
        self.start_seconds = 0.0
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._condition = threading.Condition()
        self._streams: list[EventStream] = []
        self._settings: Json = {
            "plugins": plugins,
            "models": models,
            "model": model,
            "small_model": small_model,
            "agents": agents,
            "overrides": overrides,
        }
        self._provider_url = provider_url
        self._extra_env = dict(env or {})
        self._config_name = config_name
        self.port = 0
        if write_config:
            config = configuration(provider_url, **self._settings)
            write_json(self.config_folder / config_name, config)
            preinstall(self.config_folder)

    # Life cycle.

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start ``opencode serve`` and return when it answers."""
        begun = time.monotonic()
        for attempt in range(3):
            self.port = _free_port()
            self._launch()
            if self._wait_listening(60):
                break
            # Another process may have taken the port in between.
            self.kill()
            if attempt == 2:
                raise RuntimeError(f"the host did not start:\n{self.log}")
        self._client = httpx2.Client(base_url=self.url, timeout=120, trust_env=False)
        self.request("GET", "/global/health")
        self.start_seconds = time.monotonic() - begun

    def stop(self, *, dispose: bool = True) -> None:
        """Let plugins dispose, then end the process; kill it when it does not go."""
        process = self._process
        if process is None:
            return
        if dispose and process.poll() is None and self._client is not None:
            with contextlib.suppress(httpx2.HTTPError, HostError):
                self.request("POST", "/instance/dispose", timeout=15)
        if process.poll() is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        self.kill()

    def kill(self) -> None:
        """End the process and its children at once, as a crash would."""
        process = self._process
        if process is None:
            return
        self._signal(signal.SIGKILL)
        process.wait(10)
        reaper.release(process.pid)
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        if self._client is not None:
            self._client.close()
            self._client = None
        self._process = None

    def restart(self) -> None:
        """Stop the host if it runs, and start it on the same home."""
        self.stop()
        self.start()

    def sibling(self, *, env: Mapping[str, str] | None = None) -> OpenCodeHost:
        """Make a second, not yet started process over the same home and project."""
        return OpenCodeHost(
            self.home,
            self._provider_url,
            project=self.project,
            env={**self._extra_env, **(env or {})},
            config_name=self._config_name,
            write_config=False,
            **self._settings,
        )

    @property
    def url(self) -> str:
        """The base URL of the running host."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "the host is not running"
        return self._process.pid

    @property
    def log(self) -> str:
        """What the process printed and wrote to its log, for failure messages."""
        path = self.home / "data" / "opencode" / "log" / "opencode.log"
        written = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        with self._condition:
            printed = "\n".join(self._lines)
        return f"--- printed\n{printed}\n--- log\n{written[-20_000:]}"

    def events(self, *, directory: Path | None = None, whole: bool = False) -> EventStream:
        """Open the event stream of one folder, or of the whole process; closed with the host."""
        stream = EventStream(
            self.port,
            directory=None if whole else str(directory or self.project),
            path="/global/event" if whole else "/event",
        )
        self._streams.append(stream)
        return stream.__enter__()

    # Other ways to start it.

    def run(
        self,
        *arguments: str,
        model: str | None = None,
        timeout: float = 120,
        json_lines: bool = True,
    ) -> RunResult:
        """Run ``opencode run`` once, in the project, and return its output."""
        command = [str(self.binary), "run", "--model", f"{PROVIDER_ID}/{model or self.model}"]
        command += ["--format", "json"] if json_lines else []
        begun = time.monotonic()
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        reaper.watch(process.pid)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        finally:
            reaper.kill_group(process.pid)
            process.wait(10)
            reaper.release(process.pid)
        return RunResult(
            status=process.returncode,
            stdout=stdout,
            stderr=stderr,
            seconds=time.monotonic() - begun,
        )

    # Inside.

    def _launch(self) -> None:
        with self._condition:
            self._lines = []
        self._process = subprocess.Popen(
            [str(self.binary), "serve", "--port", str(self.port), "--hostname", "127.0.0.1"],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        reaper.watch(self._process.pid)
        threading.Thread(target=self._collect, args=(self._process,), daemon=True).start()

    def _collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with self._condition:
                    self._lines.append(line.rstrip("\n"))
                    self._condition.notify_all()
        with self._condition:
            self._lines.append("(end of output)")
            self._condition.notify_all()

    def _wait_listening(self, timeout: float) -> bool:
        def known() -> bool:
            return bool(self._lines) and (
                self._lines[-1] == "(end of output)" or any(_LISTENING in x for x in self._lines)
            )

        with self._condition:
            self._condition.wait_for(known, timeout)
            return any(_LISTENING in line for line in self._lines)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
