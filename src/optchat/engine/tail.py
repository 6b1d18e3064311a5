"""What a request holds of its conversation: the earlier turns, and the live one's messages (§7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from optchat.core.budget import text_tokens
from optchat.core.records import Checkpoint, HostMessage, Session, Turn
from optchat.engine.sizes import message_tokens
from optchat.refs import TurnId
from optchat.storage.ports import Tx
from optchat.wire import AssembleRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class TailTurn:
    """An earlier turn as the request holds it. ``whole`` is False when the host left it out."""

    turn: Turn
    tokens: int
    news_tokens: int
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMessage:
    """A message of the live turn: of the request, or one that the host left out of it.

    Records ``[start, end_exclusive)`` came from it if it is ``sealed``.
    """

    message_id: str
    role: str
    tokens: int
    start: int
    end_exclusive: int
    sealed: bool
    sent: bool


@dataclass(frozen=True, slots=True)
class Live:
    """The live turn: its messages in order, those left out included, and its checkpoints' price."""

    turn: Turn
    messages: tuple[LiveMessage, ...]
    checkpoints: tuple[Checkpoint, ...]
    skipped: frozenset[str]
    factor: float

    @property
    def tokens(self) -> int:
        """What it takes in the request."""
        native = sum(m.tokens for m in self.messages if m.message_id not in self.skipped)
        return native + checkpoint_tokens(self.checkpoints, self.factor)

    @property
    def whole(self) -> bool:
        """Whether each record is native or told in a checkpoint (I2)."""
        return all(
            (m.sent and m.message_id not in self.skipped) or self._told(m) for m in self.messages
        )

    def _told(self, message: LiveMessage) -> bool:
        if not message.sealed:
            return False
        return message.start == message.end_exclusive or any(
            c.start <= message.start and message.end_exclusive <= c.end_exclusive
            for c in self.checkpoints
        )

    def folded(self, checkpoints: tuple[Checkpoint, ...], request: AssembleRequest) -> Live:
        """The same turn under these checkpoints."""
        turn = replace(self.turn, checkpoints=checkpoints)
        return _live(turn, self.messages, request, self.factor)


@dataclass(frozen=True, slots=True)
class Tail:
    """The earlier turns in order, and the live one. ``loose_tokens`` belong to no turn."""

    turns: tuple[TailTurn, ...]
    live: Live
    loose_tokens: int = 0

    @property
    def live_tokens(self) -> int:
        return self.live.tokens + self.loose_tokens

    def since(self, key: str) -> tuple[TailTurn, ...] | None:
        """The turns from ``key`` on; None unless each of them is native and whole."""
        if key == self.live.turn.key:
            return ()
        for index, member in enumerate(self.turns):
            if member.turn.key == key:
                kept = self.turns[index:]
                return kept if all(t.whole for t in kept) else None
        return None

    def native_tokens(self) -> list[int]:
        """What the tail takes when it starts at each of the turns, and at the live one: 0."""
        taken = [0]
        for member in reversed(self.turns):
            taken.append(taken[-1] + member.tokens)
        return taken[::-1]

    def native_from(self) -> int:
        """The index of the first turn from which on everything is native."""
        first = len(self.turns)
        while first and self.turns[first - 1].whole:
            first -= 1
        return first


def places_of(request: AssembleRequest) -> dict[str, int]:
    """Where each message stands in the request."""
    return {m.id: at for at, m in enumerate(request.shape)}


def applied(turn: Turn, places: Mapping[str, int]) -> tuple[Checkpoint, ...]:
    """The turn's checkpoints, if the request has the messages that they are tied to; else none.

    One that tells the request itself, because the host had left that out, ends when it is back.
    """
    for checkpoint in turn.checkpoints:
        after, until = places.get(checkpoint.after), places.get(checkpoint.until)
        if after is None or until is None or after >= until:
            return ()
        if checkpoint.start == turn.start_seq and turn.key in places:
            return ()
    return turn.checkpoints


def left_out(checkpoints: Iterable[Checkpoint], places: Mapping[str, int]) -> set[int]:
    """The places of the messages that checkpoints stand for."""
    return {at for c in checkpoints for at in range(places[c.after] + 1, places[c.until])}


def checkpoint_tokens(checkpoints: Iterable[Checkpoint], factor: float) -> int:
    return sum(int(text_tokens(c.text) * factor) for c in checkpoints)


def read_live(
    tx: Tx, session: Session, turn: Turn, request: AssembleRequest, factor: float
) -> Live:
    """The live turn's messages: those that are sealed, then the others of the request."""
    held = [
        m
        for m in tx.membership.messages(session.session_id, turn.start_seq)
        if m.turn_id == turn.turn_id
    ]
    places = places_of(request)
    last = max((places[m.message_id] for m in held if m.message_id in places), default=None)
    if last is not None:
        unsealed = list(range(last + 1, len(request.shape)))
    else:
        known = {m.message_id for m in tx.membership.messages(session.session_id)} - {turn.key}
        unsealed = [at for at, m in enumerate(request.shape) if m.id not in known]
    return _live(turn, _messages(held, unsealed, request, places, factor), request, factor)


def read_tail(
    tx: Tx, session: Session, live: Live, request: AssembleRequest, factor: float
) -> Tail:
    """The earlier turns that the request still holds whole, and the live one beside them."""
    turn_of: dict[str, TurnId] = {}
    members: dict[TurnId, list[HostMessage]] = {}
    for held in tx.membership.messages(session.session_id):
        turn_of[held.message_id] = held.turn_id
        if held.end_seq_exclusive > held.start_seq:
            members.setdefault(held.turn_id, []).append(held)
    earlier = [
        t
        for t in tx.turns.of_session(session.session_id)
        if t.turn_id != live.turn.turn_id
        and t.start_seq <= live.turn.start_seq
        and t.turn_id in members
    ]
    places = places_of(request)
    told = {t.turn_id: applied(t, places) for t in earlier if t.generation == session.generation}
    skipped = left_out((c for cs in told.values() for c in cs), places)
    own = {m.message_id for m in live.messages}
    sizes: dict[TurnId, int] = {}
    loose = 0
    for at, message in enumerate(request.shape):
        if message.id in own or at in skipped:
            continue
        tokens = message_tokens(message, factor)
        owner = turn_of.get(message.id)
        if owner:
            sizes[owner] = sizes.get(owner, 0) + tokens
        else:
            loose += tokens

    def whole(turn: Turn) -> bool:
        checkpoints = told.get(turn.turn_id, ())
        return all(
            m.message_id in places
            or any(
                c.start <= m.start_seq and m.end_seq_exclusive <= c.end_exclusive
                for c in checkpoints
            )
            for m in members[turn.turn_id]
        )

    turns = [
        TailTurn(
            turn=t,
            tokens=sizes.get(t.turn_id, 0) + checkpoint_tokens(told.get(t.turn_id, ()), factor),
            news_tokens=text_tokens(t.news) if t.news else 0,
            whole=whole(t),
        )
        for t in earlier
    ]
    return Tail(tuple(turns), live, loose)


def _live(
    turn: Turn, messages: tuple[LiveMessage, ...], request: AssembleRequest, factor: float
) -> Live:
    places = places_of(request)
    checkpoints = applied(turn, places)
    skipped = left_out(checkpoints, places)
    ids = frozenset(m.message_id for m in messages if places.get(m.message_id, -1) in skipped)
    return Live(turn, messages, checkpoints, ids, factor)


def _messages(
    held: Iterable[HostMessage],
    unsealed: Iterable[int],
    request: AssembleRequest,
    places: Mapping[str, int],
    factor: float,
) -> tuple[LiveMessage, ...]:
    found: list[LiveMessage] = []
    for message in held:
        at = places.get(message.message_id)
        shown = request.shape[at] if at is not None else None
        found.append(
            LiveMessage(
                message_id=message.message_id,
                role=shown.role if shown is not None else "other",
                tokens=message_tokens(shown, factor) if shown is not None else 0,
                start=message.start_seq,
                end_exclusive=message.end_seq_exclusive,
                sealed=True,
                sent=shown is not None,
            )
        )
    for at in unsealed:
        shown = request.shape[at]
        found.append(
            LiveMessage(
                message_id=shown.id,
                role=shown.role,
                tokens=message_tokens(shown, factor),
                start=0,
                end_exclusive=0,
                sealed=False,
                sent=True,
            )
        )
    return tuple(found)
