"""One query over one snapshot: what answers it, in which order, and what was looked at (§8, I4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optchat.core.evidence import Evidence
from optchat.core.tree import ScopeTree
from optchat.engine.recall.filters import (
    FAMILY,
    OWN,
    RECORD_FIELDS,
    Directory,
    Eligible,
    eligible,
    named_sessions,
)
from optchat.engine.recall.hits import Coverage, Relax
from optchat.engine.recall.places import Flags
from optchat.engine.recall.query import Query
from optchat.engine.recall.rank import Ranked, newest_first, rank
from optchat.engine.recall.shape import Floats, Shape
from optchat.engine.recall.summaries import Told, rank_summaries
from optchat.engine.recall.terms import Asked, Finder, Term, resolve
from optchat.engine.recall.titles import Titles
from optchat.engine.visible import Reader
from optchat.storage.ports import Frame
from optchat.storage.ports.frame import Ints

SESSION_HITS_MAX = 4
"""How many places of a session are named when hits are grouped: the best and three more."""

RECORD, TITLE, SUMMARY = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Everything that answers, best first: what it is, its row among those, and its score."""

    kind: NDArray[np.int8]
    row: Ints
    score: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The places of items by their sessions: stretches of ``order``."""

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    ends: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, at: int) -> list[int]:
        return self.order[self.starts[at] : self.ends[at]].tolist()


class Matching:
    """What of a frame answers a query.

    Raises:
        BadInput, NotFound: a session is named that cannot be, or cannot be seen.
    """

    def __init__(self, reader: Reader, query: Query) -> None:
        # First of all, so that what is not to be seen costs as little as what never was.
        named = named_sessions(reader, query.filters)
        self.query = query
        self.unread = reader.unread
        self.shared = ScopeTree(reader.visibility.scope_id)
        self.frame: Frame = reader.tx.search.frame(reader.visibility)
        self.directory = Directory(reader, self.frame)
        Titles.of(self.frame, self.directory.projects)
        self._finder = Finder(reader.tx, self.frame)
        self._eligible: Eligible = eligible(
            reader, self._finder, self.directory, query.filters, named
        )
        self.asked: Asked = resolve(self._finder, query)
        mask = self._eligible.mask()
        if self.asked.wanted:
            self._ranked: Ranked = rank(self.frame, self.asked, mask)
        else:
            self._ranked = newest_first(self.frame, mask & ~self._among(*self.asked.excluded))
        self._told = self._summaries(reader)
        self.items = self._merged()

    @property
    def records(self) -> int:
        """How many records answer."""
        return len(self._ranked.rows)

    @property
    def summaries(self) -> int:
        return len(self._told.rows)

    def sessions(self) -> Groups:
        """The first items of each session; sessions by their best."""
        kind, row = self.items.kind, self.items.row
        session = row.copy()
        session[kind == RECORD] = self.frame.session[row[kind == RECORD]]
        of_tree = Shape.of(self.frame).session_of
        session[kind == SUMMARY] = of_tree[self.frame.summaries.tree[row[kind == SUMMARY]]]
        order = np.argsort(session, kind="stable")
        order = order[session[order] >= 0]
        starts = np.flatnonzero(np.diff(session[order], prepend=-1))
        ends = np.minimum(np.append(starts[1:], len(order)), starts + SESSION_HITS_MAX)
        best = np.argsort(order[starts], kind="stable")
        return Groups(order, starts[best], ends[best])

    def coverage(self) -> Coverage:
        skipped = self._eligible.skipped()
        limits = ["one scope: what other scopes hold is never searched"]
        if self.frame.unindexed:
            limits.append("the search index is being made anew")
        if self.unread:
            limits.append(f"{self.unread} conversations have changed and are not read again yet")
        return Coverage(
            eligible=self.frame.count,
            ranked=self.frame.count - sum(skipped.values()),
            skipped=skipped,
            unindexed=self.frame.unindexed,
            limited_by=limits,
        )

    def relaxed(self) -> list[Relax]:
        """How many records there would be without each of the constraints, most first."""
        asked = self.asked
        everything = self._eligible.mask()
        rows = self._eligible.rows
        own = [name for name in (OWN, FAMILY) if name in rows]
        counts = {name: self._count(self._eligible.mask(name)) for name in rows if name not in own}
        if own:
            counts["leaving out the own family (family: true)"] = self._count(
                self._eligible.mask(*own)
            )
        for phrase in asked.phrases:
            kept = tuple(p for p in asked.phrases if p is not phrase)
            loose = self._finder.parts(phrase)
            counts[f'the quotes of "{phrase.told}"'] = self._count(
                everything, phrases=kept, more=loose
            )
        for word in asked.excluded:
            kept = tuple(w for w in asked.excluded if w is not word)
            counts[f"-{word.told}"] = self._count(everything, excluded=kept)
        found = [Relax(without=name, records=count) for name, count in counts.items() if count]
        return sorted(found, key=lambda relax: (-relax.records, relax.without))

    def _count(
        self,
        mask: Flags,
        *,
        phrases: tuple[Term, ...] | None = None,
        excluded: tuple[Term, ...] | None = None,
        more: tuple[Term, ...] = (),
    ) -> int:
        """The records that would answer; like the condition of ``rank``, but without neighbours."""
        phrases = self.asked.phrases if phrases is None else phrases
        found = mask & ~self._among(*(self.asked.excluded if excluded is None else excluded))
        for phrase in phrases:
            found &= self._among(phrase)
        wanted = (*self.asked.words, *phrases, *more)
        return int((found & self._among(*wanted)).sum() if wanted else found.sum())

    def _among(self, *terms: Term) -> Flags:
        """The rows that hold one of the terms."""
        found = np.zeros(self.frame.count, bool)
        for term in terms:
            found[term.standing.rows] = True
        return found

    def _summaries(self, reader: Reader) -> Told:
        filters = self.query.filters
        if not self.asked.wanted or any(name in self._eligible.rows for name in RECORD_FIELDS):
            return Told(np.empty(0, np.int32), np.empty(0, np.float32))
        return rank_summaries(
            reader.tx,
            self.frame,
            self.asked,
            self._ranked.idf,
            self._eligible.sessions,
            across=not (filters.session or filters.project or filters.directory),
        )

    def _titles(self) -> Ints:
        """The sessions whose titles answer, best first."""
        filters = self.query.filters
        of_record = {*RECORD_FIELDS} & {*self._eligible.rows} - {"time"}
        if of_record and filters.evidence != frozenset({Evidence.TITLE}):
            return np.empty(0, np.int32)
        scores = self._ranked.titles
        found = self._eligible.sessions & (scores > 0)
        for word in self.asked.excluded:
            found &= ~Titles.of(self.frame).holding(word.forms)
        low = -(2**62) if filters.since_ms is None else filters.since_ms
        high = 2**62 if filters.until_ms is None else filters.until_ms
        named = [(at, self.frame.titles[self.frame.sessions[at]]) for at in np.flatnonzero(found)]
        kept = [(at, t) for at, t in named if low <= t.completed_ms < high]
        kept.sort(key=lambda pair: (-float(scores[pair[0]]), -pair[1].publication))
        return np.array([at for at, _ in kept], np.int32)

    def _merged(self) -> Items:
        titles = self._titles()
        pieces = (
            (RECORD, self._ranked.rows, self._ranked.scores),
            (TITLE, titles, self._ranked.titles[titles]),
            (SUMMARY, self._told.rows, self._told.scores),
        )
        kind = np.concatenate([np.full(len(rows), k, np.int8) for k, rows, _ in pieces])
        row = np.concatenate([rows for _, rows, _ in pieces])
        score = np.concatenate([scores for _, _, scores in pieces])
        # Each piece is in order; among equals an original goes before what tells of it.
        order = np.argsort(-score, kind="stable")
        return Items(kind[order], row[order], score[order])
