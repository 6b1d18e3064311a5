"""Making what can be made again: lost summaries, views that name them, turns nobody published.

A lost node comes back as a new revision, since nobody can say that the text will be the same (§4).
No original and no record is touched.
"""

from __future__ import annotations

from dataclasses import replace

from optchat.core.records import Session
from optchat.core.scopes import Scope
from optchat.core.tree import ScopeTree, SessionTree, Tree, parse_tree
from optchat.core.views import Entry
from optchat.engine.check import Found, check_scope, check_session
from optchat.engine.deps import Deps
from optchat.engine.forest import Forest
from optchat.engine.lifecycle import bury, next_revision
from optchat.engine.nodes import enqueue_node
from optchat.engine.publish import advance_shared_view, schedule_publication
from optchat.engine.sessions import lineage, require_scope
from optchat.refs import ScopeId, SessionId, Span, TurnId
from optchat.storage.ports import JobKind, Tx


def repair_session(tx: Tx, deps: Deps, session: Session) -> list[str]:
    """Schedule and mend what is lost of one session; a sentence for each thing done."""
    found = check_session(tx, session, verify=lambda: False)
    return _repair(tx, deps, found, session.scope_id, session.session_id)


def repair_scope(tx: Tx, deps: Deps, scope: Scope) -> list[str]:
    """The same for what a scope shares."""
    return _repair(tx, deps, check_scope(tx, scope), scope.scope_id, None)


def _repair(
    tx: Tx, deps: Deps, found: Found, scope_id: ScopeId, session_id: SessionId | None
) -> list[str]:
    for forest, span in found.lost:
        _make_again(tx, deps, forest, span, scope_id, session_id)
    for job in found.stuck:
        for name, span in tx.jobs.waits(job.job_id):
            tx.jobs.resolve(parse_tree(name), span)
    for forest in found.views:
        _mend_view(tx, deps, Forest(tx, forest.tree, number=forest.number, lineage=forest.lineage))
    for turn in found.unpublished:
        _publish_again(tx, deps, turn.turn_id, turn.session_id)
    done = (
        (len(found.lost), "lost summaries are queued to be made again"),
        (len(found.stuck), "summaries no longer wait for what is there"),
        (len(found.views), "views were mended"),
        (len(found.unpublished), "turns are queued to be published"),
    )
    return [f"{count} {what}" for count, what in done if count]


def _make_again(
    tx: Tx,
    deps: Deps,
    forest: Forest,
    span: Span,
    scope_id: ScopeId,
    session_id: SessionId | None,
) -> None:
    tree: Tree = forest.owner(span)
    if isinstance(tree, ScopeTree) and span.count == 1:
        publication = tx.publications.publication(scope_id, span.start)
        if publication is not None and publication.died is not None:
            revision = tx.trees.last_revision(tree, span) + 1
            bury(tx, tree, span, tx.meta.next_csn(), revision=revision)
        elif publication is not None:
            _publish_again(tx, deps, publication.turn_id, publication.session_id)
        return
    children = span.children if span.count > 1 else ()
    waits = tuple((forest.owner(c), c) for c in children if forest.node(c) is None)
    revision = next_revision(tx, tree, span)
    enqueue_node(tx, deps, tree, span, session_id, scope_id, waits_for=waits, revision=revision)


def _publish_again(tx: Tx, deps: Deps, turn_id: TurnId, session_id: SessionId) -> None:
    """Queue a turn's summary once more; the compactor publishes it or gives its leaf back."""
    turn = tx.turns.turn(turn_id)
    if turn is None or turn.end_seq_exclusive is None:
        return  # there is nothing left to make it from; the check goes on naming it
    before = tx.jobs.of_target(JobKind.TURN, turn_id)
    asked = int(before.input_hash.removeprefix("r")) if before is not None else 0
    history = lineage(tx, SessionTree(session_id, turn.generation))
    schedule_publication(tx, deps, turn, history=history, revision=asked + 1)


def _mend_view(tx: Tx, deps: Deps, forest: Forest) -> None:
    """A new revision of the frontier out of the nodes that are there.

    It ends before the first leaf that is missing, and goes on from there once the leaf is back.
    """
    view = tx.trees.view(forest.tree)
    entries: list[Entry] = []
    at = 0
    for entry in view.entries:
        if entry.span.start != at or not forest.holds(entry.span):
            break
        owner = forest.owner(entry.span)
        if tx.trees.node_revision(owner, entry.span, entry.revision) is not None:
            entries.append(entry)
        else:
            finer = forest.covering(entry.span)
            if finer is None:
                break
            entries += finer
        at = entry.span.end_exclusive
    mended = replace(view, revision=view.revision + 1, entries=tuple(entries))
    tx.trees.put_view(forest.tree, mended, tx.meta.next_csn())
    if isinstance(forest.tree, ScopeTree):
        scope = require_scope(tx, forest.tree.scope_id)
        advance_shared_view(tx, deps, Forest(tx, ScopeTree(scope.scope_id)), scope.publications)
