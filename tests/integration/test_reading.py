"""A host's store is read by a process of its own just as it is read here (§3)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from optchat.config import Compactor, Config
from optchat.coordinator import reading, taking
from optchat.coordinator.importing import Importing
from optchat.coordinator.reading import (
    Item,
    Order,
    Telling,
    Unread,
    read_ahead,
    read_here,
)
from optchat.engine.deps import Deps
from optchat.engine.intake import Reading
from optchat.errors import CoordinatorError
from optchat.hosts.opencode.transcript.source import open_source
from optchat.storage.memory import MemoryStore
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.wire import ImportRequest
from tests.harness.host_store import change, make

COUNT = 300


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = make(tmp_path / "opencode.db", COUNT)
    change(path, "update message set data = '{' where id = 'msg_000700a'")
    return path


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that read, real ones."""
    begun: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            begun.append(self)

    monkeypatch.setattr(reading.subprocess, "Popen", Popen)
    return begun


def order(path: Path) -> Order:
    source = open_source(path)
    ids = [session.id for session in source.sessions()]
    source.close()
    return Order(str(path), ids, mask=True)


def timeless(item: Item) -> Item:
    """An item without the moment at which it was read."""
    if isinstance(item, Unread):
        return item
    request = msgspec.structs.replace(item.request, observed_ms=0)
    return msgspec.structs.replace(item, request=request)


def memory_of() -> Importing:
    config = Config(compactor=Compactor(model="deterministic"))
    return Importing(MemoryStore(), Deps(config, ManualClock(10**13), CountedIds("1")))


def test_a_process_of_its_own_reads_what_is_read_here(store: Path) -> None:
    """One that cannot be read is named, and holds up no other."""
    source = open_source(store)
    sessions = source.sessions()
    here = list(read_here(source, sessions, sessions, ManualClock(10**13), mask=True))
    source.close()
    with closing(read_ahead(order(store))) as items:
        ahead = list(items)
    assert list(map(timeless, ahead)) == list(map(timeless, here))
    assert [item.id for item in ahead if isinstance(item, Unread)] == ["ses_0007"]
    assert sum(isinstance(item, Reading) for item in ahead) == COUNT - 1


def test_a_process_that_is_stopped_and_goes_on_tells_the_same() -> None:
    """A laptop's lid, Ctrl-Z: in the middle of a write, for who listens is slower."""
    count, times = 20, 170_000
    program = (
        "import sys; from optchat.coordinator.reading import Telling; "
        "telling = Telling(sys.stdout.fileno()); "
        f"[telling.tell(n.to_bytes(4, 'big') * {times}) for n in range({count})]; telling.close()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for number in range(count):
            size = int.from_bytes(process.stdout.read(4), "big")
            begun = process.stdout.read(size // 3)
            for stop in (signal.SIGSTOP, signal.SIGCONT):
                process.send_signal(stop)
            whole = begun + process.stdout.read(size - len(begun))
            assert whole == number.to_bytes(4, "big") * times
        assert process.stdout.read() == b""


def test_who_stops_listening_ends_the_process(
    store: Path, readers: list[subprocess.Popen[bytes]]
) -> None:
    with closing(read_ahead(order(store))) as items:
        next(items)
    assert readers[0].poll() is not None


def test_a_reader_that_is_killed_is_an_error_and_what_it_told_is_kept(
    store: Path, readers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: the import says so, and the next one goes on from there."""

    def cut_short(asked: Order) -> Generator[Item]:
        for number, item in enumerate(read_ahead(asked)):
            yield item
            if number == 2 * taking.BATCH_SESSIONS:
                os.kill(readers[0].pid, signal.SIGKILL)

    monkeypatch.setattr(taking, "AHEAD_MESSAGES_MIN", 1)
    monkeypatch.setattr(taking, "read_ahead", cut_short)
    importing = memory_of()
    first = importing.take(ImportRequest(path=str(store)))
    assert first.error is not None
    assert first.error.code == CoordinatorError.code
    assert first.sessions >= taking.BATCH_SESSIONS
    monkeypatch.setattr(taking, "read_ahead", read_ahead)
    rest = importing.take(ImportRequest(path=str(store)))
    assert rest.error is None
    assert rest.skipped == {"unchanged": first.sessions, "unreadable": 1}
    assert first.sessions + rest.sessions == COUNT - 1
    assert importing.store.read(lambda tx: tx.records.count()) == first.records + rest.records


def test_a_store_that_is_gone_by_then_is_an_error(store: Path) -> None:
    asked = order(store)
    store.unlink()
    with closing(read_ahead(asked)) as items, pytest.raises(CoordinatorError):
        next(items)


def test_what_is_told_ahead_arrives_whole_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much less may be ahead than is told."""
    monkeypatch.setattr(reading, "AHEAD_BYTES", 100)
    told = [bytes([number % 256]) * (number * 37) for number in range(300)]
    to_read, to_write = os.pipe()
    with ThreadPoolExecutor(1) as listening, os.fdopen(to_read, "rb") as pipe:
        heard = listening.submit(pipe.read)
        with closing(Telling(to_write)) as telling:
            for item in told:
                telling.tell(item)
        os.close(to_write)
        assert heard.result() == b"".join(len(i).to_bytes(4, "big") + i for i in told)


def test_who_tells_waits_for_the_listener_and_hears_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No more than what is ahead, what the pipe holds, and what it is being given is told."""
    monkeypatch.setattr(reading, "AHEAD_BYTES", 100_000)
    to_read, to_write = os.pipe()
    telling, item = Telling(to_write), bytes(10_000)
    with ThreadPoolExecutor(1) as talking:
        all_told = talking.submit(lambda: [telling.tell(item) for _ in range(1_000)])
        told_at_once = wait([all_told], timeout=0.5).done
        os.close(to_read)
        telling.close()
        with pytest.raises(BrokenPipeError):
            all_told.result()
    os.close(to_write)
    assert not told_at_once
