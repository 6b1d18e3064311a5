"""Talking to the coordinator: over its socket, starting it first where that is wanted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Self, TypeVar

import httpx2
import msgspec

from optchat.coordinator.paths import Paths
from optchat.errors import OptChatError, StorageError, Unreachable
from optchat.wire import PROTOCOL, PROTOCOL_HEADER, ROUTES, ErrorBody, ErrorInfo, Health, Wire

W = TypeVar("W", bound=Wire)

START_TIMEOUT_S = 20.0
POLL_S = 0.02
RETRY_S = 0.2

EXIT_NOT_OWNER = 3
"""How a coordinator ends that found another one."""

SAID = "optchat: "
NEXT = "  next: "
"""How an error and its hint begin on standard error; for a coordinator, in its log."""


class RemoteError(OptChatError):
    """An error that the coordinator answered with, as it was raised there."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message, hint=info.hint)
        self.info = info
        # The class's constants are the far side's; callers look at the instance.
        self.code = info.code  # pyright: ignore[reportAttributeAccessIssue]
        self.retryable = info.retryable  # pyright: ignore[reportAttributeAccessIssue]


class Client:
    """A connection to one data directory's coordinator."""

    def __init__(self, paths: Paths, *, timeout_s: float = 60.0) -> None:
        self.paths = paths
        # There is no TLS on a socket of one's own; to load the certificates would take 26 ms.
        transport = httpx2.HTTPTransport(uds=str(paths.socket), verify=False)
        self._http = httpx2.Client(
            transport=transport, base_url="http://optchat", timeout=timeout_s
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, path: str, request: Wire | None, answer: type[W]) -> W:
        """One request.

        Raises:
            Unreachable: nobody answers on the socket.
            RemoteError: the coordinator refused; carries its code, message and hint.
        """
        assert ROUTES[path][1] is answer
        body = b"" if request is None else msgspec.json.encode(request)
        try:
            response = self._http.post(path, content=body, headers={PROTOCOL_HEADER: str(PROTOCOL)})
        except httpx2.TransportError as error:
            raise Unreachable(
                f"no coordinator answers for {self.paths.home} ({error}); the store is unharmed."
            ) from None
        if response.status_code != 200:
            raise RemoteError(msgspec.json.decode(response.content, type=ErrorBody).error)
        return msgspec.json.decode(response.content, type=answer)

    def health(self) -> Health:
        return self.call("/v1/health", None, Health)


def ensure(home: Path, *, timeout_s: float = START_TIMEOUT_S) -> Health:
    """The health of the running coordinator, started if there is none.

    Several callers at once are harmless: the lock elects one of the processes they start.

    Raises:
        Unreachable: it did not come up in time; the message holds the end of its log.
    """
    paths = Paths(home)
    paths.prepare()
    with Client(paths, timeout_s=5.0) as client:
        try:
            return client.health()
        except Unreachable:
            pass
        deadline = time.monotonic() + timeout_s
        said_before = _log_size(paths)
        process = _spawn(paths)
        while time.monotonic() < deadline:
            try:
                return client.health()
            except Unreachable:
                time.sleep(POLL_S)
            ended = process.poll()
            if ended == EXIT_NOT_OWNER:
                # Another process has won the lock and is about to answer, or it is just going.
                time.sleep(RETRY_S)
                process = _spawn(paths)
            elif ended not in (None, 0):
                break
        try:
            return client.health()
        except Unreachable:
            message, hint = _last_words(paths, said_before)
            raise Unreachable(
                f"the coordinator for {home} did not start: {message}", hint=hint
            ) from None


def _spawn(paths: Paths) -> subprocess.Popen[bytes]:
    """Start the coordinator on its own, so that it outlives the caller and its terminal."""
    try:
        log = paths.log.open("ab")
        paths.log.chmod(0o600)
    except OSError as error:
        raise StorageError(
            f"the data directory {paths.home} cannot be written: {error.strerror}.",
            hint="set OPTCHAT_HOME to a folder of your own on a writable disk",
        ) from None
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "optchat", "serve", "--foreground"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=paths.home,
            env=_environment(paths),
        )


def _environment(paths: Paths) -> dict[str, str]:
    # glibc gives each thread a heap of its own, and each keeps what one answer needed: 80 MB more
    # with eight searches at once. Others do not know the variable.
    return {"MALLOC_ARENA_MAX": "1", **os.environ, "OPTCHAT_HOME": str(paths.home)}


def _log_size(paths: Paths) -> int:
    try:
        return paths.log.stat().st_size
    except OSError:
        return 0


def _last_words(paths: Paths, since: int) -> tuple[str, str]:
    """What a coordinator that did not start said, and the next thing to do."""
    try:
        lines = paths.log.read_bytes()[since:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    message = next((x for x in reversed(lines) if x.startswith(SAID)), "")
    hint = next((x for x in reversed(lines) if x.startswith(NEXT)), "")
    return (
        message.removeprefix(SAID) or "".join(lines[-1:])[:500] or "it said nothing.",
        hint.removeprefix(NEXT) or "optchat serve --foreground",
    )
