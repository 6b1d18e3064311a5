"""Nodes and views are immutable revisions that end, never change (§4, §6)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from optchat.core.tree import NodeKind, ScopeTree, SessionTree
from optchat.core.views import Entry, View
from optchat.errors import Conflict
from optchat.refs import Csn, ScopeId, SessionId, Span

TREES = [SessionTree(SessionId("a"), 0), ScopeTree(ScopeId("project:p1"))]


@pytest.fixture(params=TREES, ids=str)
def tree(request):
    return request.param


def put(world, *nodes) -> list[bool]:
    return [world.write(lambda tx, node=node: tx.trees.put_node(node)) for node in nodes]


def node(world, *args):
    return world.read(lambda tx: tx.trees.node(*args))


def test_a_node_comes_back_whole(world, tree):
    made = world.a_node(tree, Span(4, 4), kind=NodeKind.VERBATIM, text="ünï\0code", label="")
    assert put(world, made) == [True]
    assert node(world, tree, Span(4, 4)) == made
    assert world.read(lambda tx: tx.trees.node_revision(tree, Span(4, 4), 1)) == made
    assert node(world, tree, Span(4, 2)) is None
    assert world.read(lambda tx: tx.trees.node_revision(tree, Span(4, 4), 2)) is None
    assert node(world, SessionTree(SessionId("other"), 0), Span(4, 4)) is None


def test_the_same_inputs_make_no_second_revision(world, tree):
    made = world.a_node(tree, Span(0, 1), input_hash="same")
    assert put(world, made, replace(made, revision=2, text="other words")) == [True, False]
    assert node(world, tree, Span(0, 1)) == made


def test_a_second_live_revision_is_a_conflict(world, tree):
    put(world, world.a_node(tree, Span(0, 1)))
    with pytest.raises(Conflict):
        put(world, world.a_node(tree, Span(0, 1), 2))


def test_a_taken_revision_number_is_a_conflict(world, tree):
    put(world, world.a_node(tree, Span(0, 1)))
    world.write(lambda tx: tx.trees.retire_node(tree, Span(0, 1), Csn(5)))
    with pytest.raises(Conflict):
        put(world, world.a_node(tree, Span(0, 1), input_hash="new"))
    assert put(world, world.a_node(tree, Span(0, 1), 2)) == [True]


def test_a_retired_nodes_inputs_can_be_summarised_again(world, tree):
    made = world.a_node(tree, Span(0, 1), input_hash="same")
    put(world, made)
    world.write(lambda tx: tx.trees.retire_node(tree, Span(0, 1), Csn(5)))
    assert put(world, replace(made, revision=2, born=Csn(5))) == [True]


def test_each_snapshot_sees_the_revision_of_its_time(world, tree):
    """I3."""
    span = Span(0, 2)
    first = world.a_node(tree, span, born=Csn(2))
    second = world.a_node(tree, span, 2, born=Csn(5))
    put(world, first)
    world.write(lambda tx: tx.trees.retire_node(tree, span, Csn(5)))
    put(world, second)
    ended = replace(first, died=Csn(5))
    assert [node(world, tree, span, Csn(c)) for c in (1, 2, 4, 5, 9)] == [
        None,
        ended,
        ended,
        second,
        second,
    ]
    assert node(world, tree, span) == second
    assert world.read(lambda tx: tx.trees.node_revision(tree, span, 1)) == ended


def test_retiring_what_is_not_live_changes_nothing(world, tree):
    world.write(lambda tx: tx.trees.retire_node(tree, Span(0, 1), Csn(3)))
    put(world, world.a_node(tree, Span(0, 1)))
    for csn in (4, 6):
        world.write(lambda tx, c=csn: tx.trees.retire_node(tree, Span(0, 1), Csn(c)))
    assert node(world, tree, Span(0, 1)) is None
    found = world.read(lambda tx: tx.trees.node_revision(tree, Span(0, 1), 1))
    assert found is not None
    assert found.died == 4


def test_the_last_revision_counts_the_retired_too(world, tree):
    span = Span(0, 1)
    assert world.read(lambda tx: tx.trees.last_revision(tree, span)) == 0
    put(world, world.a_node(tree, span, 3))
    world.write(lambda tx: tx.trees.retire_node(tree, span, Csn(5)))
    assert world.read(lambda tx: tx.trees.last_revision(tree, span)) == 3


def test_nodes_in_gives_the_named_revisions_in_the_order_asked(world, tree):
    nodes = {span: world.a_node(tree, span) for span in (Span(0, 1), Span(1, 1), Span(0, 2))}
    put(world, *nodes.values())
    asked = [(Span(0, 2), 1), (Span(4, 4), 1), (Span(0, 1), 1), (Span(0, 1), 2), (Span(0, 2), 1)]
    found = world.read(lambda tx: tx.trees.nodes_in(tree, asked))
    assert found == (nodes[Span(0, 2)], None, nodes[Span(0, 1)], None, nodes[Span(0, 2)])
    assert world.read(lambda tx: tx.trees.nodes_in(tree, [])) == ()


def test_leaves_stop_at_the_first_gap(world, tree):
    for start in (0, 1, 2, 4):
        put(world, world.a_node(tree, Span(start, 1)))
    put(world, world.a_node(tree, Span(0, 2)))

    def starts(start: int, limit: int) -> list[int]:
        found = world.read(lambda tx: tx.trees.leaves_from(tree, start, limit))
        assert all(n.span.count == 1 for n in found)
        return [n.span.start for n in found]

    assert starts(0, 10) == [0, 1, 2]
    assert starts(1, 1) == [1]
    assert starts(3, 10) == []
    assert starts(4, 10) == [4]
    assert starts(0, 0) == []
    world.write(lambda tx: tx.trees.retire_node(tree, Span(1, 1), Csn(9)))
    assert starts(0, 10) == [0]


def a_view(revision: int, *, shrinking: bool = False) -> View:
    entries = tuple(Entry(Span(at, 1), 1, 100 + at, 30) for at in range(revision))
    return View(revision=revision, entries=entries, shrinking=shrinking)


def test_there_is_an_empty_view_before_the_first(world, tree):
    assert world.read(lambda tx: tx.trees.view(tree)) == View()
    assert world.read(lambda tx: tx.trees.view(tree, Csn(5))) == View()


def test_each_snapshot_sees_the_view_of_its_time(world, tree):
    views = {2: a_view(1), 4: a_view(2, shrinking=True), 7: a_view(3)}
    for born, view in views.items():
        world.write(lambda tx, v=view, b=born: tx.trees.put_view(tree, v, Csn(b)))
    seen = {c: world.read(lambda tx, c=c: tx.trees.view(tree, Csn(c))) for c in (1, 2, 3, 4, 9)}
    assert seen == {1: View(), 2: views[2], 3: views[2], 4: views[4], 9: views[7]}
    assert world.read(lambda tx: tx.trees.view(tree)) == views[7]


@pytest.mark.parametrize("revision", [0, 1, 3])
def test_a_view_that_does_not_follow_the_newest_is_a_conflict(world, tree, revision):
    world.write(lambda tx: tx.trees.put_view(tree, a_view(1), Csn(1)))
    with pytest.raises(Conflict):
        world.write(lambda tx: tx.trees.put_view(tree, a_view(revision), Csn(2)))
    assert world.read(lambda tx: tx.trees.view(tree)) == a_view(1)


def test_pruning_keeps_the_newest_view_and_what_the_pinned_snapshots_see(world, tree):
    """I3: whatever else goes, an open turn finds the frontier that it began with."""
    for born, revision in ((2, 1), (4, 2), (7, 3), (9, 4)):
        world.write(lambda tx, r=revision, b=born: tx.trees.put_view(tree, a_view(r), Csn(b)))
    assert world.write(lambda tx: tx.trees.prune_views(tree, [Csn(5), Csn(6), Csn(1)])) == 2
    assert world.read(lambda tx: tx.trees.view(tree, Csn(5))) == a_view(2)
    assert world.read(lambda tx: tx.trees.view(tree, Csn(2))) == View()
    assert world.read(lambda tx: tx.trees.view(tree)) == a_view(4)
    assert world.write(lambda tx: tx.trees.prune_views(tree, ())) == 1
    assert world.read(lambda tx: tx.trees.view(tree)) == a_view(4)
    world.write(lambda tx: tx.trees.put_view(tree, a_view(5), Csn(100)))
