"""All searched records of a store as columns: loaded once, extended as records come."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from optchat.core.records import RecordKind
from optchat.core.tree import SessionTree
from optchat.refs import ProjectId, SessionId
from optchat.storage.ports.frame import (
    Columns,
    Ints,
    evidence_code,
    keys_of,
    kind_code,
    outcome_code,
)
from optchat.storage.searched import has_words
from optchat.storage.sqlite.codes import RECORD_KINDS, STATUSES, name_of
from optchat.storage.sqlite.connection import Row, Sql

Name = TypeVar("Name")

ROWS_AT_ONCE = 4_000
LENGTH_MAX = 2**31 - 1

COLUMNS = tuple(column.name for column in fields(Columns))
_WIDTHS = {"time_ms": np.int64, "kind": np.int8, "evidence": np.int8, "outcome": np.int8}


class Numbers(Generic[Name]):
    """Numbers for names, in the order in which they came."""

    def __init__(self) -> None:
        self._numbers: dict[Name, int] = {}

    def of(self, name: Name) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def known(self, name: Name) -> int | None:
        return self._numbers.get(name)

    @property
    def names(self) -> tuple[Name, ...]:
        return tuple(self._numbers)


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """What the numbers in the columns stand for."""

    trees: Numbers[SessionTree] = field(default_factory=Numbers[SessionTree])
    sessions: Numbers[SessionId] = field(default_factory=Numbers[SessionId])
    projects: Numbers[ProjectId] = field(default_factory=Numbers[ProjectId])
    tools: Numbers[str] = field(default_factory=Numbers[str])


class Loaded:
    """The records up to the document ``last``; ``doc`` is the document of each row.

    What is extended is made anew beside what it was, which frames may still hold.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self.last = -1
        self.doc: Ints = np.empty(0, np.int32)
        self.columns = Columns(**_room(0))

    def follow(self, sql: Sql, last: int) -> None:
        """Load the documents up to ``last``. Cost O(all), if there is one that is not here."""
        known, count = self.last, 0
        if last <= known:
            return
        made = {"doc": np.empty(last - known, np.int32), **_room(last - known)}
        values = _Values(sql, self._names)
        while known < last:
            rows = sql.all(
                "select r.doc, r.generation_id, r.seq, p.project_id, "
                "r.host_time_ms + ifnull(p.host_time_ms, 0), r.kind, r.tool, r.status, b.size "
                "from record as r left join blob as b on b.id = r.blob "
                "left join place as p on p.generation_id = r.generation_id and p.number = r.place "
                "where r.doc > ? order by r.doc limit ?",
                (known, ROWS_AT_ONCE),
            )
            if not rows:
                break
            known = rows[-1][0]
            piece = np.array(values.of(rows), np.int64).reshape(-1, len(made)).T
            end = count + piece.shape[1]
            for column, found in zip(made.values(), piece, strict=True):
                column[count:end] = found
            count = end
        self._take(made, count)
        self.last = last

    def _take(self, made: dict[str, NDArray[Any]], count: int) -> None:
        """Put the first ``count`` rows of what was made into their places, column by column."""
        before = self.columns
        tree, seq = (
            np.concatenate((getattr(before, name), made[name][:count])) for name in ("tree", "seq")
        )
        order = np.argsort(keys_of(tree, seq), kind="stable")
        self.doc = np.concatenate((self.doc, made.pop("doc")[:count]))[order]
        self.columns = Columns(
            **{
                name: np.concatenate((getattr(before, name), made.pop(name)[:count]))[order]
                for name in COLUMNS
            }
        )


def chosen(columns: Columns, rows: NDArray[Any]) -> dict[str, Any]:
    """The columns, by name, of some rows: a mask of them. All of them are not copied."""
    found = {name: getattr(columns, name) for name in COLUMNS}
    return found if rows.all() else {name: column[rows] for name, column in found.items()}


def _room(count: int) -> dict[str, Any]:
    return {name: np.empty(count, _WIDTHS.get(name, np.int32)) for name in COLUMNS}


class _Values:
    """Rows of records as numbers. Most of a row repeats, and is told of once."""

    def __init__(self, sql: Sql, names: Names) -> None:
        self._names = names
        self._generations: dict[int, tuple[str, int, bool | None]] = {
            generation: (session_id, number, None if parent is None else bool(parent))
            for generation, session_id, number, parent in sql.all(
                "select g.id, g.session_id, g.number, "
                "iif(s.session_id is null, null, s.parent_host_session is not null) "
                "from generation as g left join session as s on s.session_id = g.session_id"
            )
        }
        self._places = cache(self._place)
        self._codes = cache(self._code)

    def of(self, rows: list[Row]) -> list[tuple[int, ...]]:
        """The document of each row that has words, and what stands for it in ``COLUMNS``."""
        made: list[tuple[int, ...]] = []
        project_of = self._names.projects.of
        for doc, generation, seq, project, time_ms, kind, tool, state, size in rows:
            if has_words(tool, size or 0):
                tree, session, subagent = self._places(generation)
                codes = self._codes(kind, tool, state, subagent=subagent)
                where = (tree, seq, session, project_of(ProjectId(project or "")), time_ms)
                made.append((doc, *where, *codes, min(size, LENGTH_MAX)))
        return made

    def _place(self, generation: int) -> tuple[int, int, bool | None]:
        """The numbers of a generation's tree and session, and whether that is a subagent's."""
        session_id, number, subagent = self._generations[generation]
        tree = SessionTree(SessionId(session_id), number)
        return self._names.trees.of(tree), self._names.sessions.of(tree.session_id), subagent

    def _code(
        self,
        kind_stored: int | str,
        tool: str | None,
        state: int | str | None,
        *,
        subagent: bool | None,
    ) -> tuple[int, int, int, int]:
        kind = RecordKind(name_of(RECORD_KINDS, kind_stored))
        status = None if state is None else name_of(STATUSES, state)
        return (
            kind_code(kind),
            evidence_code(kind, tool, status, subagent=subagent),
            self._names.tools.of(tool or ""),
            outcome_code(status),
        )
