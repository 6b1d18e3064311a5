"""Putting a finished line where it belongs: the second transaction of a job (§9, §10, I7).

Every commit asks whether the lease is still ours and whether what was read is still what is there;
otherwise the result is dropped, and nothing says that it ever was.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from optchat.core.records import Record
from optchat.core.tree import Node, NodeKind, ScopeTree, SessionTree, Tree, parse_tree
from optchat.core.views import View, replaced
from optchat.engine import rebuild
from optchat.engine.deps import Deps
from optchat.engine.forest import Forest
from optchat.engine.labels import label_of, record_label
from optchat.engine.nodes import VERBATIM, children_hash, commit, digest, is_retired, parent_node
from optchat.engine.publish import TurnSource, advance_shared_view, publish, turn_source
from optchat.engine.sessions import lineage, require_scope
from optchat.errors import IntegrityError
from optchat.refs import Span
from optchat.storage.ports import Job, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A line and who made it. ``note`` goes into the label, mechanically."""

    text: str
    model: str
    prompt_version: str
    kind: NodeKind = NodeKind.SUMMARY
    evidence: str = ""
    note: str = ""


def verbatim(text: str) -> Made:
    return Made(text=text, model=VERBATIM, prompt_version=VERBATIM, kind=NodeKind.VERBATIM)


def target(job: Job) -> tuple[Tree, Span]:
    """The tree and span that a node job makes."""
    tree, _, span = job.target.partition("#")
    start, _, count = span.partition("+")
    return parse_tree(tree), Span(int(start), int(count))


def revision(job: Job) -> int:
    """The revision of its node that a job makes."""
    return int(job.input_hash.removeprefix("r"))


def forest_of(tx: Tx, tree: Tree) -> Forest:
    if isinstance(tree, ScopeTree):
        return Forest(tx, tree)
    return Forest(tx, tree, lineage=lineage(tx, tree))


def children_of(forest: Forest, span: Span) -> tuple[Node, Node]:
    """The two children of a span.

    Raises:
        IntegrityError: one is not there.
    """
    left, right = (forest.node(child) for child in span.children)
    if left is None or right is None:
        raise IntegrityError(f"a child of {forest.tree}#{span} is missing.")
    return left, right


def commit_leaf(tx: Tx, deps: Deps, job: Job, record: Record, made: Made) -> bool:
    """The leaf of a record; False when the lease is gone."""
    if not tx.jobs.finish(job.job_id, job.token):
        return False
    put_leaf(tx, deps, job, record, made)
    return True


def put_leaf(tx: Tx, deps: Deps, job: Job, record: Record, made: Made) -> None:
    """The leaf of a record, as the revision that a job makes."""
    label = record_label(record)
    _put(
        tx,
        deps,
        job,
        Node(
            tree=SessionTree(record.session_id, record.generation),
            span=Span(record.seq, 1),
            revision=revision(job),
            kind=made.kind,
            label=f"{label} {made.note}" if made.note else label,
            text=made.text,
            input_hash=digest(record.payload),
            model=made.model,
            prompt_version=made.prompt_version,
            born=tx.meta.next_csn(),
            evidence=made.evidence,
        ),
    )


def commit_merge(tx: Tx, deps: Deps, job: Job, made: Made, *, read_hash: str | None = None) -> bool:
    """The node over two children.

    ``read_hash`` is the ``children_hash`` of what was read; children that have moved on since leave
    the job done and the line dropped, because what moved them on has scheduled it anew.
    """
    if not tx.jobs.finish(job.job_id, job.token):
        return False
    tree, span = target(job)
    if read_hash is not None and children_hash(children_of(forest_of(tx, tree), span)) != read_hash:
        return False
    put_merge(tx, deps, job, made)
    return True


def put_merge(tx: Tx, deps: Deps, job: Job, made: Made) -> None:
    """The node over two children, as the revision that a job makes.

    Raises:
        IntegrityError: a child is not there.
    """
    tree, span = target(job)
    forest = forest_of(tx, tree)
    made_node = parent_node(
        forest,
        span,
        children_of(forest, span),
        made.text,
        made.model,
        tx.meta.next_csn(),
        prompt_version=made.prompt_version,
        revision=revision(job),
        kind=made.kind,
        evidence=made.evidence,
    )
    _put(tx, deps, job, made_node)
    if isinstance(tree, ScopeTree):
        scope = require_scope(tx, tree.scope_id)
        advance_shared_view(tx, deps, Forest(tx, tree), scope.publications)


def commit_turn(tx: Tx, deps: Deps, job: Job, source: TurnSource, made: Made) -> bool:
    """The publication of a turn, or a new revision of its leaf."""
    if not tx.jobs.finish(job.job_id, job.token):
        return False
    current = turn_source(tx, source.turn, text_bytes_max=0)
    if current.input_hash != source.input_hash:
        return False
    published = tx.publications.of_turn(source.turn.turn_id)
    if published is None:
        # As it is now: what was read before it may have been superseded by a rewind since.
        return put_turn(tx, deps, current, made)
    tree, leaf = ScopeTree(published.scope_id), Span(published.seq, 1)
    if revision(job) == 1 and not stands_in(tx.trees.node(tree, leaf)):
        return False  # a replay
    _put(
        tx,
        deps,
        job,
        Node(
            tree=tree,
            span=leaf,
            revision=revision(job),
            kind=made.kind,
            label=label_of(tx, published),
            text=made.text,
            input_hash=source.input_hash,
            model=made.model,
            prompt_version=made.prompt_version,
            born=tx.meta.next_csn(),
            evidence=made.evidence,
        ),
    )
    # A line that was lost and is back: the view may have ended before it.
    scope = require_scope(tx, published.scope_id)
    forest = Forest(tx, ScopeTree(published.scope_id))
    advance_shared_view(tx, deps, forest, scope.publications)
    return True


def put_turn(tx: Tx, deps: Deps, source: TurnSource, made: Made) -> bool:
    """Publish a turn under a line; False when it is superseded, or published already."""
    published = publish(
        tx,
        deps,
        source,
        text=made.text,
        model=made.model,
        prompt_version=made.prompt_version,
        kind=made.kind,
        evidence=made.evidence,
    )
    return published is not None


def stands_in(node: Node | None) -> bool:
    """Whether a node only says that its range needs inspection."""
    return node is not None and node.kind is NodeKind.FALLBACK and not is_retired(node)


def _put(tx: Tx, deps: Deps, job: Job, node: Node) -> None:
    """Add a revision. An older live one ends at this commit: open snapshots keep seeing it (§4)."""
    live = tx.trees.node(node.tree, node.span)
    replaces = stands_in(live)
    if live is not None and replaces:
        node = msgspec.structs.replace(node, revision=max(node.revision, live.revision + 1))
    if live is None or live.revision >= node.revision:
        commit(tx, node)
        return
    tx.trees.retire_node(node.tree, node.span, node.born)
    commit(tx, node)
    _show(tx, node)
    if replaces:
        rebuild.over(tx, deps, node, job.scope_id)


def _show(tx: Tx, node: Node) -> None:
    """The tree's view from now on names the new revision, in its place."""
    view = tx.trees.view(node.tree)
    if not any(e.span == node.span for e in view.entries):
        return
    number = 0
    if isinstance(node.tree, SessionTree):
        session = tx.sessions.session(node.tree.session_id)
        number = session.number if session is not None else 0
    forest = forest_of(tx, node.tree)
    forest.number = number
    moved: View = replaced(view, node.span, [forest.entry_of(node)])
    tx.trees.put_view(node.tree, moved, node.born)
