"""Finished turns become numbered publications, once and whole (§5, §9, I5, I6)."""

from __future__ import annotations

import pytest

from optchat.config import Sharing
from optchat.core.tree import ScopeTree
from optchat.engine import publish as publish_module
from optchat.engine import sealing
from optchat.errors import StorageError
from optchat.refs import Span
from optchat.storage.ports import JobKind
from tests.harness.request_reader import check_sent


def turn_jobs(bench) -> int:
    """How many turns of A have a publication job, in whatever state."""
    return bench.read(
        lambda tx: sum(
            tx.jobs.of_target(JobKind.TURN, t.turn_id) is not None
            for t in tx.turns.of_session(tx.sessions.session_of_host("scripted", "A").session_id)
        )
    )


def leaf_of(bench, seq: int):
    scope = bench.scope()
    return bench.read(lambda tx: tx.trees.node(ScopeTree(scope.scope_id), Span(seq, 1)))


def test_closing_a_turn_and_scheduling_its_publication_are_one_transaction(bench, monkeypatch):
    """A crash between finalization and scheduling cannot lose work (§9)."""
    a = bench.session()
    a.user("one")
    a.sync()
    a.assistant("two", terminal="completed")
    real = sealing.schedule_publication

    def crash(*args, **options):
        real(*args, **options)
        raise StorageError("power cut")

    monkeypatch.setattr(sealing, "schedule_publication", crash)
    with pytest.raises(StorageError):
        a.sync(idle=True)
    assert [t.outcome for t in bench.turns()] == [None], "the state before"
    assert len(bench.records()) == 1
    monkeypatch.undo()
    a.sync(idle=True)
    assert turn_jobs(bench) == 1, "the whole state after"


def test_an_open_turn_is_not_published(bench):
    a = bench.session()
    a.user("one")
    a.assistant("working")
    a.sync()
    bench.drain()
    assert bench.publications() == ()


def test_a_turn_is_published_once_however_often_it_is_reported(bench):
    a = bench.session()
    a.turn("one", "two")
    bench.drain()
    for _ in range(3):
        a.sync(idle=True)
        bench.drain()
    assert len(bench.publications()) == 1
    assert bench.scope().publications == 1


def test_numbers_are_the_order_of_publication(bench):
    """Not a claim about causal or chronological priority (§5)."""
    a, b = bench.session("A"), bench.session("B")
    b.clock_ms -= 10_000_000  # B's work happened earlier and is published later
    a.turn("a1", "done")
    bench.drain()
    b.turn("b1", "done")
    bench.drain()
    a.turn("a2", "done")
    bench.drain()
    published = bench.publications()
    assert [p.seq for p in published] == [0, 1, 2]
    assert [p.session_id for p in published] == [
        bench.held(name).session_id for name in ("A", "B", "A")
    ]
    assert published[1].completed_ms < published[0].completed_ms
    assert [p.born for p in published] == sorted({p.born for p in published})


def test_a_publication_covers_exactly_its_turn(bench):
    """An ordered, disjoint set of session nodes over the exact range (§5)."""
    a = bench.session()
    a.turn("one", "answer")
    a.turn("two", "answer", tools=(("bash", {"c": 1}, "out"), ("read", {"f": 2}, "text")))
    a.turn("three", "answer")
    bench.drain()
    turns = bench.turns()
    for publication, turn in zip(bench.publications(), turns, strict=True):
        assert publication.turn_id == turn.turn_id
        at = publication.start_seq
        for part in publication.cover:
            assert part.span.start == at
            at = part.span.end_exclusive
        assert (publication.start_seq, at) == (turn.start_seq, turn.end_seq_exclusive)


def test_nothing_is_published_before_its_cover_is_durable(bench):
    a = bench.session()
    a.turn("one", "long " * 400)  # its leaf needs a summary
    worker = bench.worker()
    seen = []
    while worker.run_one():
        seen.append(len(bench.publications()))
        for publication in bench.publications():
            for part in publication.cover:
                assert bench.read(lambda tx, p=part: tx.trees.node(p.tree, p.span)) is not None
    assert seen[0] == 0
    assert seen[-1] == 1


def test_an_isolated_session_never_publishes_and_never_reads(make_bench):
    bench = make_bench(sharing=Sharing(isolated=["/secret"]))
    open_session = bench.session("A")
    hidden = bench.session("H", directory="/secret/x")
    open_session.turn("one", "the open decision")
    hidden.turn("two", "the hidden decision")
    bench.drain()
    assert len(bench.publications()) == 1
    scopes = bench.read(lambda tx: tx.sessions.scopes())
    assert [s.publications for s in scopes if s.scope_id.startswith("isolated:")] == [0]
    answer = hidden.turn("three", "done")
    assert "the open decision" not in answer.base + "".join(n.text for n in answer.news)
    answer = open_session.turn("four", "done")
    assert "hidden" not in answer.base + "".join(n.text for n in answer.news)
    assert bench.counts()["failed"] == 0


@pytest.mark.parametrize("terminal", ["completed", "interrupted", "failed"])
def test_the_label_carries_the_outcome_whatever_the_text_says(bench, terminal):
    """Attempted work never becomes a success claim (§5, §16 progress fidelity)."""
    a = bench.session()
    a.user("deploy it")
    a.assistant("The deployment completed successfully!", terminal=terminal)
    a.sync(idle=True)
    bench.drain()
    assert f" {terminal} " in f" {leaf_of(bench, 0).label} "
    b = bench.session("B")
    b.user("what happened?")
    b.sync()
    read = check_sent(b, b.assemble())
    (line,) = [*read.shared, *read.news[0].lines]
    assert line.label.split()[1] == terminal


@pytest.mark.parametrize(
    "step", ["complete_parents", "advance_shared_view", "label_of", "require_scope"]
)
def test_a_crash_within_publishing_gives_one_publication_after_a_retry(bench, monkeypatch, step):
    """The publication, its leaf, the counter and the view become visible together (§9, I6)."""
    a = bench.session()
    a.turn("one", "two")
    real = getattr(publish_module, step)
    crashes = []

    def crash(*args, **options):
        if not crashes:
            crashes.append(step)
            raise StorageError("power cut")
        return real(*args, **options)

    monkeypatch.setattr(publish_module, step, crash)
    bench.worker().run_one()
    assert crashes == [step]
    assert bench.publications() == ()
    assert bench.scope().publications == 0
    tree = ScopeTree(bench.scope().scope_id)
    assert bench.read(lambda tx: tx.trees.view(tree)).covered == 0
    bench.clock.advance(10_000_000)
    bench.drain()
    assert len(bench.publications()) == 1
    assert bench.read(lambda tx: tx.trees.view(tree)).covered == 1


def test_a_killed_worker_s_publication_is_made_by_another_one_once(bench):
    """The lease runs out; the work is done again and committed once (§9)."""
    a = bench.session()
    a.turn("one", "two")
    now_ms = bench.clock.now_ms()
    claimed = bench.store.write(lambda tx: tx.jobs.claim("killed", now_ms, 60_000))
    assert claimed is not None
    assert bench.drain() == 0
    bench.clock.advance(60_001)
    assert bench.drain() > 0
    assert len(bench.publications()) == 1


def test_a_turn_without_records_is_not_published(bench):
    a = bench.session()
    a.user("")
    a.assistant("", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    assert bench.publications() == ()


def test_turns_that_the_host_copied_into_a_fork_are_not_published_again(bench):
    """Inherited ancestry is not newly performed work (§5, §12)."""
    a = bench.session("A")
    a.clock_ms = 1_500_000_000_000  # before the session was created: the host copied it along
    a.turn("old", "work")
    a.clock_ms = 1_700_000_000_000
    a.turn("new", "work")
    bench.drain()
    (publication,) = bench.publications()
    assert publication.start_seq == 2


def test_the_title_is_the_one_of_then(bench):
    """A later title is not seen by an earlier snapshot (§9)."""
    a = bench.session("A", title="first name")
    a.turn("one", "two")
    bench.drain()
    a.title = "second name"
    a.turn("three", "four")
    bench.drain()
    assert [p.title for p in bench.publications()] == ["first name", "second name"]


def test_a_shared_view_of_many_short_turns_stays_within_its_bound(bench):
    """A line over two is shorter than the two, or no view could ever shrink through it (§6)."""
    a = bench.session()
    for index in range(400):
        a.turn(f"question {index}", f"answer {index}")
    bench.drain()
    tree = ScopeTree(bench.scope().scope_id)
    view = bench.read(lambda tx: tx.trees.view(tree))
    assert view.covered == 400
    assert view.rendered_bytes <= bench.config.memory.shared_high_bytes
    assert not view.shrinking
