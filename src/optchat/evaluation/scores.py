"""Counting: reciprocal ranks, hits among the first, and times. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


def rank_of(found: Sequence[str], relevant: frozenset[str]) -> int:
    """The place of the first relevant one, from 1 on; 0 where there is none."""
    return next((place for place, one in enumerate(found, 1) if one in relevant), 0)


@dataclass(slots=True)
class Ranks:
    """The ranks of the first relevant answers of some questions."""

    ranks: list[int] = field(default_factory=list[int])
    broken: int = 0

    def add(self, rank: int, *, broken: bool = False) -> None:
        self.ranks.append(rank)
        self.broken += broken

    def hit(self, first: int) -> float:
        """The part of the questions that have an answer among the ``first``."""
        return _part(sum(0 < rank <= first for rank in self.ranks), len(self.ranks))

    @property
    def mrr(self) -> float:
        return _part(sum(1 / rank for rank in self.ranks if rank), len(self.ranks))

    def figures(self) -> dict[str, float]:
        """As the issue of evaluations names them."""
        return {
            "cases": len(self.ranks),
            "mrr": self.mrr,
            "hit@1": self.hit(1),
            "hit@5": self.hit(5),
            "exclusions_broken": self.broken,
        }


@dataclass(slots=True)
class Evidence:
    """What became of questions that have several evidence turns each."""

    first: Ranks = field(default_factory=Ranks)
    whole: int = 0

    def add(self, found: Sequence[str], evidence: frozenset[str]) -> None:
        self.first.add(rank_of(found, evidence))
        self.whole += evidence <= set(found[:10])

    def figures(self) -> dict[str, float]:
        any_of = {f"any@{first}": self.first.hit(first) for first in (1, 5, 10, 20)}
        count = len(self.first.ranks)
        return {
            "questions": count,
            **any_of,
            "all@10": _part(self.whole, count),
            "mrr": self.first.mrr,
        }


def drawn(questions: Sequence[T], sample: int | None, seed: int) -> list[T]:
    """``sample`` of the questions, in their order, the same ones for the same seed; None: all."""
    count = len(questions) if sample is None else min(sample, len(questions))
    places = random.Random(seed).sample(range(len(questions)), count)  # noqa: S311  # no secret
    return [questions[place] for place in sorted(places)]


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """The middle and the slow end of some times, in milliseconds."""
    ordered = sorted(seconds) or [0.0]
    return {
        f"p{part}_ms": round(1000 * ordered[math.ceil(len(ordered) * part / 100) - 1], 2)
        for part in (50, 95)
    }


def _part(some: float, whole: int) -> float:
    return round(some / whole, 4) if whole else 0.0
