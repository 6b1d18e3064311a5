"""Frames out of rows: loaded once, extended as records come, dropped when something was removed.

A frame belongs to a state of the file. The counter ``index`` says whether what was loaded may still
be used; every transaction that takes records or publications away, or moves them, raises it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from optchat.core.snapshots import Visibility
from optchat.core.tree import ScopeTree, SessionTree, parse_tree
from optchat.refs import ScopeId
from optchat.storage.ports.frame import Frame, Longs, Summaries, keys_of
from optchat.storage.sqlite.columns import Loaded, Names, chosen
from optchat.storage.sqlite.connection import Sql
from optchat.storage.sqlite.published import Published, gone

FRAMES_KEPT = 3
ROWS_KEPT = 600_000
"""Of all kept frames together, each with what is worked out of it: 50 bytes. The last one stays."""


def drop_frames(sql: Sql) -> None:
    """Have what is loaded of the store forgotten: rows were removed, moved or indexed anew."""
    sql.run("update counter set value = value + 1 where name = 'index'")


class Frames:
    """The frames of one store, for all its readers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = -1
        self._clear()

    def _clear(self) -> None:
        self._names = Names()
        self._loaded = Loaded(self._names)
        self._published: dict[ScopeId, Published] = {}
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
                self._drop_oldest()
            self._frames.move_to_end(asked)
            return found

    def _drop_oldest(self) -> None:
        frames = self._frames
        while len(frames) > 1 and (
            len(frames) > FRAMES_KEPT or sum(f.count for f in frames.values()) > ROWS_KEPT
        ):
            frames.popitem(last=False)

    def _made(self, sql: Sql, visibility: Visibility, last: int) -> Frame:
        names, loaded = self._names, self._loaded
        loaded.follow(sql, last)
        published = self._published.setdefault(
            visibility.scope_id, Published(visibility.scope_id, names)
        )
        published.follow(sql)
        parts, titles = published.visible(visibility, gone(sql, visibility))
        tree, start = parts["tree"], parts["start"]
        count, outcome = parts["count"], parts["outcome"]
        own = visibility.own.segments if visibility.own is not None else ()
        known = [
            (number, s.start, s.end_exclusive - s.start)
            for s in own
            if (number := names.trees.known(s.tree)) is not None
        ]
        if known:
            mine = np.array(known, np.int32)
            # The own records come first, so that how a published turn ended is kept of them.
            tree = np.concatenate((mine[:, 0], tree))
            start = np.concatenate((mine[:, 1], start))
            count = np.concatenate((mine[:, 2], count))
            outcome = np.concatenate((np.zeros(len(known), np.int8), outcome))
        columns = loaded.columns
        keys, first = columns.keys, keys_of(tree, start)
        low = np.searchsorted(keys, first)
        sizes = np.searchsorted(keys, first + count) - low
        rows = np.repeat(low - np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes)
        rows += np.arange(len(rows))
        seen = np.zeros(columns.count, bool)
        seen[rows] = True
        ended = np.zeros(columns.count, np.int8)
        ended[rows] = np.repeat(outcome, sizes)
        row_of = np.full(loaded.last + 1, -1, np.int32)
        row_of[loaded.doc[seen]] = np.arange(int(seen.sum()), dtype=np.int32)
        left = left_of(sql)
        unread = (loaded.doc >= left.start) & (loaded.doc < left.stop)
        found = chosen(columns, seen)
        own_state = found["outcome"]
        found["outcome"] = np.where(own_state > 0, own_state, ended[seen])
        return Frame(
            **found,
            trees=names.trees.names,
            sessions=names.sessions.names,
            projects=names.projects.names,
            tools=names.tools.names,
            row_of=row_of,
            titles=titles,
            summaries=_summaries(sql, visibility, names, first, first + count),
            unindexed=int((unread & seen).sum()),
        )


def _summaries(
    sql: Sql, visibility: Visibility, names: Names, low: Longs, high: Longs
) -> Summaries:
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
            tree = names.trees.known(parsed) if isinstance(parsed, SessionTree) else None
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
