"""Batches, fairness, crashes and setting aside, with a model that is asked (§9, §10, I7)."""

from __future__ import annotations

import pytest

from optchat.compactor.models import Outcome, Reply
from optchat.compactor.workers import retry_under_new_model
from optchat.core.tree import NodeKind
from optchat.storage.ports import JobState
from optchat.testing.endpoint import asked_of, obedient
from optchat.wire import JobsRequest, RebuildRequest

LONG = "The retry in src/net/http.ts waits 250 ms; the log shows ECONNRESET from the proxy. " * 10
HOUR_MS = 3_600_000


class Killed(BaseException):
    """The process ends here."""


def long_turn(session, steps=4, name="x"):
    session.user(f"go through {name}")
    session.assistant(
        "", tools=tuple(("bash", {"n": n}, f"{name}{n} {LONG}") for n in range(steps))
    )
    session.assistant(f"seen all of {name} {LONG}", terminal="completed")
    session.sync(idle=True)


def test_a_turn_with_its_publication_is_one_call(bench):
    long_turn(bench.session())
    bench.finish()
    assert len(bench.model.calls) == 1
    assert len(bench.publications()) == 1
    assert bench.counts() == {"done": bench.counts()["done"]}
    node = bench.node(2)
    assert node.evidence == "0..10"
    assert (
        "tools" not in vars(bench.model.calls[0])
        if hasattr(bench.model.calls[0], "__dict__")
        else 1
    )


def test_nothing_is_asked_while_a_turn_gathers(bench):
    a = bench.session()
    a.user("go")
    a.assistant("", tools=(("bash", {"n": 1}, LONG),))
    a.sync()
    assert bench.drain() == 0
    bench.clock.advance(bench.config.compactor.hold_ms + 1)
    bench.drain()
    assert len(bench.model.calls) == 1, "a turn that goes on for long is not put off for ever"


def test_enough_for_a_call_ends_the_wait(make_bench):
    bench = make_bench(batch_lines=8)
    a = bench.session()
    a.user("go")
    a.assistant("", tools=tuple(("bash", {"n": n}, f"{n} {LONG}") for n in range(8)))
    a.sync()
    bench.drain()
    assert len(bench.model.calls) >= 1


def test_the_compactor_down_for_200_records_and_back(bench):
    """Turns went on natively, nothing lost, backlog shown, caught up, each node made once."""
    a = bench.session()
    for n in range(50):
        a.user(f"question {n}")
        a.sync()
        assert a.assemble().state == "ready"
        a.assistant(f"step {n} {LONG}", tools=(("bash", {"n": n}, f"{n} {LONG}"),))
        a.assistant("seen", terminal="completed")
        a.sync(idle=True)
    status = bench.service.status()
    assert status.records == 250
    assert status.jobs["ready"] + status.jobs["waiting"] > 100
    bench.finish()
    counts = bench.counts()
    assert set(counts) == {"done"}
    assert len(bench.publications()) == 50
    made = bench.nodes()
    assert len({(str(n.tree), n.span) for n in made}) == len(made)
    assert all(n.revision == 1 for n in made)
    assert len(bench.model.calls) <= 0.5 * 250


def test_a_kill_in_the_middle_pays_at_most_the_call_in_flight_twice(bench):
    """The first call's good lines are committed; the second call is in flight when it dies."""
    calls = 0

    def script(asked):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Killed
        made = obedient(asked)
        if calls == 1:  # one line of the batch is bad, so that there is a second call
            first, _, rest = made.partition("\n")
            return f"{first} deployed and released\n{rest}"
        return made

    bench.model.script = script
    long_turn(bench.session())
    with pytest.raises(Killed):
        bench.worker("killed").run_one()
    standing = {(str(n.tree), n.span): n.text for n in bench.nodes() if n.kind is NodeKind.SUMMARY}
    assert standing, "what was good of the first answer is committed"
    assert bench.drain() == 0, "its leases are respected"
    bench.clock.advance(HOUR_MS)
    bench.finish()
    asked_again = set()
    for call in bench.model.calls[2:]:
        asked_again |= {b.head for b in asked_of(call).blocks.values() if b.head != "range"}
    assert calls <= 2 + len(asked_again)
    now = {(str(n.tree), n.span): n.text for n in bench.nodes() if n.kind is NodeKind.SUMMARY}
    assert {k: now[k] for k in standing} == standing
    assert len(bench.publications()) == 1


def test_a_late_answer_of_a_lost_lease_changes_nothing(bench):
    def script(asked):
        bench.model.script = obedient
        bench.clock.advance(HOUR_MS)
        bench.worker("second").run_one()
        return obedient(asked)

    bench.model.script = script
    long_turn(bench.session())
    bench.worker("first").run_one()
    before = [(n.tree, n.span, n.text) for n in bench.nodes()]
    bench.finish()
    assert [(n.tree, n.span, n.text) for n in bench.nodes()] == before
    assert len(bench.publications()) == 1
    assert set(bench.counts()) == {"done"}


def test_a_live_turn_goes_before_an_old_backlog(make_bench):
    bench = make_bench(batch_lines=1)
    bench.clock.advance(30 * 86_400_000)  # the backlog's turns ended long ago
    for n in range(5):
        old = bench.session(f"old{n}")
        for turn in range(3):
            long_turn(old, name=f"old{n}-{turn}")
    live = bench.session("live")
    live.clock_ms = bench.clock.now_ms()
    long_turn(live, steps=1, name="now")
    worker = bench.worker()
    worker.run_one()
    assert "now" in asked_of(bench.model.calls[0]).first
    for _ in range(12):
        worker.run_one()
    sessions = {c.messages[0].text.split("old", 1)[-1][:1] for c in bench.model.calls[1:]}
    assert len(sessions) >= 5, "and the backlog's sessions take turns"


def test_a_poisoned_source_is_set_aside_and_the_rest_goes_on(bench):
    def script(asked):
        if "POISON" in asked.first:
            return Reply(outcome=Outcome.FILTERED)
        return obedient(asked)

    bench.model.script = script
    a = bench.session()
    a.user("go through it")
    a.assistant("", tools=(("bash", {"n": 1}, "POISON " + LONG),), terminal="completed")
    a.sync(idle=True)
    long_turn(a, name="fine")
    b = bench.session("B")
    long_turn(b, name="other")
    bench.finish()
    assert len(bench.publications()) == 2
    listed = bench.service.jobs(JobsRequest())
    assert listed.failed
    assert all("filtered" in job.error for job in listed.failed)
    assert all(job.session == "s1" for job in listed.failed)
    # By hand, once it is no poison any more.
    bench.model.script = obedient
    assert bench.service.jobs(JobsRequest(retry=listed.failed[0].id)).retried == 1
    assert bench.service.jobs(JobsRequest(retry="all")).retried == len(listed.failed) - 1
    bench.finish()
    assert len(bench.publications()) == 3
    assert set(bench.counts()) == {"done"}


def test_another_model_or_prompt_tries_what_failed_again(bench):
    bench.model.script = lambda asked: Reply(outcome=Outcome.REFUSED)
    long_turn(bench.session())
    bench.finish()
    assert bench.jobs(JobState.FAILED)
    now_ms = bench.clock.now_ms()
    write = bench.store.write
    assert write(lambda tx: retry_under_new_model(tx, "m1 p1", now_ms)) > 0
    bench.finish()
    assert write(lambda tx: retry_under_new_model(tx, "m1 p1", now_ms)) == 0, "the same one again"
    assert write(lambda tx: retry_under_new_model(tx, "m1 p2", now_ms)) > 0


def test_a_rebuild_makes_new_revisions_and_open_snapshots_keep_the_old(bench):
    a = bench.session()
    for n in range(5):
        long_turn(a, name=f"t{n}")
    bench.finish()
    b = bench.session("B")
    b.user("what was it?")
    b.sync()
    before = b.assemble()
    old = {(str(n.tree), n.span): n for n in bench.nodes() if n.kind is NodeKind.SUMMARY}
    bench.model.name = "better"
    estimate = bench.service.rebuild(RebuildRequest(scope="/project"))
    assert (estimate.nodes, estimate.queued) == (len(old), 0)
    assert 0 < estimate.calls < estimate.nodes
    done = bench.service.rebuild(RebuildRequest(scope="/project", confirmed=True))
    assert done.queued == len(old)
    bench.finish()
    new = {(str(n.tree), n.span): n for n in bench.nodes() if n.kind is NodeKind.SUMMARY}
    assert set(new) == set(old)
    assert {n.model for n in new.values()} == {"better"}
    assert {n.revision for n in new.values()} == {2}
    assert set(bench.counts()) == {"done"}
    assert len(bench.publications()) == 5, "nothing is published twice"
    assert b.assemble().base == before.base
    zoomed = b.call("memory_zoom", ref="pub:0").output
    assert (
        old[str(bench.published(0).tree), bench.published(0).span].text[:40]
        in before.base + (before.news[0].text if before.news else "") + zoomed
    )
    assert bench.service.rebuild(RebuildRequest(scope="/project")).nodes == 0
    c = bench.session("C")
    c.user("and now?")
    c.sync()
    assert c.assemble().state == "ready"
