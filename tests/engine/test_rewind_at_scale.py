"""What a rewind costs a large scope: ancestors of what it retires, and nobody's snapshot (§12)."""

from __future__ import annotations

import math

import pytest

from optchat.core.publications import Publication
from optchat.core.records import Outcome
from optchat.core.tree import Node, NodeKind, ScopeTree, ancestors
from optchat.engine.forest import Forest
from optchat.engine.publish import advance_shared_view
from optchat.errors import NotFound
from optchat.refs import SessionId, Span, TurnId
from tests.harness.request_reader import check_sent

PUBLICATIONS = 5_000
RETIRED = Span(2_000, 2)


def published_by_others(bench, count: int) -> None:
    """Turns of sessions that are not looked at here, with their nodes, in few transactions."""

    def work(tx, first, last):
        scope = next(iter(tx.sessions.scopes()))
        tree = ScopeTree(scope.scope_id)
        csn = tx.meta.next_csn()
        for seq in range(first, last):
            tx.publications.append(
                Publication(
                    scope_id=scope.scope_id,
                    seq=seq,
                    session_id=SessionId("others"),
                    generation=0,
                    turn_id=TurnId(f"turn-{seq}"),
                    start_seq=seq,
                    end_seq_exclusive=seq + 1,
                    outcome=Outcome.COMPLETED,
                    opened_ms=seq,
                    completed_ms=seq,
                    published_ms=seq,
                    cover=(),
                    born=csn,
                )
            )
            span = Span(seq, 1)
            while True:
                tx.trees.put_node(
                    Node(
                        tree=tree,
                        span=span,
                        revision=1,
                        kind=NodeKind.SUMMARY,
                        label="",
                        text=f"what others did, {span}",
                        input_hash=str(span),
                        model="others",
                        prompt_version="1",
                        born=csn,
                    )
                )
                if span.parent.end_exclusive != seq + 1:
                    break
                span = span.parent
        advance_shared_view(tx, bench.deps, Forest(tx, ScopeTree(scope.scope_id)), last)

    start = bench.scope().publications
    for first in range(start, start + count, 500):
        last = min(first + 500, start + count)
        bench.store.write(lambda tx, first=first, last=last: work(tx, first, last))


@pytest.fixture
def large(bench):
    """A scope of 5,000 publications of which two in the middle are of a session at hand."""
    a = bench.session()
    a.user("not yet done")
    a.sync()
    published_by_others(bench, RETIRED.start)
    a.assistant("the first answer", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    a.turn("and the second request", "the second answer")
    bench.drain()
    assert [p.session_id for p in bench.publications()].count(bench.held().session_id) == 2
    published_by_others(bench, PUBLICATIONS - RETIRED.end_exclusive)
    bench.drain()
    assert bench.scope().publications == PUBLICATIONS
    return a


def test_a_rewind_makes_only_the_ancestors_of_what_it_retires_again(bench, large):
    tree = ScopeTree(bench.scope().scope_id)
    before = bench.read(lambda tx: tx.meta.csn())
    large.edited(0, "asked otherwise")
    large.sync(idle=True)
    above = set(ancestors(RETIRED, PUBLICATIONS))
    bound = math.ceil(math.log2(PUBLICATIONS))
    expected = above | {RETIRED}
    assert len(expected) <= bound

    def view(tx):
        return tx.trees.view(tree)

    meanwhile = bench.read(view)
    assert meanwhile.covered == PUBLICATIONS
    assert not {e.span for e in meanwhile.entries} & above
    made = bench.drain()

    def anew(tx):
        leaves = {Span(seq, 1) for seq in range(RETIRED.start, RETIRED.end_exclusive)}
        found = {}
        for span in expected | leaves:
            node = tx.trees.node(tree, span)
            assert node is not None, span
            assert node.revision == 2, span
            assert node.born > before, span
            found[span] = node
        others = (span.sibling for span in above if span.sibling.end_exclusive <= PUBLICATIONS)
        for span in others:
            sibling = tx.trees.node(tree, span)
            assert sibling is not None
            assert sibling.born <= before, span
        return found

    found = bench.read(anew)
    assert "the first answer" not in "".join(node.text for node in found.values())
    # The node over nothing else was made at once. Besides those above it: both turns as they are
    # now, published at the end, and the node over them.
    assert made == len(above) + 3
    assert bench.read(view).covered == PUBLICATIONS + 2


def test_a_rewind_revokes_nobody_s_snapshot(bench, large):
    """Only a deletion or a change of policy raises the epoch; a turn that is open reads on (§9)."""
    b = bench.session("B")
    b.user("what did A say?")
    b.sync()
    answer = b.assemble()
    ref = f"pub:{RETIRED.start}"
    before = b.call("memory_zoom", ref=ref).output
    epoch = bench.scope().retention_epoch
    large.edited(0, "asked otherwise")
    large.sync(idle=True)
    bench.drain()
    assert bench.scope().retention_epoch == epoch
    assert b.call("memory_zoom", ref=ref).output == before
    assert b.assemble().base == answer.base
    b.assistant("it said this", terminal="completed")
    b.sync(idle=True)
    b.user("and now?")
    b.sync()
    check_sent(b, b.assemble())
    with pytest.raises(NotFound):
        b.call("memory_zoom", ref=ref)
