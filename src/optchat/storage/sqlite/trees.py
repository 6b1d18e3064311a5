"""Nodes and views as rows; a revision is never changed, only ended."""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from optchat.core.tree import Node, NodeKind, SessionTree, Tree
from optchat.core.views import Entry, View
from optchat.errors import Conflict
from optchat.refs import Csn, Span
from optchat.storage.sqlite.codes import (
    MAKERS,
    NODE_KINDS,
    code,
    hash_bytes,
    hash_text,
    hashes_bytes,
    name_of,
)
from optchat.storage.sqlite.connection import Row, Sql
from optchat.storage.sqlite.frames import drop_frames
from optchat.storage.words import indexed

TREE = "(select id from tree where name = {})"
"""The number in this file of the tree that a key names."""
_NAMED = TREE.format("?")
_NODE = (
    "start, count, revision, kind, label, text, input_hash, model, prompt_version, "
    "born, died, evidence"
)

_INSERT = f"insert into node (tree, {_NODE}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

NODE_COLUMNS = ", ".join(f"n.{name}" for name in _NODE.split(", "))
"""The columns of ``node_of_row``, of a node row ``n``."""


class SqliteTrees:
    """Both kinds of tree, under the same keys."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._numbers: dict[Tree, int] = {}

    def _number(self, tree: Tree) -> int:
        """The number of a tree, which is given it now unless it has one."""
        if tree not in self._numbers:
            self._sql.run("insert into tree (name) values (?) on conflict do nothing", (str(tree),))
            row = self._sql.one("select id from tree where name = ?", (str(tree),))
            assert row is not None
            self._numbers[tree] = row[0]
        return self._numbers[tree]

    def put_node(self, node: Node) -> bool:
        tree, span = str(node.tree), node.span
        live = self._sql.one(
            "select input_hash from node "
            f"where tree = {_NAMED} and count = ? and start = ? and died is null",
            (tree, span.count, span.start),
        )
        if live is not None:
            if hash_text(live[0]) == node.input_hash:
                return False
            if node.died is None:
                raise Conflict(f"another revision of {tree}#{span} is live; it stands.")
        row = _node_row(node, hash_bytes(node.input_hash))
        self._sql.run(_INSERT, (self._number(node.tree), *row))
        if node.kind is NodeKind.SUMMARY:
            self._index(node)
        return True

    def put_nodes(self, nodes: Sequence[Node]) -> None:
        hashes = hashes_bytes([node.input_hash for node in nodes])
        self._sql.many(
            _INSERT,
            (
                (self._number(node.tree), *_node_row(node, input_hash))
                for node, input_hash in zip(nodes, hashes, strict=True)
            ),
        )
        for node in nodes:
            if node.kind is NodeKind.SUMMARY:
                self._index(node)

    def _index(self, node: Node) -> None:
        row = self._sql.one(
            "insert into node_doc (tree, count, start, revision, born, died) "
            f"values ({_NAMED}, ?, ?, ?, ?, ?) returning doc",
            (
                str(node.tree),
                node.span.count,
                node.span.start,
                node.revision,
                node.born,
                node.died,
            ),
        )
        assert row is not None
        self._sql.run(
            "insert into node_fts (rowid, text) values (?, ?)", (row[0], indexed(node.text))
        )

    def node(self, tree: Tree, span: Span, csn: Csn | None = None) -> Node | None:
        if csn is None:
            row = self._sql.one(
                f"select {_NODE} from node "
                f"where tree = {_NAMED} and count = ? and start = ? and died is null",
                (str(tree), span.count, span.start),
            )
        else:
            row = self._sql.one(
                f"select {_NODE} from node where tree = {_NAMED} and count = ? and start = ? "
                "and born <= ? and (died is null or died > ?) order by revision desc limit 1",
                (str(tree), span.count, span.start, csn, csn),
            )
        return None if row is None else node_of_row(tree, row)

    def node_revision(self, tree: Tree, span: Span, revision: int) -> Node | None:
        row = self._sql.one(
            f"select {_NODE} from node where tree = {_NAMED} and count = ? and start = ? "
            "and revision = ?",
            (str(tree), span.count, span.start, revision),
        )
        return None if row is None else node_of_row(tree, row)

    def last_revision(self, tree: Tree, span: Span) -> int:
        row = self._sql.one(
            f"select max(revision) from node where tree = {_NAMED} and count = ? and start = ?",
            (str(tree), span.count, span.start),
        )
        return 0 if row is None or row[0] is None else int(row[0])

    def nodes_in(self, tree: Tree, spans: Sequence[tuple[Span, int]]) -> tuple[Node | None, ...]:
        asked = [(span.start, span.count, revision) for span, revision in spans]
        rows = self._sql.all(
            f"select {NODE_COLUMNS} "
            f"from json_each(?) as asked cross join node as n on n.tree = {_NAMED} "
            "and n.count = asked.value ->> 1 and n.start = asked.value ->> 0 "
            "and n.revision = asked.value ->> 2",
            (msgspec.json.encode(asked).decode(), str(tree)),
        )
        found = {(row[0], row[1], row[2]): node_of_row(tree, row) for row in rows}
        return tuple(found.get(key) for key in asked)

    def leaves_from(self, tree: Tree, start: int, limit: int) -> tuple[Node, ...]:
        rows = self._sql.all(
            f"select {_NODE} from node "
            f"where tree = {_NAMED} and count = 1 and start >= ? and died is null "
            "order by start limit ?",
            (str(tree), start, max(limit, 0)),
        )
        contiguous = [row for at, row in enumerate(rows) if row[0] == start + at]
        return tuple(node_of_row(tree, row) for row in contiguous)

    def made_otherwise(
        self, tree: Tree, model: str | None, prompt_version: str
    ) -> tuple[Node, ...]:
        rows = self._sql.all(
            f"select {_NODE} from node where tree = {TREE.format('?1')} and died is null "
            "and kind <> ?4 and model not in (?5, ?6) "
            "and (prompt_version <> ?3 or ?2 is not null and model <> ?2) "
            "order by count, start",
            (
                str(tree),
                None if model is None else code(MAKERS, model),
                code(MAKERS, prompt_version),
                code(NODE_KINDS, NodeKind.VERBATIM.value),
                *(code(MAKERS, name) for name in ("none", "import")),
            ),
        )
        return tuple(node_of_row(tree, row) for row in rows)

    def retire_node(self, tree: Tree, span: Span, csn: Csn) -> None:
        for table in ("node", "node_doc"):
            self._sql.run(
                f"update {table} set died = ? "
                f"where tree = {_NAMED} and count = ? and start = ? and died is null",
                (csn, str(tree), span.count, span.start),
            )

    def view(self, tree: Tree, csn: Csn | None = None) -> View:
        row = self._sql.one(
            "select revision, shrinking, entries from tree_view "
            "where tree = ?1 and (?2 is null or born <= ?2) order by revision desc limit 1",
            (str(tree), csn),
        )
        if row is None:
            return View()
        entries = tuple(
            Entry(Span(start, count), revision, line_bytes, line_tokens)
            for start, count, revision, line_bytes, line_tokens in _decode_entries(row[2])
        )
        return View(revision=row[0], entries=entries, shrinking=bool(row[1]))

    def put_view(self, tree: Tree, view: View, csn: Csn) -> None:
        newest = self._sql.one("select max(revision) from tree_view where tree = ?", (str(tree),))
        expected = ((newest[0] if newest is not None else None) or 0) + 1
        if view.revision != expected:
            raise Conflict(
                f"view revision {view.revision} of {tree} does not follow {expected - 1}; "
                "the stored one stands."
            )
        entries = [
            (e.span.start, e.span.count, e.revision, e.line_bytes, e.line_tokens)
            for e in view.entries
        ]
        self._sql.run(
            "insert into tree_view (tree, revision, born, shrinking, entries) "
            "values (?, ?, ?, ?, ?)",
            (
                str(tree),
                view.revision,
                csn,
                int(view.shrinking),
                msgspec.json.encode(entries).decode(),
            ),
        )

    def prune_views(self, tree: Tree, pinned: Collection[Csn]) -> int:
        return self._sql.run(
            "delete from tree_view where tree = ?1 "
            "and revision < (select max(revision) from tree_view where tree = ?1) "
            "and revision not in (select coalesce((select max(revision) from tree_view "
            "where tree = ?1 and born <= pin.value), 0) from json_each(?2) as pin)",
            (str(tree), msgspec.json.encode(sorted(pinned)).decode()),
        )

    def remove_node(self, tree: Tree, span: Span) -> int:
        return self._remove(
            f"tree = {_NAMED} and count = ? and start = ?", (str(tree), span.count, span.start)
        )

    def remove_tree(self, tree: Tree) -> int:
        self._sql.run("delete from tree_view where tree = ?", (str(tree),))
        removed = self._remove(f"tree = {_NAMED}", (str(tree),))
        self._sql.run("delete from tree where name = ?", (str(tree),))
        self._numbers.pop(tree, None)
        return removed

    def _remove(self, condition: str, args: tuple[str | int, ...]) -> int:
        docs = self._sql.all(
            f"select d.doc, n.text from (select * from node_doc where {condition}) as d "
            "cross join node as n on n.tree = d.tree and n.count = d.count "
            "and n.start = d.start and n.revision = d.revision",
            args,
        )
        if docs:
            self._sql.many(
                "insert into node_fts (node_fts, rowid, text) values ('delete', ?, ?)",
                ((doc, indexed(text)) for doc, text in docs),
            )
            self._sql.run(f"delete from node_doc where {condition}", args)
            drop_frames(self._sql)
        return self._sql.run(f"delete from node where {condition}", args)

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        self._number(to)
        for table in ("node", "node_doc"):
            self._sql.run(
                f"update {table} set tree = {_NAMED} where tree = {_NAMED} and start + count <= ?",
                (str(to), str(tree), end_exclusive),
            )
        drop_frames(self._sql)


_decode_entries = msgspec.json.Decoder(list[tuple[int, int, int, int, int]]).decode


def _node_row(node: Node, input_hash: bytes | str) -> tuple[str | bytes | int | None, ...]:
    return (
        node.span.start,
        node.span.count,
        node.revision,
        code(NODE_KINDS, node.kind),
        node.label,
        node.text,
        input_hash,
        code(MAKERS, node.model),
        code(MAKERS, node.prompt_version),
        node.born,
        node.died,
        node.evidence,
    )


def node_of_row(tree: Tree, row: Row) -> Node:
    return Node(
        tree=tree,
        span=Span(row[0], row[1]),
        revision=row[2],
        kind=NodeKind(name_of(NODE_KINDS, row[3])),
        label=row[4],
        text=row[5],
        input_hash=hash_text(row[6]),
        model=name_of(MAKERS, row[7]),
        prompt_version=name_of(MAKERS, row[8]),
        born=row[9],
        died=row[10],
        evidence=row[11],
    )
