"""Which of the visible records answer best: BM25 at several grains, and how words stand (§8, I4).

Everything is counted from the rows of one frame: what is not visible weighs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optchat.engine.recall.closeness import closeness
from optchat.engine.recall.places import Flags
from optchat.engine.recall.shape import LENT_UNIT, Floats, Grain, Shape, grouped
from optchat.engine.recall.terms import Asked, Term
from optchat.engine.recall.titles import Titles
from optchat.engine.recall.weights import CLASS_WEIGHTS, WEIGHTS, Weights
from optchat.storage.ports import Frame
from optchat.storage.ports.frame import OUTCOMES, Ints

CLOSELY_READ = 300
"""How many of the best are looked at word by word."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """The rows that answer, best first, with their scores.

    ``titles`` are the scores of the sessions' titles, 0 where none of the words is in one, and
    ``idf`` what each of the wanted terms weighs; both are on the scale of ``scores``.
    """

    rows: Ints
    scores: Floats
    titles: Floats
    idf: tuple[float, ...]


def rank(frame: Frame, asked: Asked, eligible: Flags, weights: Weights = WEIGHTS) -> Ranked:
    """The eligible rows that hold a word, or stand beside one that does, best first.

    Cost for each word O(its places) and O(rows that answer), and O(``CLOSELY_READ``) for how the
    words stand.
    """
    shape = Shape.of(frame)
    terms = asked.wanted
    counted = [term.standing.counted() for term in terms]
    worths = [shape.record.worth(len(rows)) for rows, _ in counted]
    idf = [worth * term.weight for worth, term in zip(worths, terms, strict=True)]
    held = np.zeros(frame.count, np.float32)
    for (found, _), worth in zip(counted, idf, strict=True):
        held[found] += worth
    must = eligible & (held > 0)
    for phrase in asked.phrases:
        must &= _among(phrase, frame.count)
    for term in asked.excluded:
        must &= ~_among(term, frame.count)
    rows = np.flatnonzero(must).astype(np.int32)
    scoring = _Scoring(frame, shape, rows, weights)
    titles = Titles.of(frame)
    titled = _Titled(titles, len(frame.sessions), weights)
    for term, (found, times), worth in zip(terms, counted, idf, strict=True):
        named = titles.holding(term.forms)
        above = scoring.above(found, times)
        scoring.add(term, found, times, above)
        scoring.place(named | titles.placed(term.forms), worth)
        titled.add(term, worth, named, above)
    full = max(sum(idf), 1e-9)
    total, classes = scoring.weighed(held[rows], full)
    order = _best_first(shape, rows, total)
    head = order[:CLOSELY_READ]
    places = [term.standing.in_rows(rows[head]) for term in terms]
    for at, *stand in zip(head.tolist(), *places, strict=True):
        total[at] += float(classes[at]) * closeness(stand, idf, weights)
    head = head[_best_first(shape, rows[head], total[head])]
    order = np.concatenate((head, order[CLOSELY_READ:]))
    return Ranked(rows[order], total[order], titled.scores(terms, idf, full), tuple(idf))


class _Scoring:
    """The scores of some rows, word by word; what is counted is counted over the whole frame."""

    def __init__(self, frame: Frame, shape: Shape, rows: Ints, weights: Weights) -> None:
        self._frame, self._shape, self._rows, self._weights = frame, shape, rows, weights
        self._session = frame.session[rows]
        self._wide = [
            (grain, grain.length[rows], *shape.beside(frame, rows, distance), distance, weight)
            for grain, distance, weight in (
                (shape.near, 1, weights.near),
                (shape.around, 3, weights.around),
            )
        ]
        self._total = np.zeros(len(rows), np.float32)

    def above(self, found: Ints, times: Ints) -> Floats:
        """The score of each session as a whole, with its project, for a word of so many places."""
        frame, shape, weights = self._frame, self._shape, self._weights
        wide = (weights.wide_k1, weights.wide_b)
        there = grouped(times, frame.session[found], len(frame.sessions))
        score = weights.session * _bm25_of_all(there, shape.session, *wide)
        there = grouped(times, frame.project[found], len(frame.projects))
        score += weights.project * _bm25_of_all(there, shape.project, *wide)[shape.project_of]
        return score

    def add(self, term: Term, found: Ints, times: Ints, above: Floats) -> None:
        """Count a word that stands in the rows ``found``, in each so many ``times``."""
        frame, shape, weights = self._frame, self._shape, self._weights
        own = np.zeros(frame.count, np.float32)
        own[found] = times
        record, length = shape.record, shape.record.length[self._rows]
        score = _bm25(own[self._rows], length, record, len(found), weights.k1, weights.b)
        before = np.zeros(frame.count + 1, np.int64)  # what of it all before each row lend
        before[found + 1] = shape.lent(found, times)
        np.cumsum(before, out=before)
        for grain, length, low, high, distance, weight in self._wide:
            first, end = shape.beside(frame, found, distance)
            first[1:] = np.maximum(first[1:], end[:-1])
            holding = int((end - first).sum())
            there = ((before[high] - before[low]) / LENT_UNIT).astype(np.float32)
            tuning = (weights.wide_k1, weights.wide_b)
            score += weight * _bm25(there, length, grain, holding, *tuning)
        score += above[self._session]
        self._total += term.weight * score

    def place(self, sessions: Flags, worth: float) -> None:
        """Count a word that names some sessions."""
        self._total[sessions[self._session]] += self._weights.titled * worth

    def weighed(self, held: Floats, full: float) -> tuple[Floats, Floats]:
        """The scores by how much of the query a row holds and what it is, and the latter alone."""
        frame, rows = self._frame, self._rows
        self._total *= 1 + self._weights.complete * (held / full)
        classes = CLASS_WEIGHTS[frame.evidence[rows]]
        classes[frame.outcome[rows] == OUTCOMES.index("error")] *= self._weights.failed
        self._total *= classes
        return self._total, classes


class _Titled:
    """The scores of the sessions' titles, word by word."""

    def __init__(self, known: Titles, sessions: int, weights: Weights) -> None:
        self._known = known
        self._weights = weights
        self._held = np.zeros(sessions, np.float32)  # what the words in it weigh
        self._words = np.zeros(sessions, np.int32)
        self._score = np.zeros(sessions, np.float32)

    def add(self, term: Term, worth: float, named: Flags, above: Floats) -> None:
        weights = self._weights
        self._held[named] += worth
        self._words[named] += 1
        self._score += term.weight * above
        self._score[named] += (1 + weights.titled) * worth  # nothing stands beside a title

    def scores(self, terms: Sequence[Term], idf: Sequence[float], full: float) -> Floats:
        score = self._score
        score *= (self._held > 0) * (1 + self._weights.complete * (self._held / full))
        best = np.argsort(-score, kind="stable")[:CLOSELY_READ]
        for session in best[(score[best] != 0) & (self._words[best] > 1)].tolist():
            places = [self._known.places(session, term.forms) for term in terms]
            score[session] += closeness(places, idf, self._weights)
        score *= self._weights.told
        return score


def _best_first(shape: Shape, rows: Ints, scores: Floats) -> NDArray[np.intp]:
    """The order by score; among equals the newer first, and then by what names them."""
    bits = (scores + np.float32(0)).view(np.int32)  # in the order of the scores, if not negative
    bits = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    return np.argsort((-bits.astype(np.int64) << 32) | shape.age[rows])


def newest_first(frame: Frame, eligible: Flags) -> Ranked:
    """The eligible rows by their time, where nothing but filters was given."""
    rows = np.flatnonzero(eligible).astype(np.int32)
    none = np.zeros(len(rows), np.float32)
    titles = np.zeros(len(frame.sessions), np.float32)
    return Ranked(rows[np.argsort(Shape.of(frame).age[rows])], none, titles, ())


def _among(term: Term, count: int) -> Flags:
    found = np.zeros(count, bool)
    found[term.standing.rows] = True
    return found


def _bm25_of_all(there: Floats, grain: Grain, k1: float, b: float) -> Floats:
    return _bm25(there, grain.length, grain, int(np.count_nonzero(there)), k1, b)


def _bm25(there: Floats, length: Floats, grain: Grain, holding: int, k1: float, b: float) -> Floats:
    """The score of texts of a grain for a word that stands in each so often, ``holding`` in all."""
    scale = k1 * (1 - b + b * length / max(grain.typical, 1.0))
    return (grain.worth(holding) * there * (k1 + 1) / (there + scale)).astype(np.float32)
