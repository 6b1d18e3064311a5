"""What a scope has published, retired or not, as tables: loaded once, extended as more comes."""

# ruff: noqa: S608  (what is formatted in are this package's own conditions)

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optchat.core.records import Outcome
from optchat.core.snapshots import Visibility
from optchat.core.tree import SessionTree
from optchat.refs import ScopeId, SessionId
from optchat.storage.ports.frame import OUTCOMES, Ints, Titled
from optchat.storage.sqlite.columns import ROWS_AT_ONCE, Names, Numbers
from optchat.storage.sqlite.connection import Sql
from optchat.storage.sqlite.visible import SCOPE

Table = NDArray[np.void]

_SCOPE = SCOPE.format("?")
_PARTS = np.dtype(
    [
        ("publication", np.int32),
        ("born", np.int64),
        ("tree", np.int32),
        ("start", np.int32),
        ("count", np.int32),
        ("outcome", np.int8),
    ]
)
_TITLES = np.dtype(
    [
        ("publication", np.int32),
        ("born", np.int64),
        ("session", np.int32),
        ("title", np.int32),
        ("completed_ms", np.int64),
    ]
)


class Published:
    """The publications of one scope up to before ``_end``."""

    def __init__(self, scope_id: ScopeId, names: Names) -> None:
        self._scope_id = scope_id
        self._names = names
        self._end = 0
        self._parts: Table = np.empty(0, _PARTS)
        self._titles: Table = np.empty(0, _TITLES)
        # Not the records' numbers: a session that has no searched record has a title too.
        self._sessions: Numbers[SessionId] = Numbers()
        self._told: Numbers[str] = Numbers()  # a session's title comes again with each turn

    def follow(self, sql: Sql) -> None:
        """Load what has been published since."""
        row = sql.one(
            f"select ifnull(max(seq) + 1, 0) from publication where scope = {_SCOPE}",
            (self._scope_id,),
        )
        end = int(row[0]) if row is not None else 0
        parts, titles = [self._parts], [self._titles]
        for start in range(self._end, end, ROWS_AT_ONCE):
            asked = (self._scope_id, start, min(start + ROWS_AT_ONCE, end))
            parts.append(self._parts_of(sql, asked))
            titles.append(self._titles_of(sql, asked))
        if end > self._end:
            self._parts, self._titles = np.concatenate(parts), np.concatenate(titles)
            self._end = end

    def visible(self, visibility: Visibility, gone: Ints) -> tuple[Table, dict[SessionId, Titled]]:
        """What the snapshot sees: parts of publications, and the last title of each session.

        ``gone`` are the numbers of those that are dead to it.
        """
        parts, titles = (
            table[
                (table["publication"] < visibility.publication_end)
                & (table["born"] <= visibility.csn)
                & ~np.isin(table["publication"], gone)
            ]
            for table in (self._parts, self._titles)
        )
        sessions, told = self._sessions.names, self._told.names
        last = np.full(len(sessions), -1, np.intp)
        last[titles["session"]] = np.arange(len(titles))
        rows: list[tuple[int, ...]] = titles[last[last >= 0]].tolist()
        return parts, {
            sessions[session]: Titled(told[title], publication, completed_ms)
            for publication, _, session, title, completed_ms in rows
        }

    def _parts_of(self, sql: Sql, asked: tuple[Any, ...]) -> Table:
        rows = sql.all(
            "select p.seq, p.born, g.session_id, g.number, c.start, c.end_exclusive - c.start, "
            "p.outcome from publication as p cross join published as c "
            "on c.scope = p.scope and c.publication = p.seq "
            "cross join generation as g on g.id = c.generation_id "
            f"where p.scope = {_SCOPE} and p.seq >= ? and p.seq < ? order by p.seq",
            asked,
        )
        tree, code = self._names.trees.of, OUTCOMES.index
        return np.array(
            [
                (
                    seq,
                    born,
                    tree(SessionTree(SessionId(session_id), generation)),
                    start,
                    count,
                    code(Outcome(outcome).value),
                )
                for seq, born, session_id, generation, start, count, outcome in rows
            ],
            _PARTS,
        )

    def _titles_of(self, sql: Sql, asked: tuple[Any, ...]) -> Table:
        rows = sql.all(
            "select seq, born, session_id, title, completed_ms from publication "
            f"where scope = {_SCOPE} and seq >= ? and seq < ? order by seq",
            asked,
        )
        session, told = self._sessions.of, self._told.of
        return np.array(
            [
                (seq, born, session(SessionId(session_id)), told(title), completed_ms)
                for seq, born, session_id, title, completed_ms in rows
            ],
            _TITLES,
        )


def gone(sql: Sql, visibility: Visibility) -> Ints:
    """The numbers of the scope's publications that are dead to the snapshot."""
    rows = sql.all(
        f"select seq from publication where scope = {_SCOPE} and died is not null and died <= ?",
        (visibility.scope_id, visibility.csn),
    )
    return np.array([row[0] for row in rows], np.int32)
