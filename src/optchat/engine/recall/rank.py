"""Which of the visible records answer best: BM25 at several grains, and how words stand (§8, I4).

Everything is counted from the rows of one frame: what is not visible weighs nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optchat.core.evidence import Evidence
from optchat.core.tree import SessionTree
from optchat.engine.recall.places import Flags
from optchat.engine.recall.terms import Asked, Term
from optchat.engine.recall.titles import Titles
from optchat.storage.ports import Frame
from optchat.storage.ports.frame import EVIDENCE, OUTCOMES, Ints

Floats = NDArray[np.float32]
CLOSELY_READ = 300
"""How many of the best are looked at word by word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What each thing counts for.

    Tuned on three of LoCoMo's ten conversations, and on distractors of seeds of our own.
    """

    k1: float = 0.9
    b: float = 0.6
    wide_k1: float = 1.5  # of texts that are wider than a record
    wide_b: float = 0.9
    near: float = 0.3  # the record with one on each side
    around: float = 0.7  # with three
    session: float = 0.8
    project: float = 1.5
    complete: float = 0.2  # all the words are in the record
    close: float = 0.6  # two of them stand side by side
    reach: float = 3.0  # at one and so many words between them it counts half
    ordered: float = 0.6  # two that follow one another in the query do so here
    titled: float = 3.0  # they are in the session's title, or in its project's name
    failed: float = 1.7  # the record is what a call failed with


WEIGHTS = Weights()

_CLASS = {
    Evidence.HUMAN: 1.02,
    Evidence.MODEL: 1.0,
    Evidence.DELEGATED: 0.95,
    Evidence.TOOL_INPUT: 1.0,
    Evidence.UNKNOWN: 0.95,
    Evidence.INJECTED: 0.7,
    Evidence.TOOL_OUTPUT: 0.75,
    Evidence.FILE_READ: 0.6,
    Evidence.WEB_FETCH: 0.6,
    Evidence.SKILL: 0.4,
}
CLASS_WEIGHTS = np.array([_CLASS.get(e, 1.0) for e in EVIDENCE], np.float32)


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


@dataclass(frozen=True, slots=True, eq=False)
class Grain:
    """The lengths of the texts of one width, and what of them every word needs."""

    length: Floats
    texts: int
    average: float

    @classmethod
    def of(cls, length: Floats) -> Grain:
        """A text of no length is none: frames have groups that hold no visible row."""
        texts = int(np.count_nonzero(length))
        return cls(length, texts, float(length.sum(dtype=np.float64)) / max(texts, 1))

    def worth(self, holding: int) -> float:
        """The weight of a word that stands in so many of the texts."""
        return float(np.log(1 + (self.texts - holding + 0.5) / (holding + 0.5)))


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What of a frame every query needs: neighbours and lengths, kept with it."""

    age: NDArray[np.int32]  # the newest row is 0; those of a time by names, as in every store
    begins: NDArray[np.int32]  # the first row of each tree, and one past the last of all
    record: Grain
    near: Grain
    around: Grain
    session: Grain
    project: Grain
    project_of: NDArray[np.int32]  # of each session
    session_of: NDArray[np.int32]  # of each tree; -1 for none, as for the shared tree behind them
    told: NDArray[np.int32]  # the row of which alone a summary tells; -1 for another summary

    @classmethod
    def of(cls, frame: Frame) -> Shape:
        found = frame.derived.get("shape")
        if isinstance(found, Shape):
            return found
        joined = np.zeros(frame.count, np.float32)
        joined[1:] = frame.tree[1:] == frame.tree[:-1]
        length = frame.length.astype(np.float32)
        near = _spread(length, joined, 1)
        named = sorted(range(len(frame.trees)), key=lambda at: _name(frame.trees[at]))
        place = np.empty(len(frame.trees), np.int32)
        place[named] = np.arange(len(named), dtype=np.int32)
        age = np.empty(frame.count, np.int32)
        by_age = np.lexsort((frame.seq, place[frame.tree], -frame.time_ms))
        age[by_age] = np.arange(frame.count, dtype=np.int32)
        project_of = np.zeros(len(frame.sessions), np.int32)
        project_of[frame.session] = frame.project
        numbers = {session: at for at, session in enumerate(frame.sessions)}
        session_of = [numbers.get(tree.session_id, -1) for tree in frame.trees]
        trees = np.arange(len(frame.trees) + 1, dtype=np.int32)
        made = cls(
            age=age,
            begins=np.searchsorted(frame.tree, trees).astype(np.int32),
            record=Grain.of(length),
            near=Grain.of(near),
            around=Grain.of(_spread(length, joined, 3)),
            session=Grain.of(_grouped(length, frame.session, len(frame.sessions))),
            project=Grain.of(_grouped(length, frame.project, len(frame.projects))),
            project_of=project_of,
            session_of=np.array([*session_of, -1], np.int32),
            told=_told(frame),
        )
        frame.derived["shape"] = made
        return made

    def beside(self, frame: Frame, rows: Ints, distance: int) -> tuple[Ints, Ints]:
        """Of each row the rows up to ``distance`` from it in its tree: the first, one past last."""
        tree = frame.tree[rows]
        low = np.maximum(rows - distance, self.begins[tree])
        return low, np.minimum(rows + distance + 1, self.begins[tree + 1])


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
        total[at] += float(classes[at]) * _closeness(stand, idf, weights)
    head = head[_best_first(shape, rows[head], total[head])]
    order = np.concatenate((head, order[CLOSELY_READ:]))
    return Ranked(rows[order], total[order], titled.scores(terms, idf, full), tuple(idf))


class _Scoring:
    """The scores of some rows, word by word; what is counted is counted over the whole frame."""

    def __init__(self, frame: Frame, shape: Shape, rows: Ints, weights: Weights) -> None:
        self._frame, self._shape, self._rows, self._weights = frame, shape, rows, weights
        self._session = frame.session[rows]
        self._grains = [
            (grain, grain.length[rows], *shape.beside(frame, rows, distance), distance, *tuning)
            for grain, distance, tuning in (
                (shape.record, 0, (1.0, weights.k1, weights.b)),
                (shape.near, 1, (weights.near, weights.wide_k1, weights.wide_b)),
                (shape.around, 3, (weights.around, weights.wide_k1, weights.wide_b)),
            )
        ]
        self._total = np.zeros(len(rows), np.float32)

    def above(self, found: Ints, times: Ints) -> Floats:
        """The score of each session as a whole, with its project, for a word of so many places."""
        frame, shape, weights = self._frame, self._shape, self._weights
        wide = (weights.wide_k1, weights.wide_b)
        there = _grouped(times, frame.session[found], len(frame.sessions))
        score = weights.session * _bm25_of_all(there, shape.session, *wide)
        there = _grouped(times, frame.project[found], len(frame.projects))
        score += weights.project * _bm25_of_all(there, shape.project, *wide)[shape.project_of]
        return score

    def add(self, term: Term, found: Ints, times: Ints, above: Floats) -> None:
        """Count a word that stands in the rows ``found``, in each so many ``times``."""
        frame, shape = self._frame, self._shape
        before = np.zeros(frame.count + 1, np.int32)  # how often it stands before each row
        before[found + 1] = times
        np.cumsum(before, out=before)
        score = np.zeros(len(self._rows), np.float32)
        for grain, length, low, high, distance, weight, k1, b in self._grains:
            first, end = shape.beside(frame, found, distance)
            first[1:] = np.maximum(first[1:], end[:-1])
            holding = int((end - first).sum())
            there = (before[high] - before[low]).astype(np.float32)
            score += weight * _bm25(there, length, grain, holding, k1, b)
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
        self._score[named] += (1 + weights.near + weights.around + weights.titled) * worth

    def scores(self, terms: Sequence[Term], idf: Sequence[float], full: float) -> Floats:
        score = self._score
        score *= (self._held > 0) * (1 + self._weights.complete * (self._held / full))
        best = np.argsort(-score, kind="stable")[:CLOSELY_READ]
        for session in best[(score[best] != 0) & (self._words[best] > 1)].tolist():
            places = [self._known.places(session, term.forms) for term in terms]
            score[session] += _closeness(places, idf, self._weights)
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


def _told(frame: Frame) -> Ints:
    nodes = frame.summaries
    keys = (frame.tree.astype(np.int64) << 32) | frame.seq
    wanted = (nodes.tree.astype(np.int64) << 32) | nodes.start
    at = np.searchsorted(keys, wanted)
    found = np.append(keys, -1)[at] == wanted
    return np.where((nodes.count == 1) & (nodes.tree >= 0) & found, at, -1).astype(np.int32)


def _name(tree: SessionTree) -> tuple[str, int]:
    return tree.session_id, tree.generation


def _among(term: Term, count: int) -> Flags:
    found = np.zeros(count, bool)
    found[term.standing.rows] = True
    return found


def _spread(values: Floats, joined: Floats, distance: int) -> Floats:
    """The sum over each row and those up to ``distance`` before and behind it, in its tree."""
    total = values.copy()
    before, behind = values, values
    for _ in range(distance):
        shifted = np.zeros_like(values)
        shifted[1:] = before[:-1] * joined[1:]
        before = shifted
        back = np.zeros_like(values)
        back[:-1] = behind[1:] * joined[1:]
        behind = back
        total += before
        total += behind
    return total


def _grouped(values: Floats | Ints, groups: Ints, count: int) -> Floats:
    return np.bincount(groups, weights=values, minlength=count).astype(np.float32)


def _bm25_of_all(there: Floats, grain: Grain, k1: float, b: float) -> Floats:
    return _bm25(there, grain.length, grain, int(np.count_nonzero(there)), k1, b)


def _bm25(there: Floats, length: Floats, grain: Grain, holding: int, k1: float, b: float) -> Floats:
    """The score of texts of a grain for a word that stands in each so often, ``holding`` in all."""
    scale = k1 * (1 - b + b * length / max(grain.average, 1.0))
    return (grain.worth(holding) * there * (k1 + 1) / (there + scale)).astype(np.float32)


def _closeness(places: Sequence[Sequence[int]], idf: Sequence[float], weights: Weights) -> float:
    """How closely the words of a query stand in one text, given the word numbers of each.

    Each pair counts for the lighter of its words, by the distance at which it stands: more if it is
    a pair of the query, in its order. In a text that repeats its words some are close by chance.
    """
    there = [(which, at) for which, at in enumerate(places) if at]
    total = 0.0
    for index, (one, left) in enumerate(there):
        for other, right in there[index + 1 :]:
            step = _step(left, right)
            chance = (len(left) * len(right)) ** 0.5
            apart = (abs(step) - 1) * chance / weights.reach
            worth = min(idf[one], idf[other]) / (1 + apart)
            total += weights.close * worth
            if other == one + 1 and 0 < step <= 2:
                total += weights.ordered * worth
    return total


def _step(left: Sequence[int], right: Sequence[int]) -> int:
    """The least distance from a number in ``left`` to one in ``right``; both ascend."""
    few, many, sign = (left, right, 1) if len(left) <= len(right) else (right, left, -1)
    best = right[0] - left[0]
    for one in few:
        at = bisect_left(many, one)
        for other in many[max(at - 1, 0) : at + 1]:
            step = sign * (other - one)
            if abs(step) < abs(best) or (abs(step) == abs(best) and step > best):
                best = step
        if 0 <= best <= 1:
            return 1  # none is nearer
    return best or 1
