"""What the host's own compaction is given to summarise, so that it fits and is all there (§13)."""

from __future__ import annotations

from optchat.core import context
from optchat.engine.sizes import native
from optchat.engine.tail import applied, places_of
from optchat.storage.ports import Tx
from optchat.wire import AssembleRequest, AssembleResponse, CheckpointText


def compaction(tx: Tx, request: AssembleRequest) -> AssembleResponse:
    """The session's earlier history as its last turn had it, in the place of those messages.

    Nothing of other sessions goes in: the host stores its summary with this one. The summary is the
    host's; no record comes of it and no request of ours holds it.
    """
    session = tx.sessions.session_of_host(request.session.host, request.session.id)
    if session is None or session.disabled is not None:
        return native()
    turn = tx.turns.last_pinned(session.session_id, session.generation)
    fold = tx.folds.fold(turn.fold_id) if turn is not None and turn.fold_id else None
    if fold is None or fold.generation != session.generation:
        return native()
    places = places_of(request)
    first = places.get(fold.first_turn_key)
    if first is None:
        return native()
    folded = tx.turns.folded(session.session_id, session.generation)
    told = [c for t in folded for c in applied(t, places) if places[c.after] >= first]
    return AssembleResponse(
        state="ready",
        base=context.own_alone(fold.own_text) if fold.boundary else "",
        placement="message",
        keep_from=request.shape[first].id if fold.boundary else None,
        checkpoints=[CheckpointText(after=c.after, until=c.until, text=c.text) for c in told],
    )
