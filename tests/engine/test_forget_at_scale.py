"""What forgetting one turn costs a scope of 5,000 publications (§10, §12)."""

from __future__ import annotations

import math

from optchat.core.tree import ScopeTree, ancestors
from optchat.refs import Span
from optchat.wire import ForgetRequest
from tests.engine.test_rewind_at_scale import PUBLICATIONS, RETIRED, large  # noqa: F401


def test_forgetting_one_turn_makes_only_its_ancestors_again(bench, large):  # noqa: F811
    """By the height of the tree, in nodes, in jobs and in statements."""
    tree = ScopeTree(bench.scope().scope_id)
    leaf = Span(RETIRED.start, 1)
    own = ancestors(Span(0, 1), len(bench.records("A")))
    before, statements = bench.read(lambda tx: tx.meta.csn()), bench.store.statements
    told = bench.service.forget(
        ForgetRequest(what="turn", name=f"pub:{leaf.start}", directory="/project")
    )
    spent = bench.store.statements - statements
    above = ancestors(leaf, PUBLICATIONS)
    bound = math.ceil(math.log2(PUBLICATIONS))
    assert len(above) <= bound
    jobs = bench.counts()
    due = len(above) + len(own) - 1  # the node over its two own records is made at once
    assert jobs["ready"] + jobs["waiting"] == due
    assert told.removal.counts["publications"] == 1
    assert spent < 60 * bound, spent
    assert bench.drain() == due

    def born(tx):
        return [tx.trees.node(tree, span).born for span in above]

    assert all(csn > before for csn in bench.read(born))
    sibling = bench.read(lambda tx: tx.trees.node(tree, leaf.sibling))
    assert sibling.born <= before
