"""A session's scope: settled as each turn begins, taken back at once (§11, §12).

A turn belongs to the scope that its session was in when it opened, and is published nowhere else.
What was shared stays where it was when its session moves on; what is isolated is withdrawn.
"""

from __future__ import annotations

from dataclasses import replace

from optchat.core.publications import Publication
from optchat.core.records import Session
from optchat.core.scopes import is_isolated
from optchat.core.tree import SessionTree
from optchat.engine.deps import Deps
from optchat.engine.erase import withdraw
from optchat.engine.forest import Forest
from optchat.engine.sessions import enter, own_lineage, require_scope, scope_for
from optchat.errors import BadInput
from optchat.refs import ScopeId
from optchat.storage.ports import Tx


def settle(tx: Tx, deps: Deps, session: Session) -> Session:
    """The session in the scope where it belongs now; called as a turn opens, and only then.

    Snapshots that it pinned in another scope are refused from here on.
    """
    scope_id = scope_for(tx, deps, session)
    if scope_id == session.scope_id:
        return session
    if is_isolated(scope_id):
        revoke(tx, deps, session)
    moved = enter(tx, session, scope_id)
    if not _known_by(tx, session.scope_id, session):
        tx.sessions.leave_scope(session.scope_id, session.session_id)
    _measure_again(tx, moved)
    return moved


def published_in(tx: Tx, deps: Deps, session: Session) -> ScopeId | None:
    """Where a turn that opens now is to be published, if anywhere."""
    return None if is_isolated(scope_for(tx, deps, session)) else session.scope_id


def choose(tx: Tx, deps: Deps, session: Session, sharing: str | None) -> int:
    """Have a session share as a person decides, from its next turn on; None: by the rules again.

    What an isolated session has published is withdrawn at once, its running turn is not published,
    and the same holds for its subagents.

    Returns:
        How many publications were withdrawn.

    Raises:
        BadInput: it is a subagent's, or there is no such profile; nothing is changed.
    """
    if session.parent_host_session is not None:
        raise BadInput(
            "a subagent's conversation shares as its parent does; nothing was changed.",
            hint="name the parent, as optchat sessions lists it",
        )
    if sharing not in {None, "isolated", "project", *deps.config.sharing.profiles}:
        raise BadInput(
            f"there is no profile {str(sharing)[:80]!r}; nothing was changed.",
            hint="name one of [sharing.profiles] in config.toml, then: optchat stop",
        )
    chosen = replace(session, sharing=sharing)
    tx.sessions.put_session(chosen)
    return revoke(tx, deps, chosen) if is_isolated(scope_for(tx, deps, chosen)) else 0


def revoke_isolated(tx: Tx, deps: Deps) -> int:
    """Withdraw what sessions have shared that the rules isolate by now; at every start."""
    return sum(
        revoke(tx, deps, session)
        for scope in tx.sessions.scopes()
        if not is_isolated(scope.scope_id)
        for session in tx.sessions.sessions(scope.scope_id)
        if is_isolated(scope_for(tx, deps, session))
    )


def revoke(tx: Tx, deps: Deps, session: Session) -> int:
    """Take back all that a session and its subagents share, published already or not.

    Returns:
        How many publications were withdrawn.
    """
    withdrawn: list[Publication] = []
    for turn in tx.turns.of_session(session.session_id):
        if turn.scope_id is None:
            continue
        withdrawn += tx.publications.of_turn_ever(turn.turn_id)
        tx.turns.put(replace(turn, scope_id=None))
    withdraw(tx, deps, withdrawn)
    for scope_id in sorted({p.scope_id for p in withdrawn}):
        scope = require_scope(tx, scope_id)
        tx.sessions.put_scope(replace(scope, policy_revision=scope.policy_revision + 1))
    for scope_id in tx.sessions.scopes_of(session.session_id):
        if scope_id != session.scope_id:
            tx.sessions.leave_scope(scope_id, session.session_id)
    children = tx.sessions.children(session.host, session.host_session)
    live = sum(p.died is None for p in withdrawn)
    return live + sum(revoke(tx, deps, child) for child in children)


def _known_by(tx: Tx, scope_id: ScopeId, session: Session) -> bool:
    """Whether a scope still shows something of a session, or will once it is summarised."""
    return any(turn.scope_id == scope_id for turn in tx.turns.of_session(session.session_id))


def _measure_again(tx: Tx, session: Session) -> None:
    """The session's own view with its lines as long as its new number makes them (I10)."""
    tree = SessionTree(session.session_id, session.generation)
    view = tx.trees.view(tree)
    if not view.entries:
        return
    forest = Forest(tx, tree, number=session.number, lineage=own_lineage(tx, session))
    measured = tuple(forest.entry_of(node) for node in forest.nodes(view.entries))
    tx.trees.put_view(
        tree, replace(view, entries=measured, revision=view.revision + 1), tx.meta.next_csn()
    )
