"""Taking sessions of a host's store in: read ahead, sealed in short transactions (§3).

What is sealed is sealed, whatever becomes of the rest; taken in again, it is found sealed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

import msgspec
import structlog

from optchat.coordinator.reading import Item, Order, Unread, read_ahead, read_here
from optchat.engine.deps import Deps
from optchat.engine.intake import Reading, chars_of, take_in
from optchat.engine.keys import kept_digest
from optchat.errors import BadInput, OptChatError
from optchat.hosts.opencode.transcript import place
from optchat.hosts.opencode.transcript.messages import HostSession
from optchat.hosts.opencode.transcript.source import Source
from optchat.storage.ports import Store, Tx
from optchat.wire import ImportRequest, ImportStatus, MessageInfo

log = structlog.get_logger()

BATCH_CHARS = 2_000_000
"""About how much content one transaction takes."""
FIRST_CHARS = BATCH_CHARS // 8
"""The first one begins early, for nothing else is being done."""
BATCH_SESSIONS = 100
AHEAD_MESSAGES_MIN = 2_000
"""Fewer are read here: a process takes half a second to begin."""
UNREADABLE_MAX = 20
"""How many sessions that cannot be read are named; the rest is counted."""


@dataclass(slots=True)
class Run:
    """One import. ``project_key``, ``settled_only`` and ``only`` are of one nobody asked for."""

    status: ImportStatus
    request: ImportRequest
    project_key: str | None = None
    settled_only: bool = False
    only: frozenset[str] | None = None
    skipped: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True)
class Taking:
    """Sessions on their way into the store; ends after the transaction that goes on."""

    store: Store
    deps: Deps
    stopping: threading.Event
    _placed: threading.Event = field(default_factory=threading.Event)

    def take(
        self,
        run: Run,
        source: Source,
        wanted: Sequence[HostSession],
        sessions: Sequence[HostSession],
    ) -> None:
        """Read sessions and seal them, small ones together: some are read while others are sealed.

        Raises:
            BadInput: the store is gone.
            CoordinatorError: who read it was killed. What was sealed is kept.
        """
        batch: list[Reading] = []
        chars = 0
        sealed: Future[None] | None = None
        items = self._items(run, source, wanted, sessions)
        with closing(items), ThreadPoolExecutor(1, "sealing") as sealing:
            for item in items:
                if self.stopping.is_set():
                    return
                if isinstance(item, Unread):
                    if source.name and not place.is_there(source.name):
                        raise BadInput(item.message, hint=item.hint)
                    self._unreadable(run, item.id, item.code)
                    continue
                batch.append(item)
                chars += item.chars
                enough = BATCH_CHARS if sealed is not None else FIRST_CHARS
                if chars >= enough or len(batch) >= BATCH_SESSIONS:
                    if sealed is not None:
                        sealed.result()
                    self._placed.clear()
                    sealed = sealing.submit(self._seal, run, batch)
                    sealed.add_done_callback(lambda _: self._placed.set())
                    # Decoding wants the interpreter, as placing does; committing does without.
                    self._placed.wait()
                    batch, chars = [], 0
            if sealed is not None:
                sealed.result()
            self._seal(run, batch)

    def _items(
        self,
        run: Run,
        source: Source,
        wanted: Sequence[HostSession],
        sessions: Sequence[HostSession],
    ) -> Generator[Item]:
        mask = self.deps.config.privacy.mask
        if run.request.form == "opencode" and sum(s.messages for s in wanted) >= AHEAD_MESSAGES_MIN:
            return read_ahead(Order(str(source.path), [s.id for s in wanted], mask))
        return read_here(source, wanted, sessions, self.deps.clock, mask=mask)

    def _seal(self, run: Run, batch: Sequence[Reading]) -> None:
        """Seal sessions in one transaction; if one of them cannot be, each in its own."""
        try:
            self._seal_together(run, batch)
        except OptChatError as error:
            if len(batch) <= 1:
                for reading in batch:
                    self._unreadable(run, reading.request.session.id, error.code)
                return
            for one in batch:
                self._seal(run, [one])

    def _seal_together(self, run: Run, batch: Sequence[Reading]) -> None:
        left = list(batch)
        while left:
            sealed, left = self.store.write(
                lambda tx, part=left: self._portion(tx, part), self._placed.set
            )
            run.status.records += sealed
            if self.stopping.is_set():
                return
        run.status.sessions += len(batch)
        run.status.done += len(batch)

    def _portion(self, tx: Tx, batch: Sequence[Reading]) -> tuple[int, list[Reading]]:
        """One transaction's worth; how many records are new, and which sessions have more."""
        readings = [_lacking(reading, _held(tx, reading)) for reading in batch]
        answers = take_in(tx, self.deps, readings)
        more = [one for one, a in zip(batch, answers, strict=True) if a.need and a.sealed]
        return sum(a.sealed for a in answers), more

    def _unreadable(self, run: Run, host_session: str, code: str) -> None:
        log.warning("not taken in", session=host_session, code=code)
        run.skipped["unreadable"] += 1
        run.status.done += 1
        if len(run.status.unreadable) < UNREADABLE_MAX:
            run.status.unreadable.append(host_session)


def _held(tx: Tx, reading: Reading) -> dict[str, str]:
    """The digests of a session's messages that are sealed."""
    info = reading.request.session
    session = tx.sessions.session_of_host(info.host, info.id)
    if session is None:
        return {}
    return {m.message_id: m.digest for m in tx.membership.messages(session.session_id)}


def _lacking(reading: Reading, held: dict[str, str]) -> Reading:
    """The reading with the content that is not sealed yet, as far as one transaction takes."""
    left = BATCH_CHARS
    if not held and reading.chars <= left:
        return reading
    messages: list[MessageInfo] = []
    for message in reading.request.messages:
        is_new = held.get(message.id) != kept_digest(message.digest)
        if left > 0 and is_new and message.final:
            left -= chars_of(reading.prepared.get(message.id, ()))
            messages.append(message)
        else:
            messages.append(msgspec.structs.replace(message, parts=None))
    request = msgspec.structs.replace(reading.request, messages=messages)
    return msgspec.structs.replace(reading, request=request, draft=None)
