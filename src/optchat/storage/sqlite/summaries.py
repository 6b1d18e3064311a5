"""The summaries that a snapshot sees, as columns."""

from __future__ import annotations

import numpy as np

from optchat.core.snapshots import Visibility
from optchat.core.tree import ScopeTree, SessionTree, parse_tree
from optchat.storage.ports.frame import Ints, Longs, Summaries, keys_of
from optchat.storage.sqlite.columns import ROWS_AT_ONCE, Names
from optchat.storage.sqlite.connection import Sql

_SHARED, _UNSEEN = -1, -2


def visible_summaries(
    sql: Sql, visibility: Visibility, names: Names, low: Longs, high: Longs
) -> Summaries:
    """Those of the shared tree, and of sessions; what can be seen of these is ``[low, high)``.

    Cost O(all summaries of the store).
    """
    number_of = _tree_numbers(sql, visibility, names)
    last = -1
    pieces = [np.empty((0, 5), np.int32)]
    while rows := sql.all(
        "select doc, tree, start, count, revision from node_doc "
        "where doc > ?1 and born <= ?2 and (died is null or died > ?2) order by doc limit ?3",
        (last, visibility.csn, ROWS_AT_ONCE),
    ):
        last = int(rows[-1][0])
        piece = np.array(rows, np.int32)
        piece[:, 1] = number_of[piece[:, 1]]
        pieces.append(piece[piece[:, 1] != _UNSEEN])
    found = np.concatenate(pieces)
    _, tree, start, count, _ = found.T
    key = keys_of(tree, start)
    low, high = _joined(low, high)
    at = np.searchsorted(low, key, side="right") - 1
    inside = (at >= 0) & (key + count <= high[at]) if len(low) else key < 0
    shared = (tree == _SHARED) & (start + count <= visibility.publication_end)
    found = found[np.where(tree == _SHARED, shared, inside)]
    row_of = np.full(last + 1, -1, np.int32)
    row_of[found[:, 0]] = np.arange(len(found))
    _, tree, start, count, revision = found.T.copy()
    return Summaries(tree=tree, start=start, count=count, revision=revision, row_of=row_of)


def _tree_numbers(sql: Sql, visibility: Visibility, names: Names) -> Ints:
    """The number of each tree, by what it is in this file."""
    rows = sql.all("select id, name from tree order by id")
    numbers = np.full(rows[-1][0] + 1 if rows else 0, _UNSEEN, np.int32)
    shared = str(ScopeTree(visibility.scope_id))
    for tree, name in rows:
        parsed = parse_tree(name) if name.startswith("g:") else None
        known = names.trees.known(parsed) if isinstance(parsed, SessionTree) else None
        numbers[tree] = _SHARED if name == shared else _UNSEEN if known is None else known
    return numbers


def _joined(low: Longs, high: Longs) -> tuple[Longs, Longs]:
    """Ranges of keys as disjoint ones that do not touch, in order."""
    order = np.argsort(low, kind="stable")
    low, high = low[order], high[order]
    reach = np.maximum.accumulate(high) if len(high) else high
    new = np.ones(len(low), bool)
    new[1:] = low[1:] > reach[:-1]
    begins = np.flatnonzero(new)
    return low[begins], reach[np.append(begins[1:], len(low)) - 1] if len(low) else reach
