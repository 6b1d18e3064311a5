"""Forgetting the frontiers and folds that nothing can show any more (§6, §9).

Each fold and each advance of a view leaves its predecessor behind. What is still read is the newest
view of each tree, the shared view that an open turn is pinned to, and the folds of a session's last
two turns: the one that goes on, and the one before, from which the next turn decides. Nodes,
publications and records are never pruned.
"""

from __future__ import annotations

from optchat.core.records import Session, Turn
from optchat.core.scopes import Scope
from optchat.core.tree import ScopeTree
from optchat.refs import Csn
from optchat.storage.ports import Tx

FOLDED_TURNS_KEPT = 2


def prune(tx: Tx, scope: Scope) -> int:
    """Prune one scope; how many view revisions and folds went."""
    pins: list[Csn] = []
    gone = 0
    for session in tx.sessions.sessions(scope.scope_id):
        pinned = _pinned(tx, session)
        pins += [Csn(t.pin.csn) for t in pinned if t.pin is not None and t.outcome is None]
        kept = {t.fold_id for t in pinned[-FOLDED_TURNS_KEPT:] if t.fold_id is not None}
        gone += tx.folds.prune(session.session_id, kept)
        for generation in tx.sessions.generations(session.session_id):
            # An own view is read as it is now, and clipped to the turn's boundary.
            gone += tx.trees.prune_views(generation.tree, ())
    return gone + tx.trees.prune_views(ScopeTree(scope.scope_id), pins)


def _pinned(tx: Tx, session: Session) -> list[Turn]:
    """The turns of the current generation that were admitted with memory, in order."""
    turns = tx.turns.of_session(session.session_id)
    return [t for t in turns if t.generation == session.generation and t.pin is not None]
