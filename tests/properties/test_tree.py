"""Covers and ancestors of dyadic ranges (§4, §5)."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optchat.core.records import Generation, Lineage, extend
from optchat.core.tree import ScopeTree, SessionTree, ancestors, cover, parse_tree
from optchat.refs import ScopeId, SessionId, Span


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int]:
    start = draw(st.one_of(st.integers(0, 300), st.integers(0, 2**40)))
    return start, start + draw(st.one_of(st.integers(0, 300), st.integers(0, 2**40)))


@given(ranges())
def test_a_cover_is_exact_disjoint_ordered_and_aligned(span_range: tuple[int, int]):
    start, end = span_range
    spans = cover(start, end)
    at = start
    for span in spans:
        assert span.start == at, "no gap and no overlap"
        assert span.start % span.count == 0
        assert span.count & (span.count - 1) == 0
        at = span.end_exclusive
    assert at == end


@given(ranges())
def test_a_cover_has_at_most_two_log_n_spans(span_range: tuple[int, int]):
    start, end = span_range
    count = end - start
    assert len(cover(start, end)) <= max(1, 2 * math.log2(count)) if count else True


@given(ranges())
def test_no_two_spans_of_a_cover_can_be_merged(span_range: tuple[int, int]):
    spans = cover(*span_range)
    assert all(a.sibling != b or a.start > b.start for a, b in pairwise(spans))


@given(st.integers(0, 300))
def test_an_empty_range_has_an_empty_cover(start: int):
    assert cover(start, start) == ()


@pytest.mark.parametrize("start, end", [(-1, 3), (3, 2), (-2, -1)])
def test_what_is_no_range_is_refused(start: int, end: int):
    with pytest.raises(ValueError):
        cover(start, end)


@given(st.integers(0, 500), st.integers(1, 500))
def test_ancestors_are_exactly_the_complete_spans_above(start: int, length: int):
    leaf = Span(start, 1)
    expected = [
        Span(start // count * count, count)
        for count in (1 << level for level in range(1, 12))
        if start // count * count + count <= length
    ]
    assert list(ancestors(leaf, length)) == expected


@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1), st.integers(0, 99))
def test_a_tree_s_key_leads_back_to_it(name: str, generation: int):
    for tree in (SessionTree(SessionId(name), generation), ScopeTree(ScopeId(f"project:{name}"))):
        assert parse_tree(str(tree)) == tree


@st.composite
def lineages(draw: st.DrawFn) -> Lineage:
    """Generations that each inherit a prefix of the one before (§12)."""
    lineage: Lineage | None = None
    base: SessionTree | None = None
    for number in range(draw(st.integers(1, 5))):
        inherited = draw(st.integers(0, lineage.length)) if lineage is not None else 0
        made = Generation(
            session_id=SessionId("s"),
            number=number,
            base=base,
            inherited=inherited,
            length=inherited + draw(st.integers(0, 9)),
        )
        lineage = extend(lineage, made)
        base = made.tree
    assert lineage is not None
    return lineage


@given(lineages(), st.data())
def test_each_record_of_a_lineage_has_exactly_one_owner(lineage: Lineage, data: st.DataObject):
    start = data.draw(st.integers(0, lineage.length))
    end = data.draw(st.integers(start, lineage.length))
    pieces = lineage.owners(start, end)
    assert [r for p in pieces for r in range(p.start, p.end_exclusive)] == list(range(start, end))
    for piece in pieces:
        for seq in range(piece.start, piece.end_exclusive):
            assert lineage.tree_of(Span(seq, 1)) == piece.tree


@given(lineages(), st.data())
def test_a_clipped_lineage_is_the_same_history_up_to_there(lineage: Lineage, data: st.DataObject):
    end = data.draw(st.integers(0, lineage.length))
    clipped = lineage.clipped(end)
    assert clipped.owners(0, end) == lineage.owners(0, end)
    assert clipped.length == end
    with pytest.raises(LookupError):
        clipped.tree_of(Span(end, 1))
