"""Payloads, nodes and views in dictionaries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from optchat.core.tree import Node, NodeKind, SessionTree, Tree
from optchat.core.views import View
from optchat.errors import BadInput, Conflict, IntegrityError
from optchat.limits import BLOB_CHUNK_BYTES
from optchat.refs import BlobHash, Csn, Span, blob_hash
from optchat.storage.memory.state import Changes
from optchat.storage.sealing import check_sizes


class MemoryBlobs:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def put(self, payload: bytes) -> BlobHash:
        blob = blob_hash(payload)
        self.put_many({blob: payload})
        return blob

    def put_many(self, payloads: Mapping[BlobHash, bytes]) -> None:
        check_sizes(payloads.values())
        for blob, payload in payloads.items():
            self._changes.put(self._tables.blobs, blob, bytes(payload))

    def size(self, blob: BlobHash) -> int:
        return len(self._payload(blob))

    def read(self, blob: BlobHash, start: int, count: int) -> bytes:
        if start < 0 or count < 0:
            raise BadInput(f"not a range of bytes: {start}+{count}.")
        return self._payload(blob)[start : start + count]

    def chunks(self, blob: BlobHash) -> Iterator[bytes]:
        payload = self._payload(blob)
        for at in range(0, len(payload), BLOB_CHUNK_BYTES):
            yield payload[at : at + BLOB_CHUNK_BYTES]

    def verify(self, blob: BlobHash) -> None:
        if blob_hash(self._payload(blob)) != blob:
            raise IntegrityError(f"the payload {blob} is not what its name says.")

    def drop_unused(self, blobs: Collection[BlobHash]) -> int:
        used = {record.payload for record in self._tables.records.values()}
        gone = {blob for blob in blobs if blob in self._tables.blobs} - used
        for blob in gone:
            self._changes.drop(self._tables.blobs, blob)
            for key in [k for k in self._tables.chunks if k[0] == blob]:
                self._changes.drop(self._tables.chunks, key)
        return len(gone)

    def _payload(self, blob: BlobHash) -> bytes:
        payload = self._tables.blobs.get(blob)
        if payload is None:
            raise IntegrityError(f"the payload {blob} is not there.")
        return payload


class MemoryTrees:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def put_node(self, node: Node) -> bool:
        live = self.node(node.tree, node.span)
        if live is not None:
            if live.input_hash == node.input_hash:
                return False
            if node.died is None:
                raise Conflict(f"another revision of {node.tree}#{node.span} is live; it stands.")
        if self.node_revision(node.tree, node.span, node.revision) is not None:
            raise Conflict(f"revision {node.revision} of {node.tree}#{node.span} is taken.")
        self._put(node.tree, node.span, (*self._revisions(node.tree, node.span), node))
        return True

    def put_nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if self.last_revision(node.tree, node.span):
                raise Conflict(f"{node.tree}#{node.span} is taken.")
            self._put(node.tree, node.span, (node,))

    def node(self, tree: Tree, span: Span, csn: Csn | None = None) -> Node | None:
        seen = (
            node
            for node in self._revisions(tree, span)
            if (node.died is None if csn is None else node.seen_at(csn))
        )
        return max(seen, key=lambda n: n.revision, default=None)

    def node_revision(self, tree: Tree, span: Span, revision: int) -> Node | None:
        return next((n for n in self._revisions(tree, span) if n.revision == revision), None)

    def last_revision(self, tree: Tree, span: Span) -> int:
        return max((n.revision for n in self._revisions(tree, span)), default=0)

    def nodes_in(self, tree: Tree, spans: Sequence[tuple[Span, int]]) -> tuple[Node | None, ...]:
        return tuple(self.node_revision(tree, span, revision) for span, revision in spans)

    def leaves_from(self, tree: Tree, start: int, limit: int) -> tuple[Node, ...]:
        found: list[Node] = []
        while len(found) < limit:
            node = self.node(tree, Span(start + len(found), 1))
            if node is None:
                break
            found.append(node)
        return tuple(found)

    def made_otherwise(
        self, tree: Tree, model: str | None, prompt_version: str
    ) -> tuple[Node, ...]:
        live = (n for revisions in self._tables.nodes.values() for n in revisions if n.died is None)
        found = [
            n
            for n in live
            if str(n.tree) == str(tree)
            and n.kind is not NodeKind.VERBATIM
            and n.model not in ("none", "import")
            and (n.prompt_version != prompt_version or model not in (None, n.model))
        ]
        return tuple(sorted(found, key=lambda n: (n.span.count, n.span.start)))

    def retire_node(self, tree: Tree, span: Span, csn: Csn) -> None:
        revisions = self._revisions(tree, span)
        if any(node.died is None for node in revisions):
            ended = tuple(
                msgspec.structs.replace(n, died=csn) if n.died is None else n for n in revisions
            )
            self._put(tree, span, ended)

    def view(self, tree: Tree, csn: Csn | None = None) -> View:
        views = self._tables.views.get(str(tree), ())
        seen = (view for born, view in views if csn is None or born <= csn)
        return max(seen, key=lambda v: v.revision, default=View())

    def put_view(self, tree: Tree, view: View, csn: Csn) -> None:
        newest = self.view(tree).revision
        if view.revision != newest + 1:
            raise Conflict(
                f"view revision {view.revision} of {tree} does not follow {newest}; "
                "the stored one stands."
            )
        views = self._tables.views.get(str(tree), ())
        self._changes.put(self._tables.views, str(tree), (*views, (csn, view)))

    def prune_views(self, tree: Tree, pinned: Collection[Csn]) -> int:
        views = self._tables.views.get(str(tree), ())
        seen = {self.view(tree, csn).revision for csn in pinned} | {self.view(tree).revision}
        kept = tuple((born, v) for born, v in views if v.revision in seen)
        if kept != views:
            self._changes.put(self._tables.views, str(tree), kept)
        return len(views) - len(kept)

    def remove_node(self, tree: Tree, span: Span) -> int:
        count = len(self._revisions(tree, span))
        self._changes.drop(self._tables.nodes, (str(tree), span.start, span.count))
        return count

    def remove_tree(self, tree: Tree) -> int:
        self._changes.drop(self._tables.views, str(tree))
        keys = [key for key in self._tables.nodes if key[0] == str(tree)]
        return sum(self.remove_node(tree, Span(start, count)) for _, start, count in keys)

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        for key, revisions in tuple(self._tables.nodes.items()):
            of, start, count = key
            if of == str(tree) and start + count <= end_exclusive:
                moved = tuple(msgspec.structs.replace(node, tree=to) for node in revisions)
                self._changes.drop(self._tables.nodes, key)
                self._changes.put(self._tables.nodes, (str(to), start, count), moved)

    def _revisions(self, tree: Tree, span: Span) -> tuple[Node, ...]:
        return self._tables.nodes.get((str(tree), span.start, span.count), ())

    def _put(self, tree: Tree, span: Span, revisions: tuple[Node, ...]) -> None:
        self._changes.put(self._tables.nodes, (str(tree), span.start, span.count), revisions)
