"""Search in dictionaries: the visible records, and where stems stand, by looking at them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from optchat.core.records import Record
from optchat.core.snapshots import Visibility, sees_scope_node
from optchat.core.tree import Node, NodeKind, ScopeTree, SessionTree
from optchat.refs import ProjectId, SessionId
from optchat.storage.memory.sharing import own, published, seen
from optchat.storage.memory.state import Changes
from optchat.storage.ports import Frame, Places, Summaries, Titled
from optchat.storage.ports.frame import OUTCOMES, Ints, evidence_code, kind_code, outcome_code
from optchat.storage.words import indexed, stems


class MemorySearch:
    """Documents are numbered anew at each call, by tree and seq; the tables do not change between
    the calls of one transaction that reads.
    """

    def __init__(self, changes: Changes) -> None:
        self._tables = changes.tables

    def frame(self, visibility: Visibility) -> Frame:
        found = seen(self._tables, visibility)
        docs = self._docs()
        rows = [
            (doc, self._tables.records[tree, seq], published(found, tree, seq))
            for doc, (tree, seq) in enumerate(docs)
            if own(visibility, tree, seq) or published(found, tree, seq)
        ]
        records = [record for _, record, _ in rows]
        trees = tuple(dict.fromkeys(tree for tree, _ in docs))
        sessions = tuple(dict.fromkeys(r.session_id for r in records))
        projects = tuple(dict.fromkeys(r.project_id for r in records))
        tools = tuple(dict.fromkeys(r.tool or "" for r in records))

        def column(value: Callable[[Record], int]) -> Ints:
            return np.array([value(record) for record in records], np.int32)

        ended = [
            next(
                (
                    OUTCOMES.index(p.outcome.value)
                    for p in reversed(found)
                    for part in p.cover
                    if part.tree == SessionTree(r.session_id, r.generation)
                    and part.span.start <= r.seq < part.span.end_exclusive
                ),
                0,
            )
            for r in records
        ]
        row_of = np.full(len(docs), -1, np.int32)
        for row, (doc, _, _) in enumerate(rows):
            row_of[doc] = row
        return Frame(
            trees=trees,
            sessions=tuple(map(SessionId, sessions)),
            projects=tuple(map(ProjectId, projects)),
            tools=tools,
            tree=column(lambda r: trees.index(SessionTree(r.session_id, r.generation))),
            seq=column(lambda r: r.seq),
            session=column(lambda r: sessions.index(r.session_id)),
            project=column(lambda r: projects.index(r.project_id)),
            time_ms=np.array([r.host_time_ms for r in records], np.int64),
            kind=column(lambda r: kind_code(r.kind)).astype(np.int8),
            evidence=column(self._evidence).astype(np.int8),
            tool=column(lambda r: tools.index(r.tool or "")),
            outcome=np.array(
                [outcome_code(r.status) or e for r, e in zip(records, ended, strict=True)], np.int8
            ),
            length=column(lambda r: min(r.payload_bytes, 2**31 - 1)),
            row_of=row_of,
            titles={p.session_id: Titled(p.title, p.seq, p.completed_ms) for p in found},
            summaries=self._summaries(visibility, trees),
        )

    def places(self, stems: Sequence[str]) -> dict[str, Places]:
        return _places(stems, (self._tables.words[key] for key in self._docs()))

    def node_places(self, stems: Sequence[str]) -> dict[str, Places]:
        return _places(stems, map(_stems_of, self._nodes()))

    def known(self, stems: Sequence[str]) -> tuple[str, ...]:
        there = self._vocabulary()
        return tuple(stem for stem in stems if stem in there)

    def holding(self, pieces: Sequence[str]) -> tuple[str, ...]:
        there = self._vocabulary()
        return tuple(sorted(stem for stem in there if any(piece in stem for piece in pieces)))

    def _docs(self) -> list[tuple[SessionTree, int]]:
        return sorted(self._tables.words, key=lambda key: (str(key[0]), key[1]))

    def _vocabulary(self) -> set[str]:
        return {stem for found in self._tables.words.values() for stem in found}

    def _evidence(self, record: Record) -> int:
        session = self._tables.sessions.get(record.session_id)
        subagent = None if session is None else session.parent_host_session is not None
        return evidence_code(record.kind, record.tool, record.status, subagent=subagent)

    def _nodes(self) -> list[Node]:
        return [
            node
            for revisions in self._tables.nodes.values()
            for node in revisions
            if node.kind is NodeKind.SUMMARY
        ]

    def _summaries(self, visibility: Visibility, trees: tuple[SessionTree, ...]) -> Summaries:
        found = seen(self._tables, visibility)
        nodes = self._nodes()
        row_of = np.full(len(nodes), -1, np.int32)
        rows: list[tuple[int, int, int, int]] = []
        for doc, node in enumerate(nodes):
            tree, span = node.tree, node.span
            if not node.seen_at(visibility.csn):
                continue
            if isinstance(tree, ScopeTree):
                visible = sees_scope_node(visibility, node)
            else:
                visible = tree in trees and all(
                    own(visibility, tree, seq) or published(found, tree, seq)
                    for seq in range(span.start, span.end_exclusive)
                )
            if visible:
                row_of[doc] = len(rows)
                at = trees.index(tree) if isinstance(tree, SessionTree) else -1
                rows.append((at, span.start, span.count, node.revision))
        tree, start, count, revision = np.array(rows, np.int32).reshape(len(rows), 4).T
        return Summaries(tree=tree, start=start, count=count, revision=revision, row_of=row_of)


def _stems_of(node: Node) -> tuple[str, ...]:
    return stems(indexed(node.text))


def _places(asked: Sequence[str], texts: Iterable[tuple[str, ...]]) -> dict[str, Places]:
    found: dict[str, list[tuple[int, int]]] = {stem: [] for stem in asked}
    for doc, text in enumerate(texts):
        for offset, stem in enumerate(text):
            if stem in found:
                found[stem].append((doc, offset))
    return {
        stem: Places.of(*np.array(at, np.int32).reshape(len(at), 2).T) for stem, at in found.items()
    }
