"""The nodes of one sequence as its readers see it: a scope's tree, or a session's lineage."""

from __future__ import annotations

from dataclasses import dataclass, field

from optchat.core import context
from optchat.core.budget import text_tokens
from optchat.core.records import Lineage
from optchat.core.tree import Node, ScopeTree, Tree
from optchat.core.views import Entry
from optchat.errors import IntegrityError
from optchat.refs import Csn, PublicationRef, Ref, SessionRef, Span
from optchat.storage.ports import Tx


@dataclass(slots=True)
class Forest:
    """The nodes of one sequence as its readers see it: a scope's tree, or a session's lineage.

    Looks a span up in the tree that owns it, names it as the reader does, and measures its line.
    Entries are cached for the life of the object, which is one unit of work. ``made``, if given,
    takes new nodes for which nothing waits yet, until ``put_made`` puts them down together.
    """

    tx: Tx
    tree: Tree
    number: int = 0
    lineage: Lineage | None = None
    csn: Csn | None = None
    made: dict[Span, Node] | None = None
    _times: dict[Span, tuple[int, int]] = field(default_factory=dict[Span, tuple[int, int]])
    _down: dict[Span, Node] = field(default_factory=dict[Span, Node])
    _measured: dict[tuple[Span, int], Entry] = field(default_factory=dict[tuple[Span, int], Entry])
    _entries: dict[Span, Entry | None] = field(default_factory=dict[Span, Entry | None])

    def owner(self, span: Span) -> Tree:
        return self.lineage.tree_of(span) if self.lineage is not None else self.tree

    def holds(self, span: Span) -> bool:
        """Whether a span lies inside the history; a scope's tree has no other end than its own."""
        return self.lineage is None or span.end_exclusive <= self.lineage.length

    def node(self, span: Span) -> Node | None:
        if not self.holds(span):
            return None
        if self.made and span in self.made:
            return self.made[span]
        if span in self._down:
            return self._down[span]
        return self.tx.trees.node(self.owner(span), span, self.csn)

    def put_made(self) -> None:
        """Put down what was ``made``."""
        if self.made:
            self.tx.trees.put_nodes(tuple(self.made.values()))
            self._down.update(self.made)
            self.made.clear()

    def note_time(self, seq: int, completed_ms: int) -> None:
        """Know when a turn of a scope ended whose publication is not put down yet."""
        self._times[Span(seq, 1)] = (completed_ms, completed_ms)

    def span_times(self, span: Span) -> tuple[int, int] | None:
        """When the first and the last turn of a scope's span ended; None if all are gone."""
        assert isinstance(self.tree, ScopeTree)
        if span not in self._times and span.count > 1:
            left, right = (self._times.get(child) for child in span.children)
            if right is not None:  # then it is new, and so is the span
                left = left or self.span_times(span.children[0]) or right
                self._times[span] = (left[0], right[1])
        if span in self._times:
            return self._times[span]
        return self.tx.publications.completed(self.tree.scope_id, span.start, span.end_exclusive)

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
        key = (node.span, node.revision)
        if key not in self._measured:
            rendered = self.line(node)
            self._measured[key] = Entry(*key, context.line_bytes(rendered), text_tokens(rendered))
        return self._measured[key]

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
                if (made := self._down.get(Span(at, 1))) is not None:
                    found.append(self.entry_of(made))
                    at += 1
                    continue
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
