"""When a history is no append: new generations, and retiring what they supersede (§12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

import msgspec

from optchat.core.publications import Publication
from optchat.core.records import Generation, HostMessage, Session, Turn
from optchat.core.scopes import is_isolated
from optchat.core.tree import Node, NodeKind, ScopeTree, SessionTree, Tree, ancestors
from optchat.core.views import View, clip, replaced
from optchat.engine.deps import Deps
from optchat.engine.forest import Forest
from optchat.engine.keys import kept_digest
from optchat.engine.nodes import (
    RETIRED_LABEL,
    RETIRED_TEXT,
    commit,
    digest,
    enqueue_node,
    node_target,
    stand_in_again,
)
from optchat.engine.sessions import lineage, own_lineage, require_scope, scope_for
from optchat.engine.tombstones import NO_DIGEST, message_key
from optchat.errors import IntegrityError
from optchat.refs import Csn, ScopeId, Span, TurnId
from optchat.storage.ports import JobKind, Tx
from optchat.wire import MessageInfo, SessionInfo, SyncRequest


def branch(
    tx: Tx, deps: Deps, session: Session, stored: Sequence[HostMessage], position: int
) -> Session:
    """Begin a generation that keeps the messages before ``position`` and none after.

    What is kept is the base's: no record, node or summary of it is made again. A turn that is cut
    in the middle goes on as an open turn of the new generation. Publications of superseded ranges
    are retired; snapshots that are pinned already keep seeing them until their turn ends.
    """
    history = own_lineage(tx, session)
    kept = stored[position].start_seq if position < len(stored) else history.length
    number = tx.sessions.generations(session.session_id)[-1].number + 1
    tx.sessions.put_generation(
        Generation(
            session_id=session.session_id,
            number=number,
            base=SessionTree(session.session_id, session.generation),
            inherited=kept,
            length=kept,
        )
    )
    moved = replace(session, generation=number)
    tx.sessions.put_session(moved)
    tx.membership.truncate(session.session_id, position)
    superseded = [
        t for t in tx.turns.of_session(session.session_id) if not is_current(tx, moved, t)
    ]
    found = (tx.publications.of_turn(t.turn_id) for t in superseded)
    published = [p for p in found if p is not None]
    for scope_id in sorted({p.scope_id for p in published}):
        retire(tx, deps, scope_id, [p for p in published if p.scope_id == scope_id])
    _reopen(tx, deps, moved, stored[:position], superseded, kept)
    return moved


def cut(tx: Tx, deps: Deps, session: Session, there: Sequence[str]) -> None:
    """Take back what was said from the first message on that its host has no more.

    ``there`` are the ids of the messages that it has, in order: what of them says something else by
    now, or comes after that place, is for the next reading to tell.
    """
    stored = tx.membership.messages(session.session_id)
    for position, message in enumerate(stored):
        if position >= len(there) or message.message_id != there[position]:
            branch(tx, deps, session, stored, position)
            return


def fork(tx: Tx, deps: Deps, child: Session, request: SyncRequest) -> Session:
    """Let a session that is new here begin with what it has in common with its origin (§12).

    The first messages whose content is the origin's, in order, become its inherited prefix: no
    record, node or summary of them is made again, and none of their turns is published again. What
    the origin does later is foreign to it. What a person chose about sharing the origin holds for
    the fork, which has its words. Without a known origin, or once the session holds something, this
    does nothing. A number of statements that does not grow with the prefix.
    """
    origin_id = request.session.fork_of
    if origin_id is None or child.generation:
        return child
    if own_lineage(tx, child).length or tx.membership.messages(child.session_id):
        return child
    origin = tx.sessions.session_of_host(child.host, origin_id)
    if origin is None or origin.disabled is not None or origin.session_id == child.session_id:
        return child
    stored = tx.membership.messages(origin.session_id)
    pairs = zip(stored, request.messages, strict=False)
    common = list(takewhile(lambda pair: _is_copy(request.session, *pair), pairs))
    if not common:
        return child
    if origin.sharing is not None:
        child = replace(child, sharing=origin.sharing)
        tx.sessions.put_session(child)
    kept = common[-1][0].end_seq_exclusive
    base = SessionTree(origin.session_id, origin.generation)
    tx.sessions.put_generation(
        Generation(session_id=child.session_id, number=0, base=base, inherited=kept, length=kept)
    )
    turns = _copied_turns(tx, deps, child, common, kept)
    tx.turns.put_many(list(turns.values()))
    tx.membership.put_many(
        [
            msgspec.structs.replace(
                ours,
                session_id=child.session_id,
                message_id=theirs.id,
                turn_id=turns[ours.turn_id].turn_id if ours.turn_id in turns else TurnId(""),
            )
            for ours, theirs in common
        ]
    )
    for ours, theirs in common:
        if ours.digest == NO_DIGEST:  # forgotten in the origin: the host's copy stays so as well
            tx.removals.bury(message_key(child.host, child.host_session, theirs.id))
    _inherit_view(tx, child, base, kept)
    return child


def _is_copy(info: SessionInfo, ours: HostMessage, theirs: MessageInfo) -> bool:
    """Whether a message is one of the origin's; of a forgotten one, only that it was copied."""
    if ours.digest == NO_DIGEST:
        return theirs.created_ms < info.created_ms
    return ours.digest == kept_digest(theirs.digest)


def _copied_turns(
    tx: Tx, deps: Deps, child: Session, common: Sequence[tuple[HostMessage, MessageInfo]], kept: int
) -> dict[TurnId, Turn]:
    """The child's own rows of the turns that it inherits, by the origin's turn id.

    A turn that the cut went through goes on in the child. A turn's pin, fold and news are of the
    origin's requests and stay with it.
    """
    opened_by: dict[TurnId, str] = {}
    for ours, theirs in common:
        opened_by.setdefault(ours.turn_id, theirs.id)
    found: dict[TurnId, Turn] = {}
    for turn in tx.turns.of_session(common[0][0].session_id):
        if turn.turn_id not in opened_by:
            continue
        whole = turn.end_seq_exclusive is not None and turn.end_seq_exclusive <= kept
        found[turn.turn_id] = Turn(
            turn_id=TurnId(deps.ids.new_id()),
            session_id=child.session_id,
            generation=0,
            key=opened_by[turn.turn_id],
            start_seq=turn.start_seq,
            opened_ms=turn.opened_ms,
            end_seq_exclusive=turn.end_seq_exclusive if whole else None,
            scope_id=None if whole or is_isolated(scope_for(tx, deps, child)) else child.scope_id,
            outcome=turn.outcome if whole else None,
            closed_ms=turn.closed_ms if whole else None,
        )
    return found


def _inherit_view(tx: Tx, child: Session, base: SessionTree, kept: int) -> None:
    """The origin's frontier up to the cut, its lines measured under the child's refs."""
    view = tx.trees.view(base)
    history = own_lineage(tx, child)
    forest = Forest(tx, SessionTree(child.session_id, 0), number=child.number, lineage=history)
    entries = clip(view, kept, forest.entry) if view.covered > kept else view.entries
    if not entries:
        return
    measured = tuple(forest.entry_of(node) for node in forest.nodes(entries))
    inherited = View(revision=1, entries=measured, shrinking=view.shrinking)
    tx.trees.put_view(forest.tree, inherited, tx.meta.next_csn())


def is_current(tx: Tx, session: Session, turn: Turn) -> bool:
    """Whether a turn's records are still those of the session's history as it is now."""
    end = turn.end_seq_exclusive
    if end is None:
        return turn.generation == session.generation
    now = own_lineage(tx, session).owners(turn.start_seq, end)
    then = lineage(tx, SessionTree(turn.session_id, turn.generation)).owners(turn.start_seq, end)
    return now == then


def _reopen(
    tx: Tx,
    deps: Deps,
    session: Session,
    kept_messages: Sequence[HostMessage],
    superseded: Sequence[Turn],
    kept: int,
) -> None:
    """Let the turn that the cut went through continue in the new generation."""
    if not kept_messages:
        return
    last = kept_messages[-1].turn_id
    cut = next((t for t in superseded if t.turn_id == last and t.start_seq < kept), None)
    if cut is None:
        return
    turn = Turn(
        turn_id=TurnId(deps.ids.new_id()),
        session_id=session.session_id,
        generation=session.generation,
        key=cut.key,
        start_seq=cut.start_seq,
        opened_ms=cut.opened_ms,
        scope_id=cut.scope_id,
    )
    tx.turns.put(turn)
    for message in kept_messages:
        if message.turn_id == last:
            tx.membership.put(msgspec.structs.replace(message, turn_id=turn.turn_id))


def retire(tx: Tx, deps: Deps, scope_id: ScopeId, publications: Sequence[Publication]) -> None:
    """Take publications out of every later snapshot (§12).

    A number stays taken: its leaf becomes a contentless tombstone, its ancestors are made again
    from what is left, and meanwhile the view shows the finer nodes below them.
    """
    if not publications:
        return
    scope = require_scope(tx, scope_id)
    tree = ScopeTree(scope_id)
    csn = tx.meta.next_csn()
    stale: set[Span] = set()
    for publication in publications:
        leaf = Span(publication.seq, 1)
        tx.publications.retire(scope_id, publication.seq, csn)
        revision = tx.trees.last_revision(tree, leaf)
        tx.trees.retire_node(tree, leaf, csn)
        bury(tx, tree, leaf, csn, revision=revision + 1)
        stale.update(ancestors(leaf, scope.publications))
    forest = Forest(tx, tree)
    for span in sorted(stale, key=lambda s: s.count):
        revision = next_revision(tx, tree, span)
        tx.trees.retire_node(tree, span, csn)
        if stand_in_again(tx, forest, span, csn, revision=revision):
            continue
        waits = tuple((tree, child) for child in span.children if forest.node(child) is None)
        enqueue_node(tx, deps, tree, span, None, scope_id, waits_for=waits, revision=revision)
    gone = {Span(p.seq, 1) for p in publications} | stale
    view = tx.trees.view(tree)
    finer = without(view, gone, Forest(tx, tree))
    if finer is not view:
        tx.trees.put_view(tree, finer, csn)


def next_revision(tx: Tx, tree: Tree, span: Span) -> int:
    """A revision that no node has had and no job is to make.

    A job that runs now drops what it made of the old input.
    """
    job = tx.jobs.of_target(JobKind.NODE, node_target(tree, span))
    asked = int(job.input_hash.removeprefix("r")) if job is not None else 0
    return max(tx.trees.last_revision(tree, span), asked) + 1


def bury(tx: Tx, tree: Tree, leaf: Span, csn: Csn, *, revision: int) -> None:
    """Put the contentless tombstone that keeps a leaf's position."""
    commit(
        tx,
        Node(
            tree=tree,
            span=leaf,
            revision=revision,
            kind=NodeKind.FALLBACK,
            label=RETIRED_LABEL,
            text=RETIRED_TEXT,
            input_hash=digest(RETIRED_LABEL, str(leaf)),
            model="none",
            prompt_version="none",
            born=csn,
        ),
    )


def without(view: View, gone: set[Span], forest: Forest) -> View:
    """The view with finer nodes in the place of those that are gone; one revision further."""
    current = view
    for entry in view.entries:
        if entry.span not in gone:
            continue
        finer = forest.covering(entry.span)
        if finer is None:
            raise IntegrityError(f"a line below {forest.ref(entry.span)} is gone.")
        current = replaced(current, entry.span, finer)
    return current if current is view else replace(current, revision=view.revision + 1)
