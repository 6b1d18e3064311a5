"""What no model could summarise has a line that says so, and that stands in nobody's way (§10)."""

from __future__ import annotations

from optchat.compactor.models import Outcome, Reply
from optchat.core.tree import NodeKind
from optchat.engine import rebuild
from optchat.storage.ports import JobState
from optchat.testing.endpoint import ScriptedModel, obedient
from optchat.wire import JobsRequest

LONG = "The retry in src/net/http.ts waits 250 ms; the log shows ECONNRESET from the proxy. " * 10
POISON = "what no model will read about src/net/poison.ts and its timeouts " * 12


def bench_with(make_bench, script, *, fallback=True):
    return make_bench(ScriptedModel(script), fallback=fallback)


def leaf_only(asked):
    """Refuses the poisoned leaf, but takes what is made over it."""
    poisoned = any(
        "poison" in b.body and not b.head.startswith(("range", "turn"))
        for b in asked.blocks.values()
    )
    return Reply(outcome=Outcome.REFUSED) if poisoned else obedient(asked)


def test_a_poisoned_source_has_a_labelled_line_and_its_turn_is_published(make_bench):
    bench = bench_with(make_bench, leaf_only)
    bench.session().turn("one", POISON)
    bench.finish()
    [failed] = bench.failed()
    assert failed.target.endswith("#1+1")
    leaf = bench.node(1)
    assert leaf.kind is NodeKind.FALLBACK
    assert leaf.text == f"(needs inspection: {len(POISON):,} bytes of text)"
    assert leaf.label == "assistant"
    assert leaf.model == "fallback"
    assert len(bench.publications()) == 1
    assert bench.counts()["failed"] == 1
    assert not bench.counts().get("waiting")
    notices = bench.service.status().notices
    assert any("failed for good" in n and "needs inspection" in n for n in notices)


def test_without_the_fallback_it_stays_native_and_its_turn_waits(make_bench):
    bench = bench_with(make_bench, leaf_only, fallback=False)
    session = bench.session()
    session.turn("one", POISON)
    bench.finish()
    assert bench.node(1) is None
    assert bench.publications() == ()
    session.user("and now?")
    session.sync()
    assert session.assemble().state == "ready"


def test_a_retry_that_succeeds_replaces_it_and_what_was_made_over_it(make_bench):
    cured = []

    def script(asked):
        return obedient(asked) if cured else leaf_only(asked)

    bench = bench_with(make_bench, script)
    session = bench.session()
    session.turn("one", POISON)
    session.turn("two", LONG)
    bench.finish()
    above, published = bench.node(0, 2), bench.published(1)
    csn = bench.read(lambda tx: tx.meta.csn())
    cured.append(True)
    assert bench.service.jobs(JobsRequest(retry="all")).retried == 1
    bench.finish()
    leaf = bench.node(1)
    assert (leaf.kind, leaf.revision) == (NodeKind.SUMMARY, 2)
    assert "poison" in leaf.text
    assert bench.node(0, 2).revision == above.revision + 1
    assert bench.published(1).revision == published.revision + 1
    assert bench.counts().keys() == {"done"}
    # An open snapshot goes on seeing what it saw (§4, I3).
    then = bench.read(lambda tx: tx.trees.node(leaf.tree, leaf.span, csn))
    assert then.kind is NodeKind.FALLBACK


def test_a_turn_that_cannot_be_told_is_published_as_such_and_replaced(make_bench):
    cured = []

    def script(asked):
        told = any(b.head.startswith("turn") for b in asked.blocks.values())
        return Reply(outcome=Outcome.REFUSED) if told and not cured else obedient(asked)

    bench = bench_with(make_bench, script)
    bench.session().turn("one", LONG)
    bench.finish()
    published = bench.published(0)
    assert published.kind is NodeKind.FALLBACK
    assert published.text == "(needs inspection: a turn of 2 records)"
    assert published.label.startswith("s1 completed ")
    cured.append(True)
    bench.service.jobs(JobsRequest(retry="all"))
    bench.finish()
    again = bench.published(0)
    assert (again.kind, again.revision) == (NodeKind.SUMMARY, 2)
    assert len(bench.publications()) == 1


def test_it_is_read_as_a_fallback_and_found_by_no_search(make_bench):
    bench = bench_with(make_bench, leaf_only)
    session = bench.session()
    session.turn("one", POISON)
    bench.finish()
    session.user("and?")
    session.sync()
    session.assemble()
    opened = session.call("memory_zoom", ref="s1:0:0+2").output
    assert "needs inspection" in opened
    found = session.call("memory_search", query="inspection", family=True).output
    assert "s1:0:1 " not in found, "a model's line may tell of it; the line itself is no hit"
    original = session.call("memory_search", query="timeouts", family=True).output
    assert "s1:0:1" in original, "the source itself is searched as ever"


def test_an_older_line_is_not_replaced_by_one_that_says_less(make_bench):
    bench = bench_with(make_bench, obedient)
    bench.session().turn("one", LONG)
    bench.finish()
    before = bench.node(1)
    bench.model.script = lambda asked: Reply(outcome=Outcome.REFUSED)
    tree, scope_id = bench.tree(), bench.scope().scope_id

    def redo(tx):
        stale = rebuild.stale_of(tx, [tree], model="other", prompt_version="other")
        return sum(rebuild.enqueue(tx, bench.deps, s, scope_id, stale) for s in stale)

    assert bench.store.write(redo) >= 1
    bench.finish()
    assert len(bench.jobs(JobState.FAILED)) >= 1
    assert bench.node(1) == before
