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
from optchat.refs import ScopeId
from optchat.storage.ports.frame import Frame, keys_of
from optchat.storage.sqlite.columns import Loaded, Names, chosen
from optchat.storage.sqlite.connection import Sql
from optchat.storage.sqlite.published import Published, gone
from optchat.storage.sqlite.summaries import visible_summaries

FRAMES_KEPT = 3
ROWS_KEPT = 600_000
"""Of all kept frames together, some 60 bytes each with what is worked out of them. One stays."""


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
        # By their readers: to one whose snapshot has moved, the frame before it is of no use.
        self._frames: OrderedDict[Hashable, tuple[Hashable, Frame]] = OrderedDict()

    def frame(self, sql: Sql, visibility: Visibility) -> Frame:
        """The frame of a snapshot, as the transaction of ``sql`` sees it."""
        own = visibility.own.segments if visibility.own is not None else ()
        reader = (visibility.scope_id, visibility.session_id)
        asked = (visibility.csn, visibility.publication_end, own)
        with self._lock:
            version, last = state_of(sql)
            if version != self._version:
                self._clear()
                self._version = version
            kept = self._frames.pop(reader, None)
            if kept is None or kept[0] != asked:
                kept = None  # before the next one is made
                kept = asked, self._made(sql, visibility, last)
            self._frames[reader] = kept
            self._drop_oldest()
            return kept[1]

    def _drop_oldest(self) -> None:
        frames = self._frames
        while len(frames) > 1 and (
            len(frames) > FRAMES_KEPT or sum(f.count for _, f in frames.values()) > ROWS_KEPT
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
            summaries=visible_summaries(sql, visibility, names, first, first + count),
            unindexed=int((unread & seen).sum()),
        )


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
