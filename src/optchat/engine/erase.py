"""Taking sources out with their bytes: leaves become tombstones, what stands over them is remade.

The other half of ``lifecycle``, which only ends what open snapshots may still read. Here nothing is
kept for them: every revision of a node goes, whatever was rendered of the scope goes, and the
scope's retention epoch moves, so that an older snapshot is refused instead of served (§12, I8).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from optchat.core.publications import Publication
from optchat.core.records import Generation, Segment
from optchat.core.tree import ScopeTree, SessionTree, Tree, ancestors
from optchat.engine.deps import Deps
from optchat.engine.forest import Forest
from optchat.engine.lifecycle import bury, next_revision, without
from optchat.engine.nodes import enqueue_node, is_unmade, node_target, stand_in_again
from optchat.engine.sessions import lineage, require_scope
from optchat.refs import BlobHash, Csn, ScopeId, SessionId, Span
from optchat.storage.ports import JobKind, Tx


@dataclass(slots=True)
class Counts:
    """What went, as it is told to the person."""

    sessions: int = 0
    turns: int = 0
    records: int = 0
    payloads: int = 0
    publications: int = 0
    summaries: int = 0
    rendered: int = 0
    jobs: int = 0
    payload_hashes: set[BlobHash] = field(default_factory=set[BlobHash])

    def told(self) -> dict[str, int]:
        return {
            "sessions": self.sessions,
            "turns": self.turns,
            "records": self.records,
            "payloads": self.payloads,
            "publications": self.publications,
            "summaries": self.summaries,
            "rendered": self.rendered,
            "jobs": self.jobs,
        }


def withdraw(
    tx: Tx, deps: Deps, publications: Collection[Publication], counts: Counts | None = None
) -> None:
    """Take publications out of their scopes with their bytes (§12).

    A number stays taken: its leaf is a contentless tombstone, its ancestors are made again from
    what is left, and meanwhile the view shows the finer nodes below them. Everything that was
    rendered of the scope goes, in whatever session, and the scope's retention epoch moves.
    """
    counts = counts if counts is not None else Counts()
    for scope_id in sorted({p.scope_id for p in publications}):
        numbers = sorted(p.seq for p in publications if p.scope_id == scope_id)
        for seq in numbers:
            tx.publications.remove(scope_id, seq)
        counts.publications += len(numbers)
        forest = Forest(tx, ScopeTree(scope_id))
        length = require_scope(tx, scope_id).publications
        csn = tx.meta.next_csn()
        tombs = [Span(seq, 1) for seq in numbers]
        for leaf in tombs:
            counts.summaries += _remove_node(tx, forest.tree, leaf, csn)
        _make_again(tx, deps, forest, tombs, length, csn, counts, set())
        move_epoch(tx, scope_id, counts)


def erase_records(tx: Tx, deps: Deps, pieces: Iterable[Segment], counts: Counts) -> None:
    """Take own records out of session trees; their positions stay taken by tombstones.

    Every generation that has one of them in its history, a fork's too, loses what was made of them
    and gets it again from what is left.
    """
    csn = tx.meta.next_csn()
    for tree, spans in _by_tree(pieces).items():
        for start, end in spans:
            payloads = tx.records.remove(tree, start, end)
            counts.records += len(payloads)
            counts.payload_hashes.update(payloads)
            for seq in range(start, end):
                counts.jobs += tx.jobs.remove(JobKind.NODE, node_target(tree, Span(seq, 1)))
                counts.summaries += _remove_node(tx, tree, Span(seq, 1), csn)
        leaves = [Span(seq, 1) for start, end in spans for seq in range(start, end)]
        done = set[tuple[Tree, Span]]()
        for generation in heirs(tx, tree):
            session = tx.sessions.session(generation.session_id)
            history = lineage(tx, generation.tree)
            inherited = [s for s in leaves if any(_holds(p, tree, s) for p in history.segments)]
            if session is not None and inherited:
                forest = Forest(tx, generation.tree, number=session.number, lineage=history)
                _make_again(tx, deps, forest, inherited, history.length, csn, counts, done)


def heirs(tx: Tx, tree: SessionTree) -> Iterator[Generation]:
    """The generation of ``tree`` and all that begin with its history, bases first."""
    own = tx.sessions.generation(tree.session_id, tree.generation)
    pending = [own] if own is not None else []
    while pending:
        generation = pending.pop(0)
        yield generation
        pending += tx.sessions.derived(generation.tree)


def move_epoch(tx: Tx, scope_id: ScopeId, counts: Counts) -> None:
    """Make every older snapshot of a scope invalid, and remove what was rendered under one."""
    scope = require_scope(tx, scope_id)
    tx.sessions.put_scope(replace(scope, retention_epoch=scope.retention_epoch + 1))
    counts.rendered += tx.folds.remove_rendered(scope_id)


def _remove_node(tx: Tx, tree: Tree, leaf: Span, csn: Csn) -> int:
    """Put a tombstone in the place of a leaf; how many revisions it had."""
    revision = tx.trees.last_revision(tree, leaf)
    removed = tx.trees.remove_node(tree, leaf)
    bury(tx, tree, leaf, csn, revision=revision + 1)
    return removed


def _make_again(
    tx: Tx,
    deps: Deps,
    forest: Forest,
    leaves: Collection[Span],
    length: int,
    csn: Csn,
    counts: Counts,
    done: set[tuple[Tree, Span]],
) -> None:
    """Remove what stands over the leaves, schedule it anew, and show what is finer meanwhile."""
    stale = {above for leaf in leaves for above in ancestors(leaf, length)}
    for span in sorted(stale, key=lambda s: (s.count, s.start)):
        tree = forest.owner(span)
        if (tree, span) in done or is_unmade(tx, tree, span):
            continue
        done.add((tree, span))
        revision = next_revision(tx, tree, span)
        counts.summaries += tx.trees.remove_node(tree, span)
        counts.jobs += tx.jobs.remove(JobKind.NODE, node_target(tree, span))
        if stand_in_again(tx, forest, span, csn, revision=revision):
            continue
        waits = tuple(
            (forest.owner(child), child) for child in span.children if forest.node(child) is None
        )
        session_id, scope_id = _home(tx, tree)
        enqueue_node(tx, deps, tree, span, session_id, scope_id, waits_for=waits, revision=revision)
    view = tx.trees.view(forest.tree)
    finer = without(view, {*leaves, *stale}, forest)
    if finer is not view:
        tx.trees.put_view(forest.tree, finer, csn)
    tx.trees.prune_views(forest.tree, ())


def _home(tx: Tx, tree: Tree) -> tuple[SessionId | None, ScopeId]:
    """Whose jobs a tree's are."""
    if isinstance(tree, ScopeTree):
        return None, tree.scope_id
    session = tx.sessions.session(tree.session_id)
    assert session is not None, "a tree outlives its session only under another's name"
    return session.session_id, session.scope_id


def _holds(piece: Segment, tree: SessionTree, leaf: Span) -> bool:
    return piece.tree == tree and piece.start <= leaf.start < piece.end_exclusive


def _by_tree(pieces: Iterable[Segment]) -> dict[SessionTree, list[tuple[int, int]]]:
    """Disjoint ranges of each tree, in order."""
    seqs: dict[SessionTree, set[int]] = {}
    for piece in pieces:
        seqs.setdefault(piece.tree, set()).update(range(piece.start, piece.end_exclusive))
    found: dict[SessionTree, list[tuple[int, int]]] = {}
    for tree, members in seqs.items():
        ranges = found.setdefault(tree, [])
        for seq in sorted(members):
            if ranges and ranges[-1][1] == seq:
                ranges[-1] = (ranges[-1][0], seq + 1)
            else:
                ranges.append((seq, seq + 1))
    return found
