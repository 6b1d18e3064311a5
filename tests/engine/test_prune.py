"""Pruning takes only what nothing can show any more: I3, §6, §9."""

from __future__ import annotations

import pytest

from optchat.core.tree import ScopeTree, SessionTree

LONG = "The broker keeps every message until its consumer acknowledges it. " * 12


@pytest.fixture
def bench(make_bench):
    return make_bench(
        own_high_bytes=1_500, own_low_bytes=900, shared_high_bytes=700, shared_low_bytes=400
    )


def talk(bench, *sessions, turns=1):
    for turn in range(turns):
        for session in sessions:
            session.turn(f"request {turn}", LONG + str(turn))
            bench.drain()


def revisions(bench, tree) -> int:
    """How many revisions of a view are there, told apart by the snapshots that see them."""
    last = bench.read(lambda tx: tx.meta.csn())
    seen = {bench.read(lambda tx, c=c: tx.trees.view(tree, c)).revision for c in range(last + 1)}
    return len(seen - {0})


def folds(bench, session) -> list[bool]:
    """Whether the fold of each pinned turn is still there."""
    return [
        bench.read(lambda tx, t=t: tx.folds.fold(t.fold_id)) is not None
        for t in bench.turns(session)
        if t.fold_id is not None
    ]


def test_an_open_turn_reads_its_view_and_its_base_after_pruning(bench):
    """I3: the pinned snapshot, its shared view and every byte of the request stay the same."""
    a, b = bench.session("A"), bench.session("B")
    talk(bench, a, b, turns=2)
    b.user("a long turn")
    b.sync()
    first = b.assemble()
    tree = ScopeTree(bench.scope().scope_id)
    pin = bench.turns("B")[-1].pin
    before = bench.read(lambda tx: tx.trees.view(tree, pin.csn))
    talk(bench, a, turns=4)
    assert bench.read(lambda tx: tx.trees.view(tree)).revision > before.revision + 1
    assert bench.service.tidy() > 0
    assert bench.read(lambda tx: tx.trees.view(tree, pin.csn)) == before
    assert b.assemble() == first
    # Decided anew under the same snapshot, as when it outgrows its room: the view is needed again.
    b.assistant("x" * 40_000, tools=(("read", {}, LONG * 20),))
    b.sync()
    assert b.assemble().state == "ready"
    assert bench.turns("B")[-1].pin == pin


def test_pruning_leaves_one_view_a_tree_and_the_folds_of_the_last_turns(make_bench):
    """§6: what is left is bounded by what can be asked for, not by how long a session ran."""
    bench = make_bench(
        layout="every-turn",
        own_high_bytes=1_500,
        own_low_bytes=900,
        shared_high_bytes=700,
        shared_low_bytes=400,
    )
    a, b = bench.session("A"), bench.session("B")
    talk(bench, a, b, turns=5)
    shared, own = ScopeTree(bench.scope().scope_id), SessionTree(bench.held("A").session_id, 0)
    assert revisions(bench, shared) > 5
    assert revisions(bench, own) > 2
    assert all(folds(bench, "A"))
    bench.service.tidy()
    assert (revisions(bench, shared), revisions(bench, own)) == (1, 1)
    assert folds(bench, "A") == [False, False, False, True, True]
    assert bench.service.tidy() == 0


def test_sessions_go_on_after_pruning_as_they_would_without(make_bench):
    """I2, I3: the same requests to a bench that is tidied at each step and to one that never is."""
    told = []
    for tidied in (False, True):
        bench = make_bench(own_high_bytes=1_500, own_low_bytes=900)
        a, b = bench.session("A"), bench.session("B")
        answers = []
        for turn in range(5):
            for session in (a, b):
                if turn == 3 and session is a:
                    a.edited(1, "I take it back.")
                    a.sync(idle=True)
                answers.append(session.turn(f"request {turn}", LONG + str(turn)))
                bench.drain()
                if tidied:
                    bench.service.tidy()
        told.append([(x.state, x.base, x.keep_from, x.news) for x in answers])
    assert told[0] == told[1]
