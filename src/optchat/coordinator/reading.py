"""Reading a host's sessions ahead of who seals them; in a process of its own when there is much.

What is pure of an import (decoding, digests, masking, words) takes as long as the writing does, and
in one interpreter the two would take turns. A process that reads dies with who asked for it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

import msgspec
import structlog

from optchat.coordinator import logs
from optchat.engine.intake import Reading, reading_of
from optchat.errors import BadInput, CoordinatorError, EventConflict
from optchat.hosts.opencode.transcript.messages import HostSession
from optchat.hosts.opencode.transcript.source import Source, mark_of, open_source, read
from optchat.storage.ports import Clock
from optchat.storage.sqlite.store import SystemClock

log = structlog.get_logger()

_LENGTH_BYTES = 4
AHEAD_BYTES = 8_000_000
"""How much may be read beyond what was asked for: more than one transaction takes."""


class Order(msgspec.Struct, frozen=True):
    """Which sessions of OpenCode's store at ``path`` to read, in which order."""

    path: str
    ids: list[str]
    mask: bool


class Unread(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A session that cannot be read, and why."""

    id: str
    code: str
    message: str
    hint: str


Item = Reading | Unread


def read_here(
    source: Source,
    wanted: Sequence[HostSession],
    sessions: Sequence[HostSession],
    clock: Clock,
    *,
    mask: bool,
) -> Generator[Item]:
    """Read sessions of a store one after the other; ``sessions`` are all that it has."""
    beside: defaultdict[str, list[HostSession]] = defaultdict(list)
    for session in sessions:
        beside[session.project_id].append(session)
    for session in wanted:
        try:
            request = read(source, session, beside[session.project_id], clock.now_ms())
            reading = reading_of(request, mark_of(source, session, request.observed_ms), mask=mask)
        except (BadInput, EventConflict) as error:
            yield Unread(session.id, error.code, error.message, error.hint)
            continue
        yield reading


def read_ahead(order: Order) -> Generator[Item]:
    """``read_here`` by a process of its own, as far ahead as a pipe holds; to be closed.

    Raises:
        CoordinatorError: it has ended before it was done.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "optchat.coordinator.reader"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as asked:
            asked.write(msgspec.msgpack.encode(order))
        yield from _items(process.stdout)
        if process.wait() != 0:
            raise CoordinatorError(
                "reading the host's store was broken off; what was taken in until then is kept.",
                hint="the same command again goes on from there; the coordinator's log has more",
            )
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _items(pipe: IO[bytes]) -> Iterator[Item]:
    decode = msgspec.msgpack.Decoder(Item).decode
    while len(head := pipe.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        size = int.from_bytes(head, "big")
        if len(told := pipe.read(size)) < size:
            return  # it was killed, as its exit code says
        yield decode(told)


def _serve(asked: IO[bytes], pipe: int) -> None:
    """Read what is asked for and tell of it, until nobody listens any more."""
    order = msgspec.msgpack.decode(asked.read(), type=Order)
    source = open_source(Path(order.path))
    sessions = source.sessions()
    listed = {session.id: session for session in sessions}
    # One that has gone since the order was written is none to read.
    wanted = [listed[name] for name in order.ids if name in listed]
    encode = msgspec.msgpack.Encoder().encode
    with closing(Telling(pipe)) as telling:
        for item in read_here(source, wanted, sessions, SystemClock(), mask=order.mask):
            telling.tell(encode(item))


class Telling:
    """Writes what was read into a pipe beside the reading, so that neither waits for the other.

    At most ``AHEAD_BYTES`` and one item are ahead of who listens. All that has gathered goes in one
    call: each time that the pipe has taken one, the interpreter has to be waited for. Written to
    its descriptor: through Python's buffer, other bytes arrive when the process was stopped and
    goes on in the middle of a call.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._gathered = bytearray()
        self._is_over = False
        self._gone: OSError | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write, name="telling")
        self._thread.start()

    def tell(self, item: bytes) -> None:
        """Raises ``OSError`` when nobody listens any more."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._gathered) < AHEAD_BYTES or self._gone)
            if self._gone is not None:
                raise self._gone
            self._gathered += len(item).to_bytes(_LENGTH_BYTES, "big")
            self._gathered += item
            self._changed.notify_all()

    def close(self) -> None:
        """Ends when all is written, or nobody listens any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join()

    def _write(self) -> None:
        try:
            while gathered := self._take():
                left = memoryview(gathered)
                while left:
                    left = left[os.write(self._pipe, left) :]
        except OSError as error:
            with self._changed:
                self._gone = error
                self._changed.notify_all()

    def _take(self) -> bytearray:
        with self._changed:
            self._changed.wait_for(lambda: self._gathered or self._is_over)
            gathered, self._gathered = self._gathered, bytearray()
            self._changed.notify_all()
            return gathered


def main() -> int:
    """Serve one order from standard input to standard output; its exit code."""
    logs.configure()
    gc.set_threshold(100_000)  # what is read is in no cycle
    try:
        _serve(sys.stdin.buffer, sys.stdout.fileno())
    except BrokenPipeError:
        return 1
    except Exception:
        log.exception("reading ended")
        return 1
    return 0
