"""Persisted bounded views: ordered frontiers of tree nodes (§6).

A frontier covers ``[0, covered)`` of its sequence without gap or overlap. Ordinary appends reuse
it; above ``high_bytes`` it shrinks, by merging sibling pairs whose parent is durable, until it is
at most ``low_bytes``. All sizes are of the lines as rendered.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from optchat.refs import Span


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One node on a frontier: which revision of it, and what its rendered line costs."""

    span: Span
    revision: int
    line_bytes: int
    line_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A frontier and its revision. ``shrinking`` survives until the low bound is reached.

    The mode is kept, rather than derived, because §6 asks for hysteresis: between the two bounds a
    view is shrinking or not depending on which it crossed last.
    """

    revision: int = 0
    entries: tuple[Entry, ...] = ()
    shrinking: bool = False

    @property
    def covered(self) -> int:
        """The length of the prefix that the frontier covers."""
        return self.entries[-1].span.end_exclusive if self.entries else 0

    @property
    def rendered_bytes(self) -> int:
        return sum(e.line_bytes for e in self.entries)

    @property
    def rendered_tokens(self) -> int:
        return sum(e.line_tokens for e in self.entries)


ParentOf = Callable[[Span], Entry | None]
"""The entry of a durable parent node, or None while it is not made."""


def advance(
    view: View,
    appended: Sequence[Entry],
    parent_of: ParentOf,
    *,
    high_bytes: int,
    low_bytes: int,
) -> View:
    """Append leaves and, above the high bound, merge down to the low one (§6).

    Returns the same object when nothing changed, else a view with the next revision. Shrinking also
    goes on without an append, so a parent that arrives late is used.

    Raises:
        ValueError: if ``appended`` does not continue the frontier without a gap.
    """
    entries = list(view.entries)
    at = view.covered
    for entry in appended:
        if entry.span.start != at:
            raise ValueError(f"the view ends at {at}, the next entry starts at {entry.span.start}")
        entries.append(entry)
        at = entry.span.end_exclusive
    size = sum(e.line_bytes for e in entries)
    shrinking = view.shrinking or size > high_bytes
    if shrinking:
        entries, size, _ = _merge(entries, parent_of, low_bytes, lambda e: e.line_bytes)
        shrinking = size > low_bytes
    if tuple(entries) == view.entries and shrinking == view.shrinking:
        return view
    return View(revision=view.revision + 1, entries=tuple(entries), shrinking=shrinking)


def project(view: View, parent_of: ParentOf, *, budget_tokens: int) -> tuple[Entry, ...] | None:
    """A coarser cover of the same prefix within ``budget_tokens``; None if there is none yet.

    The canonical view is not touched (§6).
    """
    entries, size, _ = _merge(list(view.entries), parent_of, budget_tokens, lambda e: e.line_tokens)
    return tuple(entries) if size <= budget_tokens else None


def coarsest_tokens(view: View, parent_of: ParentOf) -> int:
    """The least budget for which ``project`` finds a cover now."""
    return _merge(list(view.entries), parent_of, 0, lambda e: e.line_tokens)[2]


def clip(view: View, boundary: int, node_at: ParentOf) -> tuple[Entry, ...] | None:
    """The frontier of ``[0, boundary)``: entries that cross the boundary give way to finer nodes.

    None when a finer node that is needed is not there.
    """
    kept: list[Entry] = []
    for entry in view.entries:
        if entry.span.end_exclusive <= boundary:
            kept.append(entry)
            continue
        pending = [entry.span]
        while pending:
            span = pending.pop()
            if span.start >= boundary:
                continue
            if span.end_exclusive <= boundary:
                found = node_at(span)
                if found is None:
                    return None
                kept.append(found)
            else:
                left, right = span.children
                pending += [right, left]
        break
    covered = kept[-1].span.end_exclusive if kept else 0
    return tuple(kept) if covered == boundary else None


def replaced(view: View, span: Span, entries: Sequence[Entry]) -> View:
    """A new revision in which the entry that covers ``span`` gives way to finer ``entries``.

    Used when a node is retired: the view falls back to what is left below it.
    """
    kept = [e for e in view.entries if e.span != span]
    merged = tuple(sorted((*kept, *entries), key=lambda e: e.span.start))
    return replace(view, revision=view.revision + 1, entries=merged)


def _merge(
    entries: list[Entry], parent_of: ParentOf, target: int, cost: Callable[[Entry], int]
) -> tuple[list[Entry], int, int]:
    """Merge eligible sibling pairs, highest ``(T - e) / n`` first, until the cost is the target.

    A pair is eligible when its parent is durable and renders to fewer bytes than the pair, whatever
    is counted: a line with two times in it may have more tokens than two short lines, and nothing
    above it could be reached if it were passed over. O(k log k) in the length k of the frontier,
    plus one ``parent_of`` a pair.

    Returns:
        The frontier, its cost, and the least cost on the way, which may lie before the last.
    """
    size = least = sum(cost(e) for e in entries)
    if size <= target or len(entries) < 2:
        return entries, size, least
    total = entries[-1].span.end_exclusive
    following = {e.span.start: e for e in entries}
    starts_by_end = {e.span.end_exclusive: e.span.start for e in entries}
    queue: list[tuple[float, int, Span, Entry]] = []

    def offer(left: Entry) -> None:
        right = following.get(left.span.end_exclusive)
        if right is None or right.span != left.span.sibling or left.span.start > right.span.start:
            return
        parent = parent_of(left.span.parent)
        if parent is None or parent.line_bytes >= left.line_bytes + right.line_bytes:
            return
        # The heap is a min-heap, so the priority is negated; ties go to the earlier start.
        priority = (total - parent.span.end_exclusive) / left.span.count
        heapq.heappush(queue, (-priority, parent.span.start, left.span, parent))

    for entry in entries:
        offer(entry)
    while size > target and queue:
        _, start, left_span, parent = heapq.heappop(queue)
        left = following.get(start)
        if left is None or left.span != left_span:
            continue
        right = following.pop(left.span.end_exclusive)
        following[start] = parent
        starts_by_end[parent.span.end_exclusive] = start
        size += cost(parent) - cost(left) - cost(right)
        least = min(least, size)
        offer(parent)
        before = starts_by_end.get(start)
        if before is not None and before in following:
            previous = following[before]
            if previous.span.end_exclusive == start:
                offer(previous)
    return sorted(following.values(), key=lambda e: e.span.start), size, least
