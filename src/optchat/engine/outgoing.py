"""What a request carries, from descriptors alone: nothing is decided here (§6, §7).

A turn's fold, its news and its checkpoints are stored texts; they are repeated byte for byte.
"""

from __future__ import annotations

from optchat.core.budget import text_tokens, usable_tokens
from optchat.core.records import Fold, Session
from optchat.engine.deps import Deps
from optchat.engine.sizes import message_tokens, overhead_tokens, window_of
from optchat.engine.tail import Live, applied, checkpoint_tokens, left_out, places_of
from optchat.storage.ports import Tx
from optchat.wire import AssembleRequest, AssembleResponse, CheckpointText, NewsText


def fold_tokens(fold: Fold, factor: float) -> int:
    """What both parts of a fold's base take in a request."""
    return int((text_tokens(fold.shared_text) + text_tokens(fold.own_text)) * factor)


def outgoing(
    tx: Tx,
    deps: Deps,
    request: AssembleRequest,
    session: Session,
    live: Live,
    fold: Fold,
    factor: float,
) -> AssembleResponse | None:
    """The response from the descriptors alone; None if it would not be whole or fit (§7)."""
    turn, places = live.turn, places_of(request)
    keep_from = fold.first_turn_key if fold.first_turn_key in places else None
    if keep_from is None and fold.first_turn_key != turn.key:
        return None  # the host left out (it compacted) what the tail should begin with
    if not live.whole:
        return None
    first = places[fold.first_turn_key] if keep_from is not None else 0
    folded = tx.turns.folded(session.session_id, session.generation)
    earlier = [c for t in folded if t.turn_id != turn.turn_id for c in applied(t, places)]
    told = [c for c in (*earlier, *live.checkpoints) if places[c.after] >= first]
    skipped = left_out(told, places)
    kept = [m for at, m in enumerate(request.shape) if at >= first and at not in skipped]
    present = {m.id for m in kept}
    shown = [
        t
        for t in tx.turns.of_fold(session.session_id, fold.fold_id)
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
        + fold_tokens(fold, factor)
        + sum(int(text_tokens(t.news) * factor) for t in shown)
        + sum(message_tokens(m, factor) for m in kept)
        + checkpoint_tokens(told, factor)
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
        checkpoints=[CheckpointText(after=c.after, until=c.until, text=c.text) for c in told],
        notice=None if fold.coverage == "complete" else f"memory is partial: {fold.coverage}",
        turn=turn.turn_id,
        estimated_tokens=estimated,
        limit_tokens=usable,
    )
