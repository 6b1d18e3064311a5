"""What a search goes by, in the terms of tests: which records and summaries hold which words."""

from __future__ import annotations

import numpy as np

from optchat.core.snapshots import Visibility
from optchat.core.tree import ScopeTree, SessionTree, Tree
from optchat.refs import Span
from optchat.storage.ports import Places, Tx
from optchat.storage.words import spaced, stems


def _holding(found: dict[str, Places], row_of, told: str) -> set[int]:
    """The visible rows in which the words of ``told`` stand one after another."""
    form = stems(spaced(told))
    at = [set(zip(*_places(found[stem]), strict=True)) for stem in form]
    first = at[0] if at else set()
    docs = {d for d, o in first if all((d, o + n) in more for n, more in enumerate(at))}
    return {row_of[d] for d in docs if d < len(row_of) and row_of[d] >= 0}


def _places(places: Places) -> tuple[list[int], list[int]]:
    return np.repeat(places.docs, places.times).tolist(), places.offsets.tolist()


def _matched(find, row_of, told: tuple[str, ...], excluded: tuple[str, ...]) -> dict[int, set[str]]:
    found = find(sorted({s for t in (*told, *excluded) for s in stems(spaced(t))}))
    rows: dict[int, set[str]] = {}
    for text in told:
        for row in _holding(found, row_of.tolist(), text):
            rows.setdefault(row, set()).add(text)
    gone = {row for text in excluded for row in _holding(found, row_of.tolist(), text)}
    return {row: matched for row, matched in rows.items() if row not in gone}


def records(
    tx: Tx, visibility: Visibility, *told: str, excluded: tuple[str, ...] = ()
) -> dict[tuple[SessionTree, int], set[str]]:
    """The visible records that hold some of the phrases, with those that they hold."""
    frame = tx.search.frame(visibility)
    matched = _matched(tx.search.places, frame.row_of, told, excluded)
    return {(frame.trees[frame.tree[r]], int(frame.seq[r])): m for r, m in matched.items()}


def summaries(
    tx: Tx, visibility: Visibility, *told: str, excluded: tuple[str, ...] = ()
) -> dict[tuple[Tree, Span, int], set[str]]:
    """Like ``records``, for summaries: tree, span and revision."""
    frame = tx.search.frame(visibility)
    nodes = frame.summaries
    matched = _matched(tx.search.node_places, nodes.row_of, told, excluded)
    shared = ScopeTree(visibility.scope_id)
    return {
        (
            frame.trees[nodes.tree[r]] if nodes.tree[r] >= 0 else shared,
            Span(int(nodes.start[r]), int(nodes.count[r])),
            int(nodes.revision[r]),
        ): m
        for r, m in matched.items()
    }


def columns(tx: Tx, visibility: Visibility) -> list[tuple[object, ...]]:
    """A frame's rows by what they mean, in an order that every store has."""
    f = tx.search.frame(visibility)
    return sorted(
        (
            str(f.trees[f.tree[r]]),
            int(f.seq[r]),
            f.sessions[f.session[r]],
            f.projects[f.project[r]],
            int(f.time_ms[r]),
            int(f.kind[r]),
            int(f.evidence[r]),
            f.tools[f.tool[r]],
            int(f.outcome[r]),
            int(f.length[r]),
        )
        for r in range(f.count)
    )


def searchable(tx: Tx, visibility: Visibility) -> int:
    """How many records a search looks at."""
    return tx.search.frame(visibility).count
