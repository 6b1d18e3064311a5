"""Frames out of rows: loaded once, extended as records come, dropped when something was removed.

A frame belongs to a state of the file. The counter ``index`` says whether what was loaded may still
be used; every transaction that takes records or publications away, or moves them, raises it.
"""

# ruff: noqa: S608  (what is formatted in are this package's own conditions)

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from optchat.core.records import Outcome, RecordKind
from optchat.core.snapshots import Visibility
from optchat.core.tree import ScopeTree, SessionTree, parse_tree
from optchat.refs import ProjectId, ScopeId, SessionId
from optchat.storage.ports.frame import (
    OUTCOMES,
    Bytes,
    Frame,
    Ints,
    Longs,
    Summaries,
    Titled,
    evidence_code,
    kind_code,
    outcome_code,
)
from optchat.storage.searched import has_words
from optchat.storage.sqlite.codes import RECORD_KINDS, STATUSES, name_of
from optchat.storage.sqlite.connection import Row, Sql
from optchat.storage.sqlite.visible import SCOPE

FRAMES_KEPT = 3
ROWS_AT_ONCE = 4_000


def drop_frames(sql: Sql) -> None:
    """Have what is loaded of the store forgotten: rows were removed, moved or indexed anew."""
    sql.run("update counter set value = value + 1 where name = 'index'")


@dataclass(frozen=True, slots=True, eq=False)
class _Records:
    """All searched records of the store, by (tree, seq); numbers of trees are the store's."""

    last: int  # the highest document
    doc: Ints
    key: Longs  # tree << 32 | seq
    session: Ints
    project: Ints
    time_ms: Longs
    kind: Bytes
    evidence: Bytes
    tool: Ints
    outcome: Bytes
    length: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Published:
    """What a scope's publications are made from, by number."""

    end: int  # publications below it are here
    publication: Ints
    tree: Ints
    start: Ints
    count: Ints
    outcome: Bytes
    born: Longs
    titles: tuple[tuple[int, SessionId, str, int, int], ...]  # number, session, title, time, born


_SCOPE = SCOPE.format("?")


class _Names:
    """Numbers for names, in the order in which they came."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(self.numbers)


class Frames:
    """The frames of one store, for all its readers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = -1
        self._clear()

    def _clear(self) -> None:
        self._sessions = _Names()
        self._projects = _Names()
        self._tools = _Names()
        self._trees: dict[SessionTree, int] = {}
        self._records: _Records | None = None
        self._published: dict[ScopeId, _Published] = {}
        self._frames: OrderedDict[Hashable, Frame] = OrderedDict()

    def frame(self, sql: Sql, visibility: Visibility) -> Frame:
        """The frame of a snapshot, as the transaction of ``sql`` sees it."""
        own = visibility.own.segments if visibility.own is not None else ()
        asked = (visibility.scope_id, visibility.csn, visibility.publication_end, own)
        with self._lock:
            version, last = state_of(sql)
            if version != self._version:
                self._clear()
                self._version = version
            found = self._frames.get(asked)
            if found is None:
                found = self._made(sql, visibility, last)
                self._frames[asked] = found
                while len(self._frames) > FRAMES_KEPT:
                    self._frames.popitem(last=False)
            self._frames.move_to_end(asked)
            return found

    def _made(self, sql: Sql, visibility: Visibility, last: int) -> Frame:
        records = self._records = self._extended(sql, self._records, last)
        published = self._parts(sql, visibility.scope_id)
        end, csn = visibility.publication_end, visibility.csn
        died = sql.all(
            f"select seq from publication where scope = {_SCOPE} "
            "and died is not null and died <= ?",
            (visibility.scope_id, csn),
        )
        gone = np.array([row[0] for row in died], np.int32)
        alive = (
            (published.publication < end)
            & (published.born <= csn)
            & ~np.isin(published.publication, gone)
        )
        tree, start = published.tree[alive], published.start[alive]
        count, outcome = published.count[alive], published.outcome[alive]
        own = visibility.own.segments if visibility.own is not None else ()
        known = [
            (self._trees[s.tree], s.start, s.end_exclusive) for s in own if s.tree in self._trees
        ]
        if known:
            mine = np.array(known, np.int32)
            # The own records come first, so that how a published turn ended is kept of them.
            tree = np.concatenate((mine[:, 0], tree))
            start = np.concatenate((mine[:, 1], start))
            count = np.concatenate((mine[:, 2] - mine[:, 1], count))
            outcome = np.concatenate((np.zeros(len(known), np.int8), outcome))
        first = (tree.astype(np.int64) << 32) | start
        low = np.searchsorted(records.key, first)
        high = np.searchsorted(records.key, first + count)
        sizes = high - low
        rows = np.repeat(low - np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes)
        rows = rows + np.arange(len(rows))
        seen = np.zeros(len(records.doc), bool)
        seen[rows] = True
        ended = np.zeros(len(records.doc), np.int8)
        ended[rows] = np.repeat(outcome, sizes)
        own_state = records.outcome[seen]
        row_of = np.full(records.last + 1, -1, np.int32)
        row_of[records.doc[seen]] = np.arange(int(seen.sum()), dtype=np.int32)
        dead = set(gone.tolist())
        left = left_of(sql)
        unread = (records.doc >= left.start) & (records.doc < left.stop)
        titles: dict[SessionId, Titled] = {}
        for number, session, title, completed_ms, born in published.titles:
            if number < end and born <= csn and number not in dead:
                titles[session] = Titled(title, number, completed_ms)
        return Frame(
            trees=tuple(self._trees),
            sessions=tuple(map(SessionId, self._sessions.all)),
            projects=tuple(map(ProjectId, self._projects.all)),
            tools=self._tools.all,
            tree=(records.key[seen] >> 32).astype(np.int32),
            seq=records.key[seen].astype(np.int32),
            session=records.session[seen],
            project=records.project[seen],
            time_ms=records.time_ms[seen],
            kind=records.kind[seen],
            evidence=records.evidence[seen],
            tool=records.tool[seen],
            outcome=np.where(own_state > 0, own_state, ended[seen]).astype(np.int8),
            length=records.length[seen],
            row_of=row_of,
            titles=titles,
            summaries=self._summaries(sql, visibility, first, first + count),
            unindexed=int((unread & seen).sum()),
        )

    def _summaries(self, sql: Sql, visibility: Visibility, low: Longs, high: Longs) -> Summaries:
        """The visible ones; what can be seen of the sessions is ``[low, high)``, in keys."""
        shared = str(ScopeTree(visibility.scope_id))
        rows = sql.all(
            "select d.doc, t.name, d.start, d.count, d.revision from node_doc as d "
            "cross join tree as t on t.id = d.tree "
            "where d.born <= ?1 and (d.died is null or d.died > ?1) order by d.doc",
            (visibility.csn,),
        )
        low, high = _joined(low, high)
        made: list[tuple[int, int, int, int, int]] = []
        last = rows[-1][0] if rows else -1
        for doc, name, start, count, revision in rows:
            if name == shared:
                if start + count <= visibility.publication_end:
                    made.append((doc, -1, start, count, revision))
            elif name.startswith("g:"):
                parsed = parse_tree(name)
                tree = self._trees.get(parsed) if isinstance(parsed, SessionTree) else None
                if tree is not None:
                    made.append((doc, tree, start, count, revision))
        columns = np.array(made, np.int64).reshape(len(made), 5)
        key = (columns[:, 1] << 32) | columns[:, 2]
        at = np.searchsorted(low, key, side="right") - 1
        inside = (at >= 0) & (key + columns[:, 3] <= high[at]) if len(low) else key < 0
        columns = columns[inside | (columns[:, 1] < 0)]
        row_of = np.full(last + 1, -1, np.int32)
        row_of[columns[:, 0]] = np.arange(len(columns))
        doc, tree, start, count, revision = columns.astype(np.int32).T
        return Summaries(tree=tree, start=start, count=count, revision=revision, row_of=row_of)

    def _extended(self, sql: Sql, before: _Records | None, last: int) -> _Records:
        """``before`` with the records that came since, up to ``last``."""
        known = -1 if before is None else before.last
        if before is not None and last <= known:
            return before
        pieces = [self._columns((), {}) if before is None else before]
        parents = _parents(sql)
        while known < last:
            rows = sql.all(
                "select r.doc, g.session_id, g.number, r.seq, "
                "r.host_time_ms + ifnull(p.host_time_ms, 0), r.kind, r.tool, "
                "r.status, b.size, p.project_id from record as r "
                "cross join generation as g on g.id = r.generation_id "
                "left join blob as b on b.id = r.blob "
                "left join place as p on p.generation_id = r.generation_id and p.number = r.place "
                "where r.doc > ? order by r.doc limit ?",
                (known, ROWS_AT_ONCE),
            )
            if not rows:
                break
            known = rows[-1][0]
            pieces.append(self._columns(rows, parents))
        joined = [
            np.concatenate([getattr(p, name) for p in pieces])
            for name in ("doc", "key", "session", "project", "time_ms", "kind", "evidence", "tool")
        ]
        joined += [
            np.concatenate([getattr(p, name) for p in pieces]) for name in ("outcome", "length")
        ]
        order = np.argsort(joined[1], kind="stable")
        return _Records(last, *(column[order] for column in joined))

    def _columns(self, rows: Iterable[Row], parents: dict[str, bool]) -> _Records:
        made: list[tuple[int, ...]] = []
        for (
            doc,
            session_id,
            generation,
            seq,
            time_ms,
            kind_stored,
            tool,
            state,
            size,
            project,
        ) in rows:
            kind = RecordKind(name_of(RECORD_KINDS, kind_stored))
            status = None if state is None else name_of(STATUSES, state)
            if not has_words(tool, size or 0):
                continue
            tree = SessionTree(SessionId(session_id), generation)
            made.append(
                (
                    doc,
                    (self._tree(tree) << 32) | seq,
                    self._sessions.of(session_id),
                    self._projects.of(project or ""),
                    time_ms,
                    kind_code(kind),
                    evidence_code(kind, tool, status, subagent=parents.get(session_id)),
                    self._tools.of(tool or ""),
                    outcome_code(status),
                    min(size, 2**31 - 1),
                )
            )
        columns = np.array(made, np.int64).reshape(len(made), 10).T
        doc, key, session, project, time_ms, kind_codes, evidence, tool, outcome, size = columns
        return _Records(
            int(doc[-1]) if made else -1,
            doc.astype(np.int32),
            key,
            session.astype(np.int32),
            project.astype(np.int32),
            time_ms,
            kind_codes.astype(np.int8),
            evidence.astype(np.int8),
            tool.astype(np.int32),
            outcome.astype(np.int8),
            size.astype(np.int32),
        )

    def _tree(self, tree: SessionTree) -> int:
        return self._trees.setdefault(tree, len(self._trees))

    def _parts(self, sql: Sql, scope_id: ScopeId) -> _Published:
        """What the scope has published by now, retired or not."""
        before = self._published.get(scope_id)
        known = 0 if before is None else before.end
        rows = sql.all(
            "select p.seq, g.session_id, g.number, c.start, c.end_exclusive - c.start, "
            "p.outcome, p.born from publication as p cross join published as c "
            "on c.scope = p.scope and c.publication = p.seq "
            "cross join generation as g on g.id = c.generation_id "
            f"where p.scope = {_SCOPE} and p.seq >= ? order by p.seq",
            (scope_id, known),
        )
        titles = sql.all(
            "select seq, session_id, title, completed_ms, born from publication "
            f"where scope = {_SCOPE} and seq >= ? order by seq",
            (scope_id, known),
        )
        if before is not None and not titles:
            return before
        made = np.array(
            [
                (
                    seq,
                    self._tree(SessionTree(SessionId(session_id), generation)),
                    start,
                    count,
                    OUTCOMES.index(Outcome(outcome).value),
                    born,
                )
                for seq, session_id, generation, start, count, outcome, born in rows
            ],
            np.int64,
        ).reshape(len(rows), 6)
        number, tree, start, count, outcome, born = made.T
        new = _Published(
            titles[-1][0] + 1 if titles else known,
            number.astype(np.int32),
            tree.astype(np.int32),
            start.astype(np.int32),
            count.astype(np.int32),
            outcome.astype(np.int8),
            born,
            tuple((seq, SessionId(s), title, ms, csn) for seq, s, title, ms, csn in titles),
        )
        if before is not None:
            new = replace(
                new,
                titles=before.titles + new.titles,
                **{
                    name: np.concatenate((getattr(before, name), getattr(new, name)))
                    for name in ("publication", "tree", "start", "count", "outcome", "born")
                },
            )
        self._published[scope_id] = new
        return new


def _joined(low: Longs, high: Longs) -> tuple[Longs, Longs]:
    """Ranges of keys as disjoint ones that do not touch, in order."""
    order = np.argsort(low, kind="stable")
    low, high = low[order], high[order]
    reach = np.maximum.accumulate(high) if len(high) else high
    new = np.ones(len(low), bool)
    new[1:] = low[1:] > reach[:-1]
    begins = np.flatnonzero(new)
    return low[begins], reach[np.append(begins[1:], len(low)) - 1] if len(low) else reach


def left_of(sql: Sql) -> range:
    """The documents that are to be indexed yet."""
    row = sql.one("select value from meta where key = 'index_left'")
    start, _, stop = (str(row[0]) if row is not None else "0 0").partition(" ")
    return range(int(start), int(stop))


def state_of(sql: Sql) -> tuple[int, int]:
    """The counter that says whether what was loaded holds, and the last document; -1 for none."""
    row = sql.one(
        "select (select value from counter where name = 'index'), (select max(doc) from record)"
    )
    version, last = row if row is not None else (None, None)
    return version or 0, -1 if last is None else last


def _parents(sql: Sql) -> dict[str, bool]:
    """Of each session, whether it has a parent."""
    rows = sql.all("select session_id, parent_host_session is not null from session")
    return {session_id: bool(parent) for session_id, parent in rows}
