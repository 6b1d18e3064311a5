"""Full text over record originals, through FTS5's word index.

Each term is a query of its own and there is no rank: FTS5's bm25 is made from averages over all
documents, so it would tell of records that the reader may not see (I4).
"""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

from collections.abc import Iterator

from optchat.core.snapshots import Visibility
from optchat.core.tree import ScopeTree, SessionTree, parse_tree
from optchat.refs import SessionId
from optchat.storage.ports import NodeHit, SearchHit, SearchQuery
from optchat.storage.sqlite.connection import Sql, Value
from optchat.storage.sqlite.trees import NODE_COLUMNS, node_of_row
from optchat.storage.sqlite.visible import ALIVE, CTES, VISIBLE, Ranges, bindings, union
from optchat.storage.words import searchable

_MATCHING = (
    f"with {CTES} "
    "select t.doc from record_fts cross join record_text as t on t.doc = record_fts.rowid "
    "where record_fts match :match "
    "and (:session is null or t.session_id = :session) "
    "and (:since is null or t.host_time_ms >= :since) "
    "and (:until is null or t.host_time_ms < :until) "
    f"and {VISIBLE}"
)


# A record below a session's node is probed like any other; a summary stands for few of them at the
# levels that search is of use for, and the word index has cut the candidates down before.
_MATCHING_NODES = (
    f"with {CTES} "
    "select d.doc from node_fts cross join node_text as d on d.doc = node_fts.rowid "
    "join node as n on n.tree = d.tree and n.count = d.count and n.start = d.start "
    "and n.revision = d.revision "
    "where node_fts match :match and n.born <= :csn and (n.died is null or n.died > :csn) "
    "and case when n.tree like 'p:%' "
    "then n.tree = :shared and n.start + n.count <= :end and :session is null "
    "else (:session is null or n.tree like 'g:' || :session || ':%') "
    "and n.count = (select count(*) from (select g.session_id, g.number as generation, r.seq "
    "from generation as g cross join record as r on r.generation_id = g.id "
    "where g.session_id = substr(n.tree, 3, instr(substr(n.tree, 3), ':') - 1) "
    "and g.number = cast(substr(n.tree, 3 + instr(substr(n.tree, 3), ':')) as integer) "
    f"and r.seq >= n.start and r.seq < n.start + n.count) as t where {VISIBLE}) end"
)


class SqliteSearch:
    """User text reaches FTS5 as one quoted string, where nothing is syntax."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def hits(self, visibility: Visibility, query: SearchQuery) -> Iterator[SearchHit]:
        matched: dict[int, set[str]] = {}
        for term in dict.fromkeys((*query.terms, *query.phrases)):
            for doc in self._matching(visibility, query, term):
                matched.setdefault(doc, set()).add(term)
        if matched:
            for word in dict.fromkeys(query.excluded):
                for doc in self._matching(visibility, query, word):
                    matched.pop(doc, None)
        return self._texts(matched)

    def node_hits(self, visibility: Visibility, query: SearchQuery) -> Iterator[NodeHit]:
        if query.since_ms is not None or query.until_ms is not None:
            return
        matched: dict[int, set[str]] = {}
        for term in dict.fromkeys((*query.terms, *query.phrases)):
            for doc in self._matching_nodes(visibility, query, term):
                matched.setdefault(doc, set()).add(term)
        if matched:
            for word in dict.fromkeys(query.excluded):
                for doc in self._matching_nodes(visibility, query, word):
                    matched.pop(doc, None)
        for doc, terms in sorted(matched.items()):
            row = self._sql.one(
                f"select n.tree, {NODE_COLUMNS} from node_text as t join node as n "
                "on n.tree = t.tree and n.count = t.count and n.start = t.start "
                "and n.revision = t.revision where t.doc = ?",
                (doc,),
            )
            if row is not None:
                node = node_of_row(parse_tree(row[0]), row[1:])
                yield NodeHit(node=node, matched=frozenset(terms))

    def _matching_nodes(
        self, visibility: Visibility, query: SearchQuery, term: str
    ) -> Iterator[int]:
        values: dict[str, Value] = {
            **bindings(visibility),
            "match": quoted(term),
            "session": query.session_id,
            "shared": str(ScopeTree(visibility.scope_id)),
        }
        return (row[0] for row in self._sql.all(_MATCHING_NODES, values))

    def searchable(self, visibility: Visibility) -> int:
        ranges: Ranges = {}
        if visibility.own is not None:
            for segment in visibility.own.segments:
                ranges.setdefault(segment.tree, []).append((segment.start, segment.end_exclusive))
        rows = self._sql.all(
            "select g.session_id, g.number, c.start, c.end_exclusive "
            "from publication as p cross join published as c "
            "on c.scope_id = p.scope_id and c.publication = p.seq "
            "cross join generation as g on g.id = c.generation_id "
            f"where p.scope_id = :scope and {ALIVE}",
            bindings(visibility),
        )
        for session_id, generation, start, end in rows:
            tree = SessionTree(SessionId(session_id), generation)
            ranges.setdefault(tree, []).append((start, end))
        total = 0
        for tree, found in ranges.items():
            for start, end in union(found):
                row = self._sql.one(
                    "select count(*) from record_text "
                    "where session_id = ? and generation = ? and seq >= ? and seq < ?",
                    (tree.session_id, tree.generation, start, end),
                )
                total += 0 if row is None else int(row[0])
        return total

    def _matching(self, visibility: Visibility, query: SearchQuery, term: str) -> Iterator[int]:
        values: dict[str, Value] = {
            **bindings(visibility),
            "match": quoted(term),
            "session": query.session_id,
            "since": query.since_ms,
            "until": query.until_ms,
        }
        return (row[0] for row in self._sql.all(_MATCHING, values))

    def _texts(self, matched: dict[int, set[str]]) -> Iterator[SearchHit]:
        for doc, terms in sorted(matched.items()):
            row = self._sql.one(
                "select session_id, generation, seq, text from record_text where doc = ?", (doc,)
            )
            if row is not None:
                tree = SessionTree(SessionId(row[0]), row[1])
                yield SearchHit(tree=tree, seq=row[2], text=row[3], matched=frozenset(terms))


def quoted(term: str) -> str:
    """``term`` as one FTS5 string: its words as a phrase. A NUL would end the expression."""
    return '"' + searchable(term).replace("\0", " ").replace('"', '""') + '"'
