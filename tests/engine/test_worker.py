"""Summary jobs: leases, bounded attempts, and what a failure leaves (§9, §10, I7)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from optchat.compactor.models import DeterministicModel, SummaryRequest
from optchat.core.tree import NodeKind, ScopeTree, SessionTree
from optchat.errors import CompactionError
from optchat.limits import JOB_ATTEMPTS_MAX, JOB_LEASE_MS
from optchat.refs import Span

LONG = "a long answer with many words " * 60
DAY_MS = 86_400_000


@dataclass
class Model:
    """Answers deterministically, unless a test says otherwise."""

    fails_on: str = "\x00"
    during: object = None
    asked: list[SummaryRequest] = field(default_factory=list)
    name: str = "scripted"
    prompt_version: str = "1"

    def summarise(self, request: SummaryRequest) -> str:
        self.asked.append(request)
        if callable(self.during):
            during, self.during = self.during, None
            during()
        if any(self.fails_on in text for _, text in request.parts):
            raise CompactionError("the model gave nothing")
        return DeterministicModel().summarise(request)


def run(bench, model, *, rounds: int = 50) -> None:
    """Run every job, moving the clock over each delay."""
    for _ in range(rounds):
        while bench.worker(model=model).run_one():
            pass
        due = bench.read(lambda tx: tx.jobs.next_due_ms())
        if due is None:
            return
        bench.clock.advance(max(1, due - bench.clock.now_ms()))


def leaf(bench, seq: int, name: str = "A"):
    tree = SessionTree(bench.held(name).session_id, 0)
    return bench.read(lambda tx: tx.trees.node(tree, Span(seq, 1)))


def test_a_small_record_is_its_own_leaf_and_costs_no_call(bench):
    bench.model = model = Model()
    a = bench.session()
    a.user("small")
    a.assistant("also small", tools=(("bash", {"c": 1}, "tiny"),))
    a.sync()
    bench.drain()
    assert model.asked == []
    assert leaf(bench, 0).kind is NodeKind.VERBATIM
    assert leaf(bench, 0).text == "small"


def test_whitespace_and_empty_payloads_have_a_leaf_with_words(bench):
    bench.model = Model()
    a = bench.session()
    a.user(" \n ")
    a.assistant("", tools=(("bash", {}, ""),), terminal="completed")
    a.sync(idle=True)
    bench.drain()
    for seq in range(3):
        assert leaf(bench, seq).text.strip()
    assert bench.counts()["failed"] == 0


def test_a_lost_lease_discards_the_result(bench):
    """The second holder commits; the first, late one changes nothing (I7)."""
    a = bench.session()
    a.user(LONG)
    a.sync()
    second = Model(name="second")

    def stolen() -> None:
        bench.clock.advance(JOB_LEASE_MS + 1)
        assert bench.worker("second", second).run_one()

    first = Model(name="first", during=stolen)
    assert bench.worker("first", first).run_one()
    assert leaf(bench, 0).model == "second"
    assert (len(first.asked), len(second.asked)) == (1, 1)
    before = bench.state()
    bench.drain()
    assert bench.state() == before


def shared_node(bench, span: Span):
    tree = ScopeTree(bench.scope().scope_id)
    return bench.read(lambda tx: tx.trees.node(tree, span))


def rewind(session, messages: int = 0) -> None:
    session.clock_ms += 1
    del session.messages[messages:]
    session.sync(idle=True)


def test_a_summary_whose_input_moved_on_while_it_was_made_is_dropped_and_made_again(bench):
    """A retirement in the middle of a model call (I7, §12)."""
    a, b = bench.session("A"), bench.session("B")
    a.turn("one", "SECRET " + LONG)
    b.turn("two", LONG)
    while len(bench.publications()) < 2:
        assert bench.worker(model=Model()).run_one()
    assert shared_node(bench, Span(0, 2)) is None
    model = Model(during=lambda: rewind(a))
    run(bench, model)
    made = shared_node(bench, Span(0, 2))
    assert made is not None
    assert "SECRET" not in made.text
    assert bench.counts()["waiting"] == 0


def test_a_turn_that_was_superseded_while_its_line_was_made_is_not_published(bench):
    """The session that the job read is not the one that the commit must ask (I7, §12)."""
    a = bench.session("A")
    a.turn("one", "SECRET")
    assert not bench.publications()
    run(bench, Model(during=lambda: rewind(a)))
    assert not bench.publications()
    assert bench.counts()["failed"] == 0


def test_two_rewinds_before_any_summary_still_give_every_shared_node(bench):
    """A job that is queued already does not run for want of what was retired again."""
    a = bench.session("A")
    for n in range(4):
        a.turn(f"request {n}", LONG)
    model = Model()
    run(bench, model)
    assert shared_node(bench, Span(0, 4)) is not None
    rewind(a, 6)
    rewind(a, 2)
    run(bench, model)
    for span in (Span(0, 2), Span(2, 2), Span(0, 4)):
        assert shared_node(bench, span) is not None
    assert bench.counts()["waiting"] == 0


def test_a_late_failure_of_a_lost_lease_changes_nothing(bench):
    a = bench.session()
    a.user(LONG)
    a.sync()

    def stolen() -> None:
        bench.clock.advance(JOB_LEASE_MS + 1)
        assert bench.worker("second", Model(name="second")).run_one()

    assert bench.worker("first", Model(fails_on="a long", during=stolen)).run_one()
    assert leaf(bench, 0).model == "second"
    assert bench.counts()["done"] >= 1
    assert bench.counts()["ready"] == bench.counts()["leased"] == 0


def test_a_failing_model_is_asked_a_bounded_number_of_times_then_the_job_is_visible(bench):
    a = bench.session()
    a.turn("one", LONG)
    model = Model(fails_on="a long answer")
    run(bench, model)
    leaf_calls = [r for r in model.asked if r.purpose == "leaf"]
    assert len(leaf_calls) == JOB_ATTEMPTS_MAX
    status = bench.service.status()
    assert status.jobs["failed"] == 1
    assert any("the model gave nothing" in notice for notice in status.notices)
    assert [bench.payload(r).decode() for r in bench.records()] == ["one", LONG], "sources are kept"


def test_a_model_that_breaks_any_other_way_is_bounded_too(bench):
    """A network library's own exception must not make a job run for ever."""

    class Broken(Model):
        def summarise(self, request: SummaryRequest) -> str:
            self.asked.append(request)
            raise RuntimeError("connection reset")

    a = bench.session()
    a.user(LONG)
    a.sync()
    model = Broken()
    for _ in range(JOB_ATTEMPTS_MAX * 3):
        try:
            while bench.worker(model=model).run_one():
                pass
        except RuntimeError:
            pass
        bench.clock.advance(DAY_MS)
    assert len(model.asked) <= JOB_ATTEMPTS_MAX
    assert bench.counts()["failed"] == 1


@pytest.mark.parametrize("text", ["", "   ", "\n", "x" * 513, "<" * 200])
def test_an_empty_or_oversized_summary_is_not_admitted(bench, text):
    class Bad(Model):
        def summarise(self, request: SummaryRequest) -> str:
            self.asked.append(request)
            return text

    a = bench.session()
    a.user(LONG)
    a.sync()
    run(bench, Bad())
    assert leaf(bench, 0) is None
    assert bench.counts()["failed"] == 1


def test_a_poisoned_record_does_not_block_other_sessions(bench):
    a, b = bench.session("A"), bench.session("B")
    a.turn("one", "POISON " + LONG)
    b.turn("two", LONG)
    a.turn("three", LONG)
    run(bench, Model(fails_on="POISON"))
    published = {(p.session_id, p.start_seq) for p in bench.publications()}
    assert (bench.held("B").session_id, 0) in published
    assert (bench.held("A").session_id, 2) in published, "also a later turn of the same session"


def test_a_failed_summary_loses_no_memory_of_its_own_session(bench):
    """Its record stays native: a slow or broken compactor moves the boundary (§6)."""
    a = bench.session()
    a.turn("one", "POISON " + LONG)
    for n in range(4):
        a.turn(f"later {n}", LONG)
    run(bench, Model(fails_on="POISON"))
    a.user("now")
    a.sync()
    answer = a.assemble()
    assert answer.state == "ready"
    assert answer.keep_from is None


def test_a_restart_resumes_what_was_queued_and_makes_nothing_twice(bench):
    a = bench.session()
    for n in range(5):
        a.turn(f"request {n}", LONG)
    model = Model()
    worker = bench.worker(model=model)
    for _ in range(3):
        assert worker.run_one()
    made = leaf(bench, 1)
    bench.reopen()
    run(bench, model)
    assert len(bench.publications()) == 5
    asked = [r.parts for r in model.asked]
    assert len(asked) == len(set(asked)) or leaf(bench, 1) == made
    nodes = bench.drain()
    assert nodes == 0
    assert leaf(bench, 1) == made, "durable nodes load without being made again (§16 restart)"


def test_a_crashed_worker_s_job_is_done_by_the_next_start(bench):
    a = bench.session()
    a.user(LONG)
    a.sync()
    now_ms = bench.clock.now_ms()
    bench.store.write(lambda tx: tx.jobs.claim("crashed", now_ms, JOB_LEASE_MS))
    bench.reopen()
    assert bench.drain() == 0, "its lease is respected"
    bench.clock.advance(JOB_LEASE_MS + 1)
    assert bench.drain() == 1
    assert leaf(bench, 0) is not None


def test_every_node_says_what_it_was_made_of_and_by_whom(bench):
    a = bench.session()
    a.turn("one", LONG)
    bench.model = Model()
    bench.drain()
    made = leaf(bench, 1)
    assert (made.model, made.prompt_version, made.kind) == ("scripted", "1", NodeKind.SUMMARY)
    assert made.input_hash
    assert leaf(bench, 0).model == "verbatim"


def test_the_summaries_do_not_depend_on_the_order_of_work(make_bench):
    """Two workers or one, any interleaving: the same texts (the model is deterministic)."""
    seen = []
    for workers in (1, 3):
        bench = make_bench()
        a, b = bench.session("A"), bench.session("B")
        for n in range(4):
            a.turn(f"a{n}", LONG)
            b.turn(f"b{n}", "short")
        many = [bench.worker(f"w{n}") for n in range(workers)]
        busy = True
        while busy:
            busy = sum(worker.run_one() for worker in many) > 0
        seen.append([(leaf(bench, n).text, leaf(bench, n, "B").text) for n in range(8)])
    assert seen[0] == seen[1]
