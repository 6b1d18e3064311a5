"""Which of the visible records answer best: BM25 at several grains, and how words stand (§8, I4).

Everything is counted from the rows of one frame: what is not visible weighs nothing.
"""

from __future__ import annotations

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
from optchat.storage.ports.frame import EVIDENCE, OUTCOMES

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

    rows: NDArray[np.int64]
    scores: Floats
    titles: Floats
    idf: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What of a frame every query needs: neighbours and lengths, kept with it."""

    order: NDArray[np.int32]  # of the rows, by the names of what they are: the same in every store
    joined: Floats  # whether a row goes on the conversation of the row before
    length: Floats
    near: Floats
    around: Floats
    session: Floats
    project: Floats
    project_of: NDArray[np.int32]  # of each session

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
        order = np.empty(frame.count, np.int32)
        order[np.lexsort((frame.seq, place[frame.tree]))] = np.arange(frame.count, dtype=np.int32)
        project_of = np.zeros(len(frame.sessions), np.int32)
        project_of[frame.session] = frame.project
        made = cls(
            order=order,
            joined=joined,
            length=length,
            near=near,
            around=_spread(length, joined, 3),
            session=_grouped(length, frame.session, len(frame.sessions)),
            project=_grouped(length, frame.project, len(frame.projects)),
            project_of=project_of,
        )
        frame.derived["shape"] = made
        return made


def rank(frame: Frame, asked: Asked, eligible: Flags, weights: Weights = WEIGHTS) -> Ranked:
    """The eligible rows that hold a word, or stand beside one that does, best first.

    Cost O(rows) for each word, and O(``CLOSELY_READ``) for how the words stand.
    """
    shape = Shape.of(frame)
    wide = (weights.wide_k1, weights.wide_b)
    terms = asked.wanted
    count = frame.count
    total = np.zeros(count, np.float32)
    held = np.zeros(count, np.float32)
    known = Titles.of(frame)
    title = np.zeros(len(frame.sessions), np.float32)  # what the words in it weigh
    heading = np.zeros(len(frame.sessions), np.float32)  # its score
    idf: list[float] = []
    for term in terms:
        rows, times = term.standing.counted()
        there = np.zeros(count, np.float32)
        there[rows] = times
        near = _spread(there, shape.joined, 1)
        score, worth = _bm25(there, shape.length, weights.k1, weights.b)
        worth *= term.weight
        idf.append(worth)
        held[rows] += worth
        score += weights.near * _bm25(near, shape.near, *wide)[0]
        score += weights.around * _bm25(_spread(there, shape.joined, 3), shape.around, *wide)[0]
        sessions = _grouped(there, frame.session, len(frame.sessions))
        projects = _grouped(there, frame.project, len(frame.projects))
        above = weights.session * _bm25(sessions, shape.session, *wide)[0]
        above += weights.project * _bm25(projects, shape.project, *wide)[0][shape.project_of]
        score += above[frame.session]
        total += term.weight * score
        named = known.holding(term.forms)
        title[named] += worth
        heading += term.weight * above
        heading[named] += (1 + weights.near + weights.around + weights.titled) * worth
        placed = named | known.placed(term.forms)
        total[placed[frame.session]] += weights.titled * worth
    full = max(sum(idf), 1e-9)
    total *= 1 + weights.complete * (held / full)
    classes = CLASS_WEIGHTS[frame.evidence]
    classes[frame.outcome == OUTCOMES.index("error")] *= weights.failed
    total *= classes
    heading *= (title > 0) * (1 + weights.complete * (title / full))
    must = eligible & (held > 0)
    for phrase in asked.phrases:
        must &= _among(phrase, count)
    for term in asked.excluded:
        must &= ~_among(term, count)
    rows = np.flatnonzero(must)
    rows = _best_first(frame, rows, total[rows])
    head = rows[:CLOSELY_READ]
    for row in head.tolist():
        places = [term.standing.in_row(row) for term in terms]
        total[row] += float(classes[row]) * _closeness(places, idf, weights)
    for session in np.argsort(-heading, kind="stable")[:CLOSELY_READ].tolist():
        if heading[session]:
            places = [known.places(session, term.forms) for term in terms]
            heading[session] += _closeness(places, idf, weights)
    rows = np.concatenate((_best_first(frame, head, total[head]), rows[CLOSELY_READ:]))
    return Ranked(rows, total[rows], heading, tuple(idf))


def _best_first(frame: Frame, rows: NDArray[np.int64], scores: Floats) -> NDArray[np.int64]:
    """By score; among equals the newer first, and then by what names them, so that stores agree."""
    order = np.lexsort((-Shape.of(frame).order[rows], frame.time_ms[rows], scores))
    return rows[order[::-1]]


def newest_first(frame: Frame, eligible: Flags) -> Ranked:
    """The eligible rows by their time, where nothing but filters was given."""
    rows = np.flatnonzero(eligible)
    none = np.zeros(len(rows), np.float32)
    titles = np.zeros(len(frame.sessions), np.float32)
    return Ranked(_best_first(frame, rows, none), none, titles, ())


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


def _grouped(values: Floats, groups: NDArray[np.int32], count: int) -> Floats:
    return np.bincount(groups, weights=values, minlength=count).astype(np.float32)


def _bm25(there: Floats, length: Floats, k1: float, b: float) -> tuple[Floats, float]:
    """The score of each text for one word that stands in it so often, and the word's weight.

    A text of no length is none: frames have groups that hold no visible row.
    """
    texts = int(np.count_nonzero(length))
    holding = int(np.count_nonzero(there))
    if not holding:
        return np.zeros_like(there), float(np.log(1 + (texts + 0.5) / 0.5))
    worth = float(np.log(1 + (texts - holding + 0.5) / (holding + 0.5)))
    average = float(length.sum(dtype=np.float64)) / max(texts, 1)
    scale = k1 * (1 - b + b * length / max(average, 1.0))
    score: Floats = (worth * there * (k1 + 1) / (there + scale)).astype(np.float32)
    return score, worth


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
    best = right[0] - left[0]
    i = j = 0
    while i < len(left) and j < len(right):
        step = right[j] - left[i]
        if abs(step) < abs(best) or (abs(step) == abs(best) and step > best):
            best = step
        if step > 0:
            i += 1
        else:
            j += 1
    return best or 1
