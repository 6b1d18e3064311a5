"""Deciding what memory a request carries: pins, folds and news (§6, §7, §9).

Between folds a session's outgoing conversation only grows: base, then each turn of the native tail
with its own news block, stored with the turn and repeated byte for byte. A continuation reads the
turn's descriptor and decides nothing, unless the live turn no longer fits beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optchat.core import context
from optchat.core.budget import text_tokens, usable_tokens
from optchat.core.records import Fold, Lineage, Pin, Session, Turn
from optchat.core.scopes import Scope
from optchat.engine.checkpoint import checkpoints
from optchat.engine.deps import Deps
from optchat.engine.fold import Folder
from optchat.engine.forest import Forest
from optchat.engine.news import Recalled, news_lines, news_text, recalled_text
from optchat.engine.nodes import hurry_session
from optchat.engine.outgoing import fold_tokens, outgoing
from optchat.engine.pins import fresh_pin, is_valid
from optchat.engine.room import Room, check_live
from optchat.engine.scopes import published_in
from optchat.engine.sessions import open_turn, own_lineage, require_scope
from optchat.engine.sizes import native, overhead_tokens, window_of
from optchat.engine.tail import Live, Tail, read_live, read_tail
from optchat.engine.tombstones import FORGOTTEN, is_forgotten
from optchat.errors import NotReady, OptChatError, TurnTooLarge
from optchat.masking import mask
from optchat.refs import Csn, TurnId
from optchat.storage.ports import Tx
from optchat.wire import AssembleRequest, AssembleResponse, ErrorInfo

EXPIRED = (
    "something that this turn's memory could show was forgotten or is no longer shared; its memory "
    "was made anew, and what was sent before cannot be taken back."
)

NEWS_FRAME_TOKENS = 256
"""The tags and the last element of a news block, generously."""


def error_info(error: OptChatError) -> ErrorInfo:
    return ErrorInfo(
        code=error.code, message=mask(error.message), hint=error.hint, retryable=error.retryable
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
    fold = tx.folds.fold(turn.fold_id)
    scope = require_scope(tx, session.scope_id)
    if fold is None or not is_valid(turn.pin, scope, session):
        return None
    live = read_live(tx, session, turn, request, factor)
    return outgoing(tx, deps, request, session, live, fold, factor)


def admit(
    tx: Tx,
    deps: Deps,
    request: AssembleRequest,
    factor: float,
    recalled: Sequence[Recalled] = (),
) -> AssembleResponse:
    """Pin the turn's snapshot, fold if it must, write its news, and answer (§9).

    What the request's words have ``recalled`` goes into the news, as far as the snapshot sees it
    and there is room.

    Also decides a pinned turn anew when it outgrew its room (same snapshot) or its snapshot was
    invalidated (a fresh one). A live turn that takes too much of the window is folded itself.

    Raises:
        NotReady: nothing that covers everything fits; the caller may wait and try again.
        TurnTooLarge: the live turn alone does not fit, its finished steps folded.
    """
    found = find(tx, deps, request)
    if isinstance(found, AssembleResponse):
        return found
    session, turn = found
    scope = require_scope(tx, session.scope_id)
    lineage = own_lineage(tx, session)
    expired = turn.pin is not None and not is_valid(turn.pin, scope, session)
    pin = turn.pin
    if pin is None or expired:
        pin = fresh_pin(tx, session, turn)
        told = recalled_text(tx, session, lineage, pin, recalled)
    else:
        told = context.recalled_in(turn.news)
    usable = usable_tokens(window_of(request))
    overhead = overhead_tokens(request, usable, factor)
    forest = Forest(tx, lineage.segments[-1].tree, number=session.number, lineage=lineage)
    whole = read_live(tx, session, turn, request, factor)
    part = int(max(0, usable - overhead) * deps.config.memory.checkpoint_part)
    # Earlier turns give way first, unless the live turn itself takes too much; further than to
    # half of that it is folded only if nothing else helps.
    large = not whole.whole or whole.tokens > part
    stopped: OptChatError | None = None
    for target in (part // 2, 0) if large else (None, part // 2, 0):
        live = whole if target is None else _folded(whole, forest, session, request, target)
        if stopped is not None and live is whole:
            break  # no step can be folded
        for block in (told, "") if told else ("",):
            try:
                answer = _decide(
                    tx, deps, request, session, scope, lineage, pin, live, factor, block
                )
                if expired and answer.notice is None:
                    answer.notice = EXPIRED
                return answer
            except (NotReady, TurnTooLarge) as error:
                stopped = error
    assert stopped is not None
    raise stopped


def hurry(tx: Tx, deps: Deps, request: AssembleRequest) -> None:
    """A request waits for this session's summaries: they are gathered for company no longer."""
    session = tx.sessions.session_of_host(request.session.host, request.session.id)
    if session is not None:
        hurry_session(tx, deps, session.session_id, deps.clock.now_ms())


def _folded(
    live: Live, forest: Forest, session: Session, request: AssembleRequest, target: int
) -> Live:
    """The live turn with its finished steps folded, or the same one if that makes it no smaller."""
    name = f"s{session.number}:{session.generation}"
    folded = live.folded(checkpoints(forest, live, name, target), request)
    if live.whole and not (folded.whole and folded.tokens < live.tokens):
        return live
    return folded


def _decide(
    tx: Tx,
    deps: Deps,
    request: AssembleRequest,
    session: Session,
    scope: Scope,
    lineage: Lineage,
    pin: Pin,
    live: Live,
    factor: float,
    recalled: str,
) -> AssembleResponse:
    """Find or make the fold that goes with this state of the live turn, and answer from it."""
    window = window_of(request)
    usable = usable_tokens(window)
    tail = read_tail(tx, session, live, request, factor)
    recalled_tokens = int(text_tokens(recalled) * factor)
    taken = tail.live_tokens + recalled_tokens
    room = Room(usable, overhead_tokens(request, usable, factor), taken, factor)
    check_live(request.model.id, room, live)
    turn = live.turn
    fold = tx.folds.fold(turn.fold_id) if turn.fold_id is not None else None
    pinned = fold is not None and turn.pin == pin
    if fold is not None and pinned:
        answer = outgoing(tx, deps, request, session, live, fold, factor)
        if answer is not None:
            tx.turns.put(turn)
            return answer
    folder = Folder(tx, deps, session, scope, pin, lineage, window.key, factor)
    previous = _previous(tx, session, turn)
    cause = "fit" if pinned else None
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
    news = news_text(lines, recalled, session, pin, fold, deps.clock.now_ms())
    live = replace(live, turn=replace(turn, pin=pin, fold_id=fold.fold_id, news=news))
    tx.turns.put(live.turn)
    answer = outgoing(tx, deps, request, session, live, fold, factor)
    if answer is None:
        raise NotReady(
            f"the memory of {session.title or request.session.id} does not fit beside the live "
            f"turn in {request.model.id}; the request was not sent and nothing is lost.",
            hint="try again when `optchat status` shows no pending jobs, use a model with a larger "
            "window, or set memory.readiness to partial",
        )
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
    fold = tx.folds.fold(previous.fold_id)
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
    memory_tokens = fold_tokens(fold, room.factor)
    told = sum(t.news_tokens for t in kept if t.turn.fold_id == fold.fold_id)
    news_tokens = int((told + text_tokens("".join(lines)) + NEWS_FRAME_TOKENS) * room.factor)
    native_tokens = sum(t.tokens for t in kept)
    if memory_tokens + news_tokens + native_tokens > room.available(reserve=True):
        return fold, "tail"
    return fold, None


def _previous(tx: Tx, session: Session, turn: Turn) -> Turn | None:
    """The last turn before this one that was admitted with memory."""
    before = [
        t
        for t in tx.turns.of_session(session.session_id)
        if t.generation == session.generation
        and t.turn_id != turn.turn_id
        and t.start_seq <= turn.start_seq
        and t.pin is not None
    ]
    return before[-1] if before else None
