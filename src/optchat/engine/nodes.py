"""Growing trees: nodes made at once where they fit verbatim, jobs where they do not (§4, §10).

Sealing a record or publishing a turn completes the spans that end there. Each becomes a node in the
same transaction if its text fits as it is, else a job that waits for exactly its two children.
Nothing rescans a history.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode

from optchat.core import context
from optchat.core.records import Record
from optchat.core.tree import Node, NodeKind, ScopeTree, SessionTree, Tree
from optchat.engine.deps import Deps
from optchat.engine.forest import Forest
from optchat.engine.labels import range_label, record_label
from optchat.limits import SUMMARY_BYTES_MAX
from optchat.refs import Csn, ScopeId, SessionId, Span
from optchat.storage.ports import Job, JobKind, JobState, Tx

VERBATIM = "verbatim"
"""The model name and prompt version of a node that no model made."""

IMPORTED = "import"
"""The model name and prompt version of a line that only names history that was taken in."""

STAND_IN_BYTES_MAX = 160
"""Such a line's text, rendered: a parent is shorter than its children, so that views shrink."""

LIVE_MS = 3_600_000
"""A turn that ended longer ago than this is history that is being taken in."""

RETIRED_LABEL = "retired"
RETIRED_TEXT = "(no longer available)"


def node_target(tree: Tree, span: Span) -> str:
    """The canonical name of a node job's target."""
    return f"{tree}#{span.start}+{span.count}"


def fits(text: str) -> bool:
    """Whether ``text`` may stand in a node: not blank, and within the bound as it is rendered."""
    return (
        len(text) <= SUMMARY_BYTES_MAX
        and context.escaped_bytes(text) <= SUMMARY_BYTES_MAX
        and bool(text.strip())
    )


def digest(*parts: str) -> str:
    """What a text was made from, as 128 bits of its hash; parts cannot run into each other."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    whole = b"".join([len(data).to_bytes(8, "big") + data for data in encoded])
    return urlsafe_b64encode(hashlib.sha256(whole).digest()[:16])[:22].decode()


def leaf_text(record: Record, text: str) -> str | None:
    """The verbatim text of a leaf, or None when the record needs summarising."""
    if not record.payload_bytes:
        return "(empty)"
    if not text:
        return "(kept by reference)"  # the result of one of our own tools
    return text if fits(text) else None


def joined(children: tuple[Node, Node]) -> str | None:
    """Two children as one verbatim text, or None when it does not fit or one is not verbatim.

    A leaf's label goes into the text, because a parent's line has no kind of its own.
    """
    left, right = children
    if is_retired(left) and is_retired(right):
        return RETIRED_TEXT
    if left.kind is not NodeKind.VERBATIM or right.kind is not NodeKind.VERBATIM:
        return None
    text = f"{_told(left)} / {_told(right)}"
    return text if fits(text) else None


def is_retired(node: Node) -> bool:
    """Whether a node stands for publications that are all retired."""
    return node.kind is not NodeKind.SUMMARY and node.text == RETIRED_TEXT


def _told(node: Node) -> str:
    return f"{node.label}: {node.text}" if node.span.count == 1 else node.text


def seal_leaf(
    tx: Tx, deps: Deps, forest: Forest, *, record: Record, scope_id: ScopeId, text: str, csn: Csn
) -> None:
    """The leaf of a sealed record: at once if it fits verbatim, else as a job (§10)."""
    tree = SessionTree(record.session_id, record.generation)
    span = Span(record.seq, 1)
    verbatim = leaf_text(record, text)
    if verbatim is None:
        enqueue_node(tx, deps, tree, span, record.session_id, scope_id, waits_for=())
        return
    node = Node(
        tree=tree,
        span=span,
        revision=1,
        kind=NodeKind.VERBATIM,
        label=record_label(record),
        text=verbatim,
        input_hash=digest(record.payload),
        model=VERBATIM,
        prompt_version=VERBATIM,
        born=csn,
    )
    take(forest, node)


def complete_parents(
    tx: Tx,
    deps: Deps,
    forest: Forest,
    end_exclusive: int,
    scope_id: ScopeId,
    csn: Csn,
    *,
    is_past: bool = False,
) -> None:
    """Make or schedule every span above the leaves that the append at the end completes.

    ``is_past``: the append is history that is taken in, for which no model is asked.
    """
    span = Span(end_exclusive - 1, 1)
    session_id = forest.tree.session_id if isinstance(forest.tree, SessionTree) else None
    while span.parent.end_exclusive == end_exclusive:
        span = span.parent
        pair = tuple(forest.node(child) for child in span.children)
        left, right = pair
        text = joined((left, right)) if left is not None and right is not None else None
        if left is not None and right is not None and text is not None:
            take(forest, parent_node(forest, span, (left, right), text, VERBATIM, csn))
            continue
        if left is not None and right is not None and (is_past or is_unsummarised((left, right))):
            take(forest, stand_in(forest, span, (left, right), csn))
            continue
        waits = tuple(
            (forest.owner(child), child)
            for child, node in zip(span.children, pair, strict=True)
            if node is None
        )
        enqueue_node(tx, deps, forest.owner(span), span, session_id, scope_id, waits_for=waits)


def parent_node(
    forest: Forest,
    span: Span,
    children: tuple[Node, Node],
    text: str,
    model: str,
    csn: Csn,
    *,
    prompt_version: str = VERBATIM,
    revision: int = 1,
    kind: NodeKind | None = None,
    evidence: str = "",
    label: str | None = None,
) -> Node:
    """The node of a span over two children; its label is mechanical, and made here if not given."""
    return Node(
        tree=forest.owner(span),
        span=span,
        revision=revision,
        kind=kind or (NodeKind.VERBATIM if model == VERBATIM else NodeKind.SUMMARY),
        label=_parent_label(forest, span) if label is None else label,
        text=text,
        input_hash=children_hash(children),
        model=model,
        prompt_version=prompt_version,
        born=csn,
        evidence=evidence,
    )


def is_unsummarised(children: tuple[Node, Node]) -> bool:
    """Whether children hold nothing that a model said, so that none is asked to merge them."""
    return any(c.model == IMPORTED for c in children) and not any(
        c.kind is NodeKind.SUMMARY for c in children
    )


def stand_in(
    forest: Forest, span: Span, children: tuple[Node, Node], csn: Csn, *, revision: int = 1
) -> Node:
    """The node over history that was taken in: how much of it there is, and how its parts begin."""
    head = f"(history, {span.count} turns) "
    label = _parent_label(forest, span)
    room = _room(forest, span, label, children)
    each = (min(room, STAND_IN_BYTES_MAX) - len(head) - 3) // 2
    left, right = (context.shorten(_HEAD.sub("", c.text), max(each, 8)) for c in children)
    return parent_node(
        forest,
        span,
        children,
        context.shorten(f"{head}{left} / {right}", max(room, len(head))),
        IMPORTED,
        csn,
        prompt_version=IMPORTED,
        revision=revision,
        kind=NodeKind.FALLBACK,
        label=label,
    )


def stand_in_again(tx: Tx, forest: Forest, span: Span, csn: Csn, *, revision: int) -> bool:
    """Renew a line that no model has to make: over history that was taken in, or over nothing."""
    left, right = (forest.node(child) for child in span.children)
    if left is None or right is None:
        return False
    children = left, right
    if is_retired(left) and is_retired(right):
        commit(
            tx, parent_node(forest, span, children, RETIRED_TEXT, VERBATIM, csn, revision=revision)
        )
    elif is_unsummarised(children):
        commit(tx, stand_in(forest, span, children, csn, revision=revision))
    else:
        return False
    return True


def is_unmade(tx: Tx, tree: Tree, span: Span) -> bool:
    """Whether a span reaches into records whose nodes are left for when they are wanted."""
    if isinstance(tree, ScopeTree):
        return False
    generation = tx.sessions.generation(tree.session_id, tree.generation)
    start = generation.unmade_from if generation is not None else None
    return start is not None and span.end_exclusive > start


_HEAD = re.compile(r"^\(history[^)]*\) ")


def merged_bytes_max(forest: Forest, span: Span, children: tuple[Node, Node]) -> int:
    """How long the text over two children may be, so that its line is shorter than theirs (§6).

    A view can only shrink through such lines: one that is longer is never taken for its children,
    nor is anything above it.
    """
    return _room(forest, span, _parent_label(forest, span), children)


def _room(forest: Forest, span: Span, label: str, children: tuple[Node, Node]) -> int:
    frame = context.line_bytes(context.line(str(forest.ref(span)), label, ""))
    left, right = children
    members = forest.entry_of(left).line_bytes + forest.entry_of(right).line_bytes
    return min(SUMMARY_BYTES_MAX, members - frame - 1)


def _parent_label(forest: Forest, span: Span) -> str:
    """When the turns of a scope's span were; a session's own line says nothing beside its text."""
    return range_label(forest.span_times(span)) if isinstance(forest.tree, ScopeTree) else ""


def children_hash(children: tuple[Node, Node]) -> str:
    return digest(*(part for c in children for part in (c.input_hash, c.label, c.text)))


def commit(tx: Tx, node: Node) -> None:
    """Add a node and wake what waits for it."""
    if tx.trees.put_node(node):
        tx.jobs.resolve(node.tree, node.span)


def take(forest: Forest, node: Node) -> None:
    """Commit a node, or leave it to be put down with others when its forest gathers them."""
    if forest.made is None:
        commit(forest.tx, node)
    else:
        forest.made[node.span] = node


def enqueue_node(
    tx: Tx,
    deps: Deps,
    tree: Tree,
    span: Span,
    session_id: SessionId | None,
    scope_id: ScopeId,
    *,
    waits_for: tuple[tuple[Tree, Span], ...],
    revision: int = 1,
) -> None:
    """Schedule the summary of a span, as the given revision of its node."""
    job = Job(
        job_id=deps.ids.new_id(),
        kind=JobKind.NODE,
        target=node_target(tree, span),
        session_id=session_id,
        scope_id=scope_id,
        input_hash=f"r{revision}",
        state=JobState.READY,
        # Put off, so that neighbours go along in one call; ``hurry_session`` ends the wait.
        not_before_ms=deps.clock.now_ms() + deps.config.compactor.hold_ms,
    )
    tx.jobs.put(job, waits_for)
    hurry_when_many(tx, deps, job.queue)


def hurry_when_many(tx: Tx, deps: Deps, queue: str) -> None:
    """End the wait of a queue that has enough for a call."""
    compactor = deps.config.compactor
    now_ms, enough = deps.clock.now_ms(), compactor.batch_lines
    if compactor.hold_ms and len(tx.jobs.open_in(queue, now_ms, enough)) >= enough:
        tx.jobs.hurry(queue, now_ms, first=False)


def hurry_session(tx: Tx, deps: Deps, session_id: SessionId, closed_ms: int) -> None:
    """A turn has ended: its summaries are due, and before an old backlog if it is of now."""
    now_ms = deps.clock.now_ms()
    tx.jobs.hurry(session_id, now_ms, first=now_ms - closed_ms < LIVE_MS)
