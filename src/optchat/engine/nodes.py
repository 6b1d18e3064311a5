"""Growing trees: nodes made at once where they fit verbatim, jobs where they do not (§4, §10).

Sealing a record or publishing a turn completes the spans that end there. Each becomes a node in the
same transaction if its text fits as it is, else a job that waits for exactly its two children.
Nothing rescans a history.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from optchat.core import context
from optchat.core.budget import text_tokens
from optchat.core.publications import Publication
from optchat.core.records import Lineage, Record, RecordKind, Session
from optchat.core.tree import Node, NodeKind, ScopeTree, SessionTree, Tree
from optchat.core.views import Entry
from optchat.engine.deps import Deps
from optchat.errors import IntegrityError
from optchat.limits import SUMMARY_BYTES_MAX
from optchat.refs import Csn, PublicationRef, Ref, ScopeId, SessionId, SessionRef, Span
from optchat.storage.ports import Job, JobKind, JobState, Tx

VERBATIM = "verbatim"
"""The model name and prompt version of a node that no model made."""

LIVE_MS = 3_600_000
"""A turn that ended longer ago than this is history that is being taken in."""

RETIRED_LABEL = "retired"
RETIRED_TEXT = "(no longer available)"


@dataclass(slots=True)
class Forest:
    """The nodes of one sequence as its readers see it: a scope's tree, or a session's lineage.

    Looks a span up in the tree that owns it, names it as the reader does, and measures its line.
    Entries are cached for the life of the object, which is one unit of work.
    """

    tx: Tx
    tree: Tree
    number: int = 0
    lineage: Lineage | None = None
    csn: Csn | None = None
    _entries: dict[Span, Entry | None] = field(default_factory=dict[Span, Entry | None])

    def owner(self, span: Span) -> Tree:
        return self.lineage.tree_of(span) if self.lineage is not None else self.tree

    def holds(self, span: Span) -> bool:
        """Whether a span lies inside the history; a scope's tree has no other end than its own."""
        return self.lineage is None or span.end_exclusive <= self.lineage.length

    def node(self, span: Span) -> Node | None:
        if not self.holds(span):
            return None
        return self.tx.trees.node(self.owner(span), span, self.csn)

    def ref(self, span: Span) -> Ref:
        if isinstance(self.tree, ScopeTree):
            return PublicationRef(span)
        return SessionRef(self.number, self.tree.generation, span)

    def line(self, node: Node) -> str:
        return context.line(str(self.ref(node.span)), node.label, node.text)

    def entry(self, span: Span) -> Entry | None:
        """The frontier entry of a durable node; None while it is not made."""
        if span not in self._entries:
            node = self.node(span)
            self._entries[span] = self.entry_of(node) if node is not None else None
        return self._entries[span]

    def entry_of(self, node: Node) -> Entry:
        rendered = self.line(node)
        return Entry(node.span, node.revision, len(rendered.encode()), text_tokens(rendered))

    def covering(self, span: Span) -> list[Entry] | None:
        """The fewest durable nodes that cover a span; None while a leaf of it is not there."""
        found: list[Entry] = []
        pending = [span]
        while pending:
            below = pending.pop()
            entry = self.entry(below)
            if entry is not None:
                found.append(entry)
            elif below.count == 1:
                return None
            else:
                pending += reversed(below.children)
        return found

    def leaf_entries(self, start: int, end_exclusive: int) -> list[Entry]:
        """Entries of the contiguous durable leaves from ``start``, up to the first gap."""
        found: list[Entry] = []
        for owner_tree, first, last in self._pieces(start, end_exclusive):
            at = first
            while at < last:
                leaves = self.tx.trees.leaves_from(owner_tree, at, min(512, last - at))
                found += [self.entry_of(leaf) for leaf in leaves]
                at += len(leaves)
                if not leaves:
                    return found
        return found

    def _pieces(self, start: int, end_exclusive: int) -> list[tuple[Tree, int, int]]:
        if self.lineage is None:
            return [(self.tree, start, end_exclusive)]
        return [
            (s.tree, s.start, s.end_exclusive) for s in self.lineage.owners(start, end_exclusive)
        ]

    def lines(self, entries: tuple[Entry, ...]) -> list[str]:
        """The rendered lines of a frontier, in order."""
        return [self.line(node) for node in self.nodes(entries)]

    def nodes(self, entries: tuple[Entry, ...]) -> list[Node]:
        """The nodes of a frontier, in order; one statement for each tree that owns some.

        Raises:
            IntegrityError: the frontier names a revision that is gone; a gap is never shown as
                whole.
        """
        asked: dict[Tree, list[Entry]] = {}
        for entry in entries:
            asked.setdefault(self.owner(entry.span), []).append(entry)
        found: dict[Span, Node] = {}
        for tree, members in asked.items():
            nodes = self.tx.trees.nodes_in(tree, [(e.span, e.revision) for e in members])
            for entry, node in zip(members, nodes, strict=True):
                if node is None:
                    raise IntegrityError(
                        f"a view names revision {entry.revision} of {self.ref(entry.span)}, which "
                        "is gone; the originals are kept."
                    )
                found[entry.span] = node
        return [found[e.span] for e in entries]


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
    """The hash of what a text was made from; parts cannot run into each other."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "big") + data)
    return hasher.hexdigest()


def record_label(record: Record) -> str:
    """The structured part of a record's line: its kind, and tool and status where it has them."""
    words = {
        RecordKind.TOOL_CALL: "call",
        RecordKind.TOOL_RESULT: "result",
    }
    parts = [words.get(record.kind, record.kind.value)]
    if record.tool:
        parts.append(_name(record.tool))
    if record.status and record.status != "completed":
        parts.append(record.status)
    if record.truncated:
        parts.append("truncated by host")
    return " ".join(parts)


def _name(tool: str) -> str:
    """A tool's name as one word, short enough that the line around it keeps its bound."""
    name = re.sub(r"[\s|]+", "_", tool[:40])
    while context.escaped_bytes(name) > 120:
        name = name[:-1]
    return name


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
    tx: Tx, deps: Deps, *, record: Record, scope_id: ScopeId, text: str, csn: Csn
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
    commit(tx, node)


def complete_parents(
    tx: Tx, deps: Deps, forest: Forest, end_exclusive: int, scope_id: ScopeId, csn: Csn
) -> None:
    """Make or schedule every span above the leaves that the append at the end completes."""
    span = Span(end_exclusive - 1, 1)
    session_id = forest.tree.session_id if isinstance(forest.tree, SessionTree) else None
    while span.parent.end_exclusive == end_exclusive:
        span = span.parent
        pair = tuple(forest.node(child) for child in span.children)
        left, right = pair
        text = joined((left, right)) if left is not None and right is not None else None
        if left is not None and right is not None and text is not None:
            commit(tx, parent_node(tx, forest, span, (left, right), text, VERBATIM, csn))
            continue
        waits = tuple(
            (forest.owner(child), child)
            for child, node in zip(span.children, pair, strict=True)
            if node is None
        )
        enqueue_node(tx, deps, forest.owner(span), span, session_id, scope_id, waits_for=waits)


def parent_node(
    tx: Tx,
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
) -> Node:
    """The node of a span over two children; its label is mechanical."""
    label = ""
    if isinstance(forest.tree, ScopeTree):
        label = _range_label(tx, forest.tree.scope_id, span)
    return Node(
        tree=forest.owner(span),
        span=span,
        revision=revision,
        kind=kind or (NodeKind.VERBATIM if model == VERBATIM else NodeKind.SUMMARY),
        label=label,
        text=text,
        input_hash=children_hash(children),
        model=model,
        prompt_version=prompt_version,
        born=csn,
        evidence=evidence,
    )


def merged_bytes_max(tx: Tx, forest: Forest, span: Span, children: tuple[Node, Node]) -> int:
    """How long the text over two children may be, so that its line is shorter than theirs (§6).

    A view can only shrink through such lines: one that is longer is never taken for its children,
    nor is anything above it.
    """
    label = ""
    if isinstance(forest.tree, ScopeTree):
        label = _range_label(tx, forest.tree.scope_id, span)
    frame = len(context.line(str(forest.ref(span)), label, "").encode())
    members = sum(forest.entry_of(child).line_bytes for child in children)
    return min(SUMMARY_BYTES_MAX, members - frame - 1)


def children_hash(children: tuple[Node, Node]) -> str:
    return digest(*(part for c in children for part in (c.input_hash, c.label, c.text)))


def label_of(tx: Tx, publication: Publication) -> str:
    """The label of a publication, from what its scope knows of the session and its parent."""
    session = tx.sessions.session_in(publication.scope_id, publication.session_id)
    if session is None:
        raise IntegrityError(f"the session of pub:{publication.seq} is missing.")
    return publication_label(publication, session_name(tx, session))


def session_name(tx: Tx, session: Session) -> str:
    """How a scope names a session: s13, and for a subagent's whose it is."""
    if session.parent_host_session is None:
        return f"s{session.number}"
    parent = tx.sessions.session_of_host(session.host, session.parent_host_session)
    known = tx.sessions.session_in(session.scope_id, parent.session_id) if parent else None
    return f"s{session.number} subagent of {f's{known.number}' if known else 'another'}"


def publication_label(publication: Publication, name: str) -> str:
    """The structured part of a publication's line: whose turn, how it ended, when."""
    when = context.utc_minute(publication.completed_ms)
    return f"{name} {publication.outcome.value} {when}"


def _range_label(tx: Tx, scope_id: ScopeId, span: Span) -> str:
    ends = tx.publications.ends(scope_id, span.start, span.end_exclusive)
    if ends is None:
        return ""
    first, last = ends
    return f"{context.utc_minute(first.completed_ms)}..{context.utc_minute(last.completed_ms)}"


def commit(tx: Tx, node: Node) -> None:
    """Add a node and wake what waits for it."""
    if tx.trees.put_node(node):
        tx.jobs.resolve(node.tree, node.span)


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
