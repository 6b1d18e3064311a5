"""Summaries that answer a query: a way to the originals below them (§8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optchat.engine.recall.places import Flags, ascending, in_sequence
from optchat.engine.recall.shape import Floats, Shape
from optchat.engine.recall.terms import Asked, Term
from optchat.engine.recall.weights import WEIGHTS
from optchat.storage.ports import Frame, Tx
from optchat.storage.ports.frame import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """The rows of a frame's summaries that answer, with their scores."""

    rows: Ints
    scores: Floats


def rank_summaries(
    tx: Tx, frame: Frame, asked: Asked, idf: tuple[float, ...], sessions: Flags, *, across: bool
) -> Told:
    """The summaries that hold a word of the query: of ``sessions``, and of several if ``across``.

    ``idf`` is what the words weigh among the records, so that scores can be compared. One that
    stands for a single record which matches by itself is left out.
    """
    found = _Summaries(tx, frame, asked)
    score = np.zeros(found.count, np.float32)
    held = np.zeros(found.count, np.float32)
    must = np.ones(found.count, bool)
    for term, worth in zip(asked.wanted, idf, strict=True):
        rows = found.rows(term)
        score[rows] += term.weight * worth
        held[rows] += worth
    for phrase in asked.phrases:
        must &= found.among(phrase)
    for term in asked.excluded:
        must &= ~found.among(term)
    must &= found.of_sessions(sessions, across=across)
    score *= 1 + WEIGHTS.complete * held / max(sum(idf), 1e-9)
    rows = np.flatnonzero(must & (score > 0) & ~found.told_by_records(asked))
    return Told(rows.astype(np.int32), WEIGHTS.told * score[rows])


class _Summaries:
    def __init__(self, tx: Tx, frame: Frame, asked: Asked) -> None:
        self._frame = frame
        self._nodes = frame.summaries
        self.count = len(self._nodes.tree)
        terms = (*asked.wanted, *asked.excluded)
        stems = {stem for term in terms for form in term.forms for stem in form}
        self._places = tx.search.node_places(sorted(stems))

    def rows(self, term: Term) -> Ints:
        found = [
            in_sequence([self._places[stem] for stem in form], self._nodes.rows).rows
            for form in term.forms
        ]
        return ascending(np.concatenate(found or [np.empty(0, np.int32)]))

    def among(self, term: Term) -> Flags:
        found = np.zeros(self.count, bool)
        found[self.rows(term)] = True
        return found

    def of_sessions(self, sessions: Flags, *, across: bool) -> Flags:
        """Those of the sessions' own trees, and those of the shared tree if ``across``."""
        session_of = Shape.of(self._frame).session_of
        allowed = np.zeros(len(session_of), bool)
        known = session_of >= 0
        allowed[known] = sessions[session_of[known]]
        allowed[-1] = across  # the shared tree is -1
        return allowed[self._nodes.tree]

    def told_by_records(self, asked: Asked) -> Flags:
        told = Shape.of(self._frame).told
        matching = np.zeros(self._frame.count + 1, bool)  # the last is -1
        for term in asked.wanted:
            matching[term.standing.rows] = True
        return matching[told]
