"""Making summaries anew under another model or prompt, as new revisions (§4).

A snapshot that is open keeps the revision that it saw; views name the new one from its commit on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optchat.core.tree import Node, NodeKind, ScopeTree, SessionTree, Tree, ancestors
from optchat.engine.deps import Deps
from optchat.engine.nodes import node_target
from optchat.engine.sessions import generation_of, require_scope
from optchat.refs import ScopeId, SessionId, Span
from optchat.storage.ports import Job, JobKind, JobState, Tx


@dataclass(frozen=True, slots=True)
class Stale:
    """The live nodes of one tree that are to be made again, shorter spans first."""

    tree: Tree
    nodes: tuple[Node, ...]


def stale_of(
    tx: Tx, trees: Sequence[Tree], *, model: str | None, prompt_version: str
) -> list[Stale]:
    """What another model or prompt made in these trees, and what stands over it."""
    found: list[Stale] = []
    for tree in trees:
        old = tx.trees.made_otherwise(tree, model, prompt_version)
        nodes = {n.span: n for n in old}
        length = _length(tx, tree)
        for node in old:
            for above in ancestors(node.span, length):
                over = tx.trees.node(tree, above)
                if over is not None and over.kind is not NodeKind.VERBATIM:
                    nodes.setdefault(above, over)
        if nodes:
            ordered = sorted(nodes.values(), key=lambda n: (n.span.count, n.span.start))
            found.append(Stale(tree, tuple(ordered)))
    return found


def enqueue(
    tx: Tx, deps: Deps, stale: Stale, scope_id: ScopeId, others: Sequence[Stale] = ()
) -> int:
    """Schedule new revisions, each after those that it is over; how many are new.

    ``others`` are the other trees that are rebuilt at the same time: a publication's line waits for
    the nodes of its cover among them, and for those that are not made yet.
    """
    tree = stale.tree
    spans = {n.span for n in stale.nodes}
    elsewhere = {(str(o.tree), n.span) for o in others for n in o.nodes}
    count = 0
    for node in stale.nodes:
        kind, target, session_id = JobKind.NODE, node_target(tree, node.span), None
        waits: list[tuple[Tree, Span]] = []
        if node.span.count > 1:
            waits = [(tree, child) for child in node.span.children if child in spans]
        if isinstance(tree, SessionTree):
            session_id = tree.session_id
        elif node.span.count == 1:
            publication = tx.publications.publication(tree.scope_id, node.span.start)
            if publication is None or publication.died is not None:
                continue
            kind, target, session_id = JobKind.TURN, publication.turn_id, publication.session_id
            waits = [
                (p.tree, p.span)
                for p in publication.cover
                if (str(p.tree), p.span) in elsewhere or tx.trees.node(p.tree, p.span) is None
            ]
        job = _job(deps, kind, target, session_id, scope_id, node.revision + 1)
        count += tx.jobs.redo(job, waits)
    return count


def over(tx: Tx, deps: Deps, node: Node, scope_id: ScopeId) -> int:
    """Schedule anew what was made over a line that only stood in for ``node``; how many."""
    stale = [_above(tx, node)]
    if isinstance(node.tree, SessionTree):
        last = tx.records.record(node.tree, node.span.end_exclusive - 1)
        published = tx.publications.of_turn(last.turn_id) if last is not None else None
        if published is not None:
            tree = ScopeTree(published.scope_id)
            leaf = tx.trees.node(tree, Span(published.seq, 1))
            if leaf is not None:
                above = _above(tx, leaf)
                stale.append(Stale(tree, (leaf, *above.nodes)))
    return sum(enqueue(tx, deps, s, scope_id, stale) for s in stale)


def _above(tx: Tx, node: Node) -> Stale:
    spans = ancestors(node.span, _length(tx, node.tree))
    found = (tx.trees.node(node.tree, span) for span in spans)
    return Stale(node.tree, tuple(n for n in found if n is not None))


def _job(
    deps: Deps,
    kind: JobKind,
    target: str,
    session_id: SessionId | None,
    scope_id: ScopeId,
    revision: int,
) -> Job:
    return Job(
        job_id=deps.ids.new_id(),
        kind=kind,
        target=target,
        session_id=session_id,
        scope_id=scope_id,
        input_hash=f"r{revision}",
        state=JobState.READY,
    )


def _length(tx: Tx, tree: Tree) -> int:
    if isinstance(tree, ScopeTree):
        return require_scope(tx, tree.scope_id).publications
    return generation_of(tx, tree).length
