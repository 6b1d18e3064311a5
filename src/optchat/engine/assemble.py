"""Deciding what memory a request carries: pins, folds and news (§6, §7, §9).

Between folds a session's outgoing conversation only grows: base, then each turn of the native tail
with its own news block, stored with the turn and repeated byte for byte. A continuation reads the
turn's descriptor and decides nothing, unless the live turn no longer fits beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from optchat.core.budget import text_tokens, usable_tokens
from optchat.core.records import Fold, Pin, Session, Turn
from optchat.core.scopes import Scope
from optchat.engine.deps import Deps
from optchat.engine.fold import Folder, Tail, TailTurn
from optchat.engine.news import news_lines, news_text
from optchat.engine.scopes import published_in
from optchat.engine.sessions import own_lineage, require_scope
from optchat.engine.sizes import message_tokens, native, overhead_tokens, window_of
from optchat.engine.sync import open_turn
from optchat.engine.tombstones import FORGOTTEN, is_forgotten
from optchat.errors import NotReady, OptChatError, TurnTooLarge
from optchat.refs import Csn, TurnId
from optchat.storage.ports import Tx
from optchat.wire import (
    AssembleRequest,
    AssembleResponse,
    ErrorInfo,
    NewsText,
)

LIVE_RESERVE_PART = 0.2
"""The part of the window kept free at admission for the turn to grow into."""


EXPIRED = (
    "something that this turn's memory could show was forgotten or is no longer shared; its memory "
    "was made anew, and what was sent before cannot be taken back."
)

NEWS_FRAME_TOKENS = 256
"""The tags and the last element of a news block, generously."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a request may fill and what it fills already, in tokens."""

    usable: int
    overhead: int
    live: int
    factor: float

    def available(self, *, reserve: bool) -> int:
        """What is left for memory and the native tail (§7)."""
        live = max(self.live, int(self.usable * LIVE_RESERVE_PART)) if reserve else self.live
        return max(0, self.usable - self.overhead - live)


def error_info(error: OptChatError) -> ErrorInfo:
    return ErrorInfo(
        code=error.code, message=error.message, hint=error.hint, retryable=error.retryable
    )


def find(tx: Tx, deps: Deps, request: AssembleRequest) -> tuple[Session, Turn] | AssembleResponse:
    """The session and its open turn, or the answer that leaves the request alone.

    Where the host goes on by itself, after it has compacted at the end of a turn, that is a new
    turn: it opens with the host's own message, which gives no record.
    """
    session = tx.sessions.session_of_host(request.session.host, request.session.id)
    if session is None and is_forgotten(tx, request.session):
        return native(f"{FORGOTTEN}; it was sent as it is.")
    if session is None:
        return native("this conversation is not known to optchat yet; it was sent as it is.")
    if session.disabled is not None:
        return native(
            f"memory is off for this conversation: {session.disabled}. "
            f"To enable it again: optchat resync {session.host_session}"
        )
    turn = open_turn(tx, session)
    if turn is None and request.shape and request.shape[-1].role == "other":
        turn = Turn(
            turn_id=TurnId(deps.ids.new_id()),
            session_id=session.session_id,
            generation=session.generation,
            key=request.shape[-1].id,
            start_seq=own_lineage(tx, session).length,
            opened_ms=deps.clock.now_ms(),
            scope_id=published_in(tx, deps, session),
        )
    if turn is None:
        return native("this request belongs to no turn that optchat has seen; sent as it is.")
    return session, turn


def continuation(
    tx: Tx, deps: Deps, request: AssembleRequest, factor: float
) -> AssembleResponse | None:
    """The answer for a turn that is pinned and still fits; None when it must be decided anew."""
    found = find(tx, deps, request)
    if isinstance(found, AssembleResponse):
        return found
    session, turn = found
    if turn.pin is None or turn.fold_id is None:
        return None
    fold = tx.publications.fold(turn.fold_id)
    scope = require_scope(tx, session.scope_id)
    if fold is None or not is_valid(turn.pin, scope, session):
        return None
    return _answer(tx, deps, request, session, turn, fold, factor)


def admit(tx: Tx, deps: Deps, request: AssembleRequest, factor: float) -> AssembleResponse:
    """Pin the turn's snapshot, fold if it must, write its news, and answer (§9).

    Also decides a pinned turn anew when it outgrew its room (same snapshot) or its snapshot was
    invalidated (a fresh one).

    Raises:
        NotReady: nothing that covers everything fits; the caller may wait and try again.
        TurnTooLarge: the live turn alone does not fit.
    """
    found = find(tx, deps, request)
    if isinstance(found, AssembleResponse):
        return found
    session, turn = found
    scope = require_scope(tx, session.scope_id)
    lineage = own_lineage(tx, session)
    expired = turn.pin is not None and not is_valid(turn.pin, scope, session)
    if turn.pin is not None and not expired:
        pin = turn.pin
    else:
        pin = Pin(
            scope_id=scope.scope_id,
            csn=tx.meta.csn(),
            publication_end=0 if session.isolated else scope.publications,
            policy_revision=scope.policy_revision,
            retention_epoch=scope.retention_epoch,
            own_generation=session.generation,
            own_end=turn.start_seq,
        )
    window = window_of(request)
    usable = usable_tokens(window)
    tail = _tail(tx, session, turn, request, factor)
    room = Room(usable, overhead_tokens(request, usable, factor), tail.live_tokens, factor)
    if room.available(reserve=False) <= 0:
        raise TurnTooLarge(
            f"the request alone needs about {room.overhead + room.live} tokens of the "
            f"{room.usable} that {request.model.id} takes; it was not sent and nothing is lost.",
            hint="use a model with a larger window, or start a new conversation",
        )
    folder = Folder(tx, deps, session, scope, pin, lineage, window.key, factor)
    previous = _previous(tx, session, turn)
    fold = tx.publications.fold(turn.fold_id) if turn.fold_id is not None else None
    cause = "fit" if fold is not None and turn.pin == pin else None
    if cause is None:
        fold, cause = _continue_fold(tx, deps, folder, previous, tail, room, session, scope, pin)
    if cause is not None:
        fold = folder.make(cause, tail, room, current=fold)
    assert fold is not None
    since = (
        fold.publication_end
        if cause is not None or previous is None or previous.pin is None
        else previous.pin.publication_end
    )
    lines = news_lines(tx, session, pin, since)
    news = news_text(lines, session, pin, fold, deps.clock.now_ms())
    turn = replace(turn, pin=pin, fold_id=fold.fold_id, news=news)
    tx.records.put_turn(turn)
    answer = _answer(tx, deps, request, session, turn, fold, factor)
    if answer is None:
        raise NotReady(
            f"the memory of {session.title or request.session.id} does not fit beside the live "
            f"turn in {request.model.id}; the request was not sent and nothing is lost.",
            hint="use a model with a larger window, or set memory.readiness to partial",
        )
    if expired and answer.notice is None:
        answer.notice = EXPIRED
    return answer


def _continue_fold(
    tx: Tx,
    deps: Deps,
    folder: Folder,
    previous: Turn | None,
    tail: Tail,
    room: Room,
    session: Session,
    scope: Scope,
    pin: Pin,
) -> tuple[Fold | None, str | None]:
    """The fold that goes on, or the cause to make a new one."""
    memory = deps.config.memory
    if previous is None or previous.pin is None or previous.fold_id is None:
        return None, "first"
    fold = tx.publications.fold(previous.fold_id)
    if fold is None:
        return None, "forgotten"
    if fold.generation != session.generation:
        return None, "generation"
    if memory.layout == "every-turn":
        return fold, "layout"
    if not is_valid(fold.pin, scope, session):
        return fold, "forgotten"
    if tx.publications.retired_since(pin.scope_id, Csn(fold.pin.csn), pin.publication_end):
        return fold, "retired"
    if fold.window != folder.window_key:
        return fold, "window"
    lines = news_lines(tx, session, pin, previous.pin.publication_end)
    if sum(len(line.encode()) for line in lines) > memory.news_bytes_max:
        return fold, "news"
    kept = tail.since(fold.first_turn_key)
    if kept is None:
        return fold, "host"
    if fold.coverage != "complete":
        return fold, "coverage"
    memory_tokens = _fold_tokens(fold, room.factor)
    told = sum(t.news_tokens for t in kept if t.turn.fold_id == fold.fold_id)
    news_tokens = int((told + text_tokens("".join(lines)) + NEWS_FRAME_TOKENS) * room.factor)
    native_tokens = sum(t.tokens for t in kept)
    if memory_tokens + news_tokens + native_tokens > room.available(reserve=True):
        return fold, "tail"
    return fold, None


def is_valid(pin: Pin, scope: Scope, session: Session) -> bool:
    """Whether a snapshot still stands: same scope, policy, epoch and generation (§12)."""
    return (
        pin.scope_id == session.scope_id == scope.scope_id
        and pin.policy_revision == scope.policy_revision
        and pin.retention_epoch == scope.retention_epoch
        and pin.own_generation == session.generation
    )


def _previous(tx: Tx, session: Session, turn: Turn) -> Turn | None:
    """The last turn before this one that was admitted with memory."""
    before = [
        t
        for t in tx.records.turns(session.session_id)
        if t.generation == session.generation
        and t.turn_id != turn.turn_id
        and t.start_seq <= turn.start_seq
        and t.pin is not None
    ]
    return before[-1] if before else None


def _tail(tx: Tx, session: Session, turn: Turn, request: AssembleRequest, factor: float) -> Tail:
    """The earlier turns that the request still holds whole, and the size of the live one."""
    turn_of: dict[str, TurnId] = {}
    members: dict[TurnId, set[str]] = {}
    for held in tx.records.messages(session.session_id):
        turn_of[held.message_id] = held.turn_id
        if held.end_seq_exclusive > held.start_seq:
            members.setdefault(held.turn_id, set()).add(held.message_id)
    sizes: dict[TurnId, int] = {}
    seen: dict[TurnId, set[str]] = {}
    live = 0
    for message in request.shape:
        owner = turn_of.get(message.id) or turn.turn_id
        if owner == turn.turn_id:
            live += message_tokens(message, factor)
            continue
        sizes[owner] = sizes.get(owner, 0) + message_tokens(message, factor)
        seen.setdefault(owner, set()).add(message.id)
    earlier = [
        t
        for t in tx.records.turns(session.session_id)
        if t.turn_id != turn.turn_id and t.start_seq <= turn.start_seq and t.turn_id in members
    ]
    turns = [
        TailTurn(
            turn=t,
            tokens=sizes.get(t.turn_id, 0),
            news_tokens=text_tokens(t.news) if t.news else 0,
            whole=members[t.turn_id] <= seen.get(t.turn_id, set()),
        )
        for t in earlier
    ]
    return Tail(tuple(turns), turn, live)


def _fold_tokens(fold: Fold, factor: float) -> int:
    return int((text_tokens(fold.shared_text) + text_tokens(fold.own_text)) * factor)


def _answer(
    tx: Tx,
    deps: Deps,
    request: AssembleRequest,
    session: Session,
    turn: Turn,
    fold: Fold,
    factor: float,
) -> AssembleResponse | None:
    """The response from the descriptors alone; None if it would not fit the window (§7)."""
    ids = [m.id for m in request.shape]
    keep_from = fold.first_turn_key if fold.first_turn_key in ids else None
    if keep_from is None and fold.first_turn_key != turn.key:
        return None  # the host left out (it compacted) what the tail should begin with
    first = ids.index(fold.first_turn_key) if keep_from is not None else 0
    kept = request.shape[first:]
    present = {m.id for m in kept}
    shown = [
        t
        for t in tx.records.turns_of_fold(session.session_id, fold.fold_id)
        if t.news and (t.key in present or t.turn_id == turn.turn_id)
    ]
    # Where the host dropped the live request (it compacted), its news still must be told.
    users = [m.id for m in kept if m.role == "user"] or [m.id for m in kept]
    if not users:
        return None
    base = fold.shared_text + fold.own_text
    usable = usable_tokens(window_of(request))
    estimated = (
        overhead_tokens(request, usable, factor)
        + _fold_tokens(fold, factor)
        + sum(int(text_tokens(t.news) * factor) for t in shown)
        + sum(message_tokens(m, factor) for m in kept)
    )
    if estimated > usable:
        return None
    placement = deps.config.placement
    return AssembleResponse(
        state="ready",
        base=base,
        placement=placement.providers.get(request.model.provider, placement.default),
        keep_from=keep_from if first else None,
        news=[
            NewsText(message_id=t.key if t.key in present else users[0], text=t.news) for t in shown
        ],
        notice=None if fold.coverage == "complete" else f"memory is partial: {fold.coverage}",
        turn=turn.turn_id,
        estimated_tokens=estimated,
        limit_tokens=usable,
    )
