"""Frontiers, projections and clips (§6, I2, I10), against a plain reference of §6."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optchat.core.tree import cover
from optchat.core.views import Entry, View, advance, clip, coarsest_tokens, project
from optchat.refs import Span

HIGH, LOW = 1000, 400


@dataclass
class Nodes:
    """Which nodes are durable and how long their lines are, both decided by the drawn seeds."""

    sizes: dict[Span, int] = field(default_factory=dict)
    missing: set[Span] = field(default_factory=set)

    def entry(self, span: Span) -> Entry | None:
        if span in self.missing or span not in self.sizes:
            return None
        return Entry(span, 1, self.sizes[span], self.sizes[span] // 2 + 1)


@st.composite
def forests(draw: st.DrawFn, length_max: int = 48) -> tuple[int, Nodes]:
    length = draw(st.integers(0, length_max))
    nodes = Nodes()
    count = 1
    while count <= max(1, length):
        for start in range(0, length - count + 1, count):
            # Sometimes a parent is longer than its children together: then it must not be taken.
            nodes.sizes[Span(start, count)] = draw(st.integers(10, 160))
            if count > 1 and draw(st.integers(0, 3)) == 0:
                nodes.missing.add(Span(start, count))
        count *= 2
    return length, nodes


def leaves(nodes: Nodes, start: int, end: int) -> list[Entry]:
    found = [nodes.entry(Span(seq, 1)) for seq in range(start, end)]
    assert all(found)
    return [e for e in found if e is not None]


def check_cover(entries: tuple[Entry, ...] | list[Entry], length: int) -> None:
    assert (entries[0].span.start if entries else 0) == 0
    assert all(a.span.end_exclusive == b.span.start for a, b in pairwise(entries))
    assert (entries[-1].span.end_exclusive if entries else 0) == length


def eligible(
    entries: list[Entry], parent_of: Callable[[Span], Entry | None], cost: Callable[[Entry], int]
) -> list[tuple[Fraction, int, int, Entry]]:
    """Every pair that §6 allows to merge: (−priority, start, index, parent)."""
    total = entries[-1].span.end_exclusive if entries else 0
    found: list[tuple[Fraction, int, int, Entry]] = []
    for index, (left, right) in enumerate(pairwise(entries)):
        n = left.span.count
        siblings = right.span.count == n and left.span.start % (2 * n) == 0
        parent = parent_of(Span(left.span.start, 2 * n)) if siblings else None
        if parent is not None and cost(parent) < cost(left) + cost(right):
            e = right.span.end_exclusive
            found.append((-Fraction(total - e, n), left.span.start, index, parent))
    return found


def reference_merge(
    entries: list[Entry],
    parent_of: Callable[[Span], Entry | None],
    target: int,
    cost: Callable[[Entry], int],
) -> list[Entry]:
    """One pair at a time, all looked at each time: highest (T − e)/n, earlier start on ties."""
    entries = list(entries)
    while sum(cost(e) for e in entries) > target:
        found = eligible(entries, parent_of, cost)
        if not found:
            break
        _, _, index, parent = min(found, key=lambda f: f[:2])
        entries[index : index + 2] = [parent]
    return entries


def line_bytes(entry: Entry) -> int:
    return entry.line_bytes


def line_tokens(entry: Entry) -> int:
    return entry.line_tokens


@given(forests(), st.data())
def test_a_frontier_covers_its_prefix_and_keeps_the_bound_where_parents_allow(
    forest: tuple[int, Nodes], data: st.DataObject
):
    """Random appends, with parents that come late or never (§6, I2)."""
    length, nodes = forest
    view, shrinking = View(), False
    at = 0
    while at < length:
        step = data.draw(st.integers(1, length - at))
        before = view
        appended = leaves(nodes, at, at + step)
        view = advance(view, appended, nodes.entry, high_bytes=HIGH, low_bytes=LOW)
        at += step
        check_cover(view.entries, at)
        assert view.revision == before.revision + 1
        grown = [*before.entries, *appended]
        shrinking = shrinking or sum(map(line_bytes, grown)) > HIGH
        if shrinking:
            assert list(view.entries) == reference_merge(grown, nodes.entry, LOW, line_bytes)
        else:
            assert list(view.entries) == grown, "no merge below the high bound"
        shrinking = shrinking and view.rendered_bytes > LOW
        assert view.shrinking == shrinking
        # Never pretended: over the high bound only when nothing is left to merge.
        if view.rendered_bytes > LOW and view.shrinking:
            assert not eligible(list(view.entries), nodes.entry, line_bytes)
        # A parent arrives without any append: shrinking goes on.
        arrived = (
            data.draw(st.lists(st.sampled_from(sorted(nodes.missing)), unique=True, max_size=4))
            if nodes.missing
            else []
        )
        nodes.missing -= set(arrived)
        moved = advance(view, [], nodes.entry, high_bytes=HIGH, low_bytes=LOW)
        if not view.shrinking:
            assert moved is view, "between the bounds nothing moves"
        else:
            expected = reference_merge(list(view.entries), nodes.entry, LOW, line_bytes)
            assert list(moved.entries) == expected
        view = moved
        shrinking = view.shrinking
        check_cover(view.entries, at)
    nodes.missing.clear()
    done = advance(view, [], nodes.entry, high_bytes=HIGH, low_bytes=LOW)
    assert not done.shrinking or not eligible(list(done.entries), nodes.entry, line_bytes)


@given(st.integers(2, 200))
def test_with_all_parents_the_low_bound_is_reached(length: int):
    """Lines of one size: the coarsest cover is logarithmic, so that the bound can be reached."""
    nodes = Nodes()
    count = 1
    while count <= length:
        nodes.sizes |= {Span(s, count): 50 for s in range(0, length - count + 1, count)}
        count *= 2
    view = View()
    for seq in range(length):
        view = advance(
            view, leaves(nodes, seq, seq + 1), nodes.entry, high_bytes=HIGH, low_bytes=450
        )
        assert view.rendered_bytes <= HIGH
        assert not view.shrinking


def test_hysteresis_leaves_room_after_a_shrink():
    """After a shrink the next merge waits until the high bound is passed again (§6)."""
    nodes = Nodes({Span(s, 1): 50 for s in range(64)})
    for count in (2, 4, 8, 16, 32, 64):
        nodes.sizes |= {Span(s, count): 50 for s in range(0, 64, count)}
    view, merges = View(), []
    for seq in range(64):
        grown = len(view.entries) + 1
        view = advance(
            view, leaves(nodes, seq, seq + 1), nodes.entry, high_bytes=HIGH, low_bytes=LOW
        )
        merges.append(grown - len(view.entries))
    shrinks = [seq for seq, merged in enumerate(merges) if merged]
    assert shrinks
    assert all(b - a >= (HIGH - LOW) // 50 for a, b in pairwise(shrinks))


def test_the_oldest_pair_goes_first_and_ties_go_to_the_earlier_start():
    nodes = Nodes({Span(s, 1): 100 for s in range(8)})
    nodes.sizes |= {Span(s, 2): 100 for s in range(0, 8, 2)} | {Span(s, 4): 100 for s in (0, 4)}
    view = View(entries=tuple(leaves(nodes, 0, 8)))
    order = []
    for target in range(700, 300, -100):
        merged = advance(view, [], nodes.entry, high_bytes=target, low_bytes=target)
        order.append([str(e.span) for e in merged.entries])
    # T=8: (0,1): 6/1; then (2,3): 4/1; then (0+2,2+2): 4/2 ties with (4,5): 2/1, the earlier wins.
    assert order == [
        ["0+2", "2", "3", "4", "5", "6", "7"],
        ["0+2", "2+2", "4", "5", "6", "7"],
        ["0+4", "4", "5", "6", "7"],
        ["0+4", "4+2", "6", "7"],
    ]


@given(st.integers(0, 5), st.integers(0, 9))
def test_an_append_that_leaves_a_gap_or_overlaps_is_refused(covered: int, start: int):
    assume(start != covered)
    nodes = Nodes({Span(s, 1): 10 for s in range(12)})
    view = View(entries=tuple(leaves(nodes, 0, covered)))
    with pytest.raises(ValueError):
        advance(view, leaves(nodes, start, start + 1), nodes.entry, high_bytes=HIGH, low_bytes=LOW)


@given(forests(), st.integers(0, 3000))
def test_a_projection_covers_the_same_prefix_within_its_budget_or_is_none(
    forest: tuple[int, Nodes], budget: int
):
    length, nodes = forest
    view = View(revision=7, entries=tuple(leaves(nodes, 0, length)))
    before = view.entries
    projected = project(view, nodes.entry, budget_tokens=budget)
    assert (view.revision, view.entries) == (7, before), "the canonical view is not touched"
    coarsest = reference_merge(list(before), nodes.entry, budget, line_tokens)
    if projected is None:
        assert sum(map(line_tokens, coarsest)) > budget
        assert not eligible(coarsest, nodes.entry, line_tokens), "None only if no merge is left"
    else:
        check_cover(projected, length)
        assert list(projected) == coarsest
        assert sum(map(line_tokens, projected)) <= budget


@given(forests(), st.data())
def test_a_clip_is_the_exact_prefix_or_none(forest: tuple[int, Nodes], data: st.DataObject):
    length, nodes = forest
    view = View()
    view = advance(view, leaves(nodes, 0, length), nodes.entry, high_bytes=LOW, low_bytes=LOW // 2)
    nodes.missing |= set(
        data.draw(st.lists(st.sampled_from(sorted(nodes.sizes)), unique=True, max_size=3))
        if nodes.sizes
        else []
    )
    boundary = data.draw(st.integers(0, length + 3))
    clipped = clip(view, boundary, nodes.entry)
    kept = [e for e in view.entries if e.span.end_exclusive <= boundary]
    crossed = next((e.span for e in view.entries if e.span.end_exclusive > boundary), None)
    needed = cover(kept[-1].span.end_exclusive if kept else 0, boundary)
    if clipped is None:
        assert boundary > length or (crossed is not None and nodes.missing & set(needed))
    else:
        check_cover(clipped, boundary)
        assert list(clipped[: len(kept)]) == kept, "what does not cross stays"
        assert tuple(e.span for e in clipped[len(kept) :]) == needed, "no finer than it must be"


def test_a_projection_goes_through_a_parent_with_fewer_bytes_and_more_tokens():
    """§6: what is passed over would bar the way to every coarser node above it."""
    leaves = tuple(Entry(Span(i, 1), 1, 60, 30) for i in range(4))
    parents = {
        Span(0, 2): Entry(Span(0, 2), 1, 110, 66),
        Span(2, 2): Entry(Span(2, 2), 1, 110, 66),
        Span(0, 4): Entry(Span(0, 4), 1, 150, 70),
    }
    view = View(revision=1, entries=leaves)
    assert coarsest_tokens(view, parents.get) == 70
    assert project(view, parents.get, budget_tokens=70) == (parents[Span(0, 4)],)
    assert project(view, parents.get, budget_tokens=69) is None
    # The coarsest need not be the least: what fits on the way is found.
    grown = {**parents, Span(0, 4): Entry(Span(0, 4), 1, 150, 140)}
    assert coarsest_tokens(view, grown.get) == 120
    assert project(view, grown.get, budget_tokens=120) == leaves
