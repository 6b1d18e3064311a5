"""A subagent's request: left as it is, or with the shared view of its parent's turn (§12)."""

from __future__ import annotations

from optchat.core import context
from optchat.core.budget import text_tokens, usable_tokens
from optchat.core.tree import ScopeTree
from optchat.core.views import project
from optchat.engine.deps import Deps
from optchat.engine.forest import Forest
from optchat.engine.pins import is_valid
from optchat.engine.sessions import open_turn, require_scope
from optchat.engine.sizes import message_tokens, native, overhead_tokens, window_of
from optchat.refs import Csn
from optchat.storage.ports import Tx
from optchat.wire import AssembleRequest, AssembleResponse


def subagent(tx: Tx, deps: Deps, request: AssembleRequest, factor: float) -> AssembleResponse:
    """The answer for a session with a parent; its transcript is the parent's business.

    Off by default. When it is on, the shared view stands before the subagent's own messages, as of
    the parent's pinned snapshot, so that every call of the parent's turn gets the same bytes. A
    view that does not fit is left out: a subagent's task does not hang on it.
    """
    parent_id = request.session.parent_id
    if parent_id is None or not deps.config.memory.subagent_view:
        return native()
    parent = tx.sessions.session_of_host(request.session.host, parent_id)
    turn = open_turn(tx, parent) if parent is not None and parent.disabled is None else None
    if parent is None or turn is None or turn.pin is None or parent.isolated:
        return native()
    if not is_valid(turn.pin, require_scope(tx, parent.scope_id), parent):
        return native()
    usable = usable_tokens(window_of(request))
    forest = Forest(tx, ScopeTree(turn.pin.scope_id), csn=Csn(turn.pin.csn))
    view = tx.trees.view(forest.tree, Csn(turn.pin.csn))
    # A part of the window and not of what is left, or the view would change as the task goes on.
    budget = int(usable * deps.config.memory.shared_part / 2 / factor)
    entries = project(view, forest.entry, budget_tokens=budget)
    if entries is None or view.covered != turn.pin.publication_end:
        return native()
    shared = context.base_shared(forest.lines(entries), publication_end=view.covered)
    base = shared + context.base_own((), session="", boundary=0, notice=None)
    estimated = (
        overhead_tokens(request, usable, factor)
        + int(text_tokens(base) * factor)
        + sum(message_tokens(m, factor) for m in request.shape)
    )
    if estimated > usable:
        return native()
    placement = deps.config.placement
    return AssembleResponse(
        state="ready",
        base=base,
        placement=placement.providers.get(request.model.provider, placement.default),
        turn=turn.turn_id,
        estimated_tokens=estimated,
        limit_tokens=usable,
    )
