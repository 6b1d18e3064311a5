"""Ranking of search hits at several grains, from what was found and nothing else (§8, I4).

A hit is scored by BM25 as a record, with its near neighbours, its turn and its session; then by how
much of the question it covers, how near the words stand to each other, and what kind of text it is.
Every statistic is made of visible records: the caller hands in nothing else. Pure arithmetic.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Counts = dict[int, float]


@dataclass(frozen=True, slots=True)
class Weights:
    """Tuned on the first three conversations of LoCoMo; nothing here knows of a test case."""

    k1: float = 0.9
    b: float = 0.3
    near: float = 0.3
    around: float = 0.3
    turn: float = 0.5
    session: float = 1.0
    coverage: float = 0.3
    proximity: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One visible record that holds something of the question.

    ``counts`` is how often it holds each concept, by the concept's number, variants weighed;
    ``places`` where. ``title`` marks the title of a session, which is no record.
    """

    session: str
    tree: str
    turn: str
    seq: int
    size: int
    counts: Mapping[int, float]
    places: Mapping[int, Sequence[int]]
    factor: float = 1.0


class _Grain:
    """Units of one size: what each holds, and how many hold each concept."""

    def __init__(self) -> None:
        self.units: dict[object, Counts] = defaultdict(dict)
        self.holding: dict[int, int] = defaultdict(int)

    def add(self, unit: object, counts: Mapping[int, float]) -> None:
        held = self.units[unit]
        for concept, count in counts.items():
            if concept not in held:
                self.holding[concept] += 1
            held[concept] = held.get(concept, 0.0) + count

    def score(self, unit: object, total: int, weights: Weights, boost: Sequence[float]) -> float:
        return sum(
            boost[c] * _idf(total, self.holding[c]) * _saturated(count, 1.0, weights)
            for c, count in sorted(self.units[unit].items())
        )


def rank(
    found: Sequence[Evidence],
    *,
    boost: Sequence[float],
    records: int,
    turns: int,
    sessions: int,
    weights: Weights = Weights(),
) -> list[float]:
    """A score for each of ``found``, in its order. Cost O(hits · concepts).

    ``boost`` weighs each concept; ``records``, ``turns`` and ``sessions`` are what is visible.
    """
    if not found:
        return []
    single, by_turn, by_session = _Grain(), _Grain(), _Grain()
    held = {(e.tree, e.seq): e.counts for e in found}
    mean = sum(e.size for e in found) / len(found)
    for index, evidence in enumerate(found):
        single.add(index, evidence.counts)
        by_turn.add((evidence.tree, evidence.turn), evidence.counts)
        by_session.add(evidence.session, evidence.counts)
    idf = {c: boost[c] * _idf(records, n) for c, n in single.holding.items()}
    asked = sum(idf.values())
    turn_scores = {u: by_turn.score(u, turns, weights, boost) for u in by_turn.units}
    session_scores = {
        u: by_session.score(u, sessions, weights, boost)
        * (1 + weights.coverage * (sum(idf[c] for c in sorted(held_there)) / asked if asked else 0))
        for u, held_there in by_session.units.items()
    }
    scores: list[float] = []
    for evidence in found:
        length = evidence.size / mean if mean else 1.0
        own = _bm25(evidence.counts, idf, length, weights)
        near = _bm25(_window(held, evidence, 1), idf, 1.0, weights)
        around = _bm25(_window(held, evidence, 3), idf, 1.0, weights)
        covered = sum(idf[c] for c in sorted(evidence.counts)) / asked if asked else 0.0
        own *= 1 + weights.coverage * covered
        own += weights.proximity * _proximity(evidence, idf)
        scores.append(
            own * evidence.factor
            + weights.near * near
            + weights.around * around
            + weights.turn * turn_scores[evidence.tree, evidence.turn]
            + weights.session * session_scores[evidence.session]
        )
    return scores


def _idf(total: int, holding: int) -> float:
    return math.log(1 + (max(total, holding) - holding + 0.5) / (holding + 0.5))


def _saturated(count: float, length: float, weights: Weights) -> float:
    norm = weights.k1 * (1 - weights.b + weights.b * length)
    return count * (weights.k1 + 1) / (count + norm)


def _bm25(
    counts: Mapping[int, float], idf: Mapping[int, float], length: float, weights: Weights
) -> float:
    return sum(idf[c] * _saturated(n, length, weights) for c, n in sorted(counts.items()))


def _window(
    held: Mapping[tuple[str, int], Mapping[int, float]], evidence: Evidence, reach: int
) -> Counts:
    """What a record and its neighbours hold together."""
    total: Counts = {}
    for seq in range(evidence.seq - reach, evidence.seq + reach + 1):
        for concept, count in held.get((evidence.tree, seq), {}).items():
            total[concept] = total.get(concept, 0.0) + count
    return total


def _proximity(evidence: Evidence, idf: Mapping[int, float]) -> float:
    """How near neighbouring concepts of the question stand to each other in the record."""
    total = 0.0
    present = sorted(c for c in evidence.places if evidence.places[c])
    for left, right in pairwise(present):
        gap = _gap(evidence.places[left], evidence.places[right])
        total += min(idf[left], idf[right]) * 2 / (1 + gap)
    return total


def _gap(left: Sequence[int], right: Sequence[int]) -> int:
    """The least distance between two sorted lists of places. Cost O(n)."""
    best, i, j = 1_000_000, 0, 0
    while i < len(left) and j < len(right):
        best = min(best, abs(left[i] - right[j]))
        if left[i] < right[j]:
            i += 1
        else:
            j += 1
    return max(best, 1)
