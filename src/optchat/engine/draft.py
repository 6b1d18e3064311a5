"""What of a host's messages can be sealed: which turns they make, and where their records lie (§3).

Pure, so that it needs no transaction: a session that is new here is drafted by who reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from optchat.core.records import Outcome, Turn
from optchat.engine.keys import kept_digest
from optchat.engine.payloads import Prepared, Source
from optchat.engine.tombstones import NO_DIGEST
from optchat.wire import MessageInfo, SyncRequest

_OUTCOMES = {
    "completed": Outcome.COMPLETED,
    "interrupted": Outcome.INTERRUPTED,
    "failed": Outcome.FAILED,
}


class DraftTurn(msgspec.Struct, array_like=True):
    """A turn that opens in a draft, or the first of it that had been open before."""

    key: str
    start_seq: int
    opened_ms: int
    end_seq_exclusive: int | None = None
    outcome: Outcome | None = None
    closed_ms: int | None = None
    line: str | None = None  # under which it is published as history, where that is known


class DraftMessage(msgspec.Struct, array_like=True, gc=False):
    """A message that can be sealed; ``turn`` is the number of its turn, or -1."""

    position: int
    message_id: str
    digest: str
    turn: int
    start_seq: int
    end_seq_exclusive: int


class Draft(msgspec.Struct, array_like=True):
    """Messages that can be sealed, in order, with the turns that they open and close.

    ``start_seq`` is where their records begin, and ``goes_on`` whether the first turn was open
    before. ``need`` names messages whose content is wanted.
    """

    start_seq: int
    goes_on: bool
    messages: list[DraftMessage] = []
    turns: list[DraftTurn] = []
    need: list[str] = []

    @property
    def end_seq_exclusive(self) -> int:
        return self.messages[-1].end_seq_exclusive if self.messages else self.start_seq

    @property
    def opens(self) -> bool:
        """Whether a turn opens in it."""
        return len(self.turns) > self.goes_on

    def sources(self, prepared: Prepared) -> list[Source]:
        """The records' sources, in order."""
        found: list[Source] = []
        for message in self.messages:
            if message.start_seq < message.end_seq_exclusive:
                found += prepared[message.message_id]
        return found

    def halves(self) -> tuple[Draft, Draft]:
        """What comes before the first turn that opens in it, and the rest."""
        first = int(self.goes_on)
        at = next(n for n, message in enumerate(self.messages) if message.turn >= first)
        before = Draft(self.start_seq, self.goes_on, self.messages[:at], self.turns[:first])
        rest = self.messages[at:]
        if first:
            rest = [msgspec.structs.replace(m, turn=max(m.turn - 1, -1)) for m in rest]
        after = Draft(before.end_seq_exclusive, False, rest, self.turns[first:], self.need)
        return before, after


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a draft begins: behind what is sealed. ``last_ms``: of the open turn's last record."""

    position: int = 0
    seq: int = 0
    turn: Turn | None = None
    last_ms: int = 0
    forgotten: frozenset[str] = frozenset()


def draft_of(request: SyncRequest, prepared: Prepared, now_ms: int, start: Start) -> Draft:
    """Draft the messages from ``start`` on, up to the first that is not final or has no content.

    A message of ``start.forgotten`` stands in the membership and gives no record.
    """
    drafting = _Drafting(prepared, now_ms, start)
    drafting.run(request)
    return drafting.draft


class _Drafting:
    def __init__(self, prepared: Prepared, now_ms: int, start: Start) -> None:
        self._prepared = prepared
        self._now_ms = now_ms
        self._forgotten = start.forgotten
        self._position = start.position
        self._length = start.seq
        self._last_ms = start.last_ms
        self._turn: DraftTurn | None = None
        self.draft = Draft(start.seq, start.turn is not None)
        if start.turn is not None:
            self._turn = DraftTurn(start.turn.key, start.turn.start_seq, start.turn.opened_ms)
            self.draft.turns.append(self._turn)

    def run(self, request: SyncRequest) -> None:
        messages = request.messages
        blocked = False
        for position in range(self._position, len(messages)):
            message = messages[position]
            if not blocked and not _is_settled(messages, position):
                blocked = True
            if message.parts is None and message.role != "other":
                if _is_settled(messages, position):
                    self.draft.need.append(message.id)
                blocked = True
            if not blocked:
                self._take(position, message)
        if request.idle and not blocked:
            self._close(Outcome.INTERRUPTED)

    def _take(self, position: int, message: MessageInfo) -> None:
        if message.role == "user" and (self._turn is None or message.opens):
            self._close(Outcome.INTERRUPTED)
            self._open(message)
        elif self._turn is None and message.role == "assistant":
            self._open(message)
        start, is_forgotten = self._length, message.id in self._forgotten
        if not is_forgotten:
            for source in self._prepared.get(message.id, ()):
                self._length += 1
                self._last_ms = max(self._last_ms, source.time_ms)
        self.draft.messages.append(
            DraftMessage(
                position,
                message.id,
                NO_DIGEST if is_forgotten else kept_digest(message.digest),
                len(self.draft.turns) - 1 if self._turn is not None else -1,
                start,
                self._length,
            )
        )
        if message.terminal is not None:
            self._close(_OUTCOMES[message.terminal])

    def _open(self, message: MessageInfo) -> None:
        self._turn = DraftTurn(message.id, self._length, message.created_ms or self._now_ms)
        self.draft.turns.append(self._turn)
        self._last_ms = 0

    def _close(self, outcome: Outcome) -> None:
        """End the turn that is open, if any."""
        if self._turn is not None:
            self._turn.end_seq_exclusive = self._length
            self._turn.outcome = outcome
            self._turn.closed_ms = max(self._turn.opened_ms, self._last_ms)
            self._turn = None


def _is_settled(messages: Sequence[MessageInfo], position: int) -> bool:
    """Final by the host's word, or left dangling: a later request came to an idle session."""
    if messages[position].final or messages[position].role == "user":
        return True
    return any(m.role == "user" and m.opens for m in messages[position + 1 :])
