"""How closely the words of a query stand in one text (§8)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from optchat.engine.recall.weights import Weights


def closeness(places: Sequence[Sequence[int]], idf: Sequence[float], weights: Weights) -> float:
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
