"""The host's own model: calls that a plugin takes, answers, leaves lying, or brings too late."""

from __future__ import annotations

import threading

import pytest

from optchat.compactor.models.host import HostModel
from optchat.testing.endpoint import Asked, obedient
from optchat.wire import WorkDone, WorkRequest, WorkResponse, WorkUsage

LONG = "The retry in src/net/http.ts waits 250 ms; the log shows ECONNRESET from the proxy. " * 10


class Clock:
    """Seconds that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def request(directory="/project", wait_ms=0):
    return WorkRequest(
        host="scripted",
        instance="1",
        project_key=directory,
        project_directory=directory,
        directory=directory,
        wait_ms=wait_ms,
    )


@pytest.fixture
def seconds():
    return Clock()


@pytest.fixture
def host_bench(make_bench, seconds):
    model = HostModel(timeout_ms=2_000, now_s=seconds)
    bench = make_bench(model)
    yield bench
    model.close()


def answer(work):
    asked = Asked(work.system, tuple(m.text for m in work.messages))
    usage = WorkUsage(input_tokens=1_000, cached_tokens=600, output_tokens=80)
    return WorkDone(
        id=work.id, outcome="answer", text=obedient(asked), model="p/small", usage=usage
    )


def serve(bench, stop, respond=answer, directory="/project"):
    """A plugin's loop."""
    while not stop.is_set():
        work = bench.service.work(request(directory, wait_ms=50)).work
        if work is not None:
            done = respond(work)
            if done is not None:
                bench.service.work_done(done)


@pytest.fixture
def plugin(host_bench):
    stop = threading.Event()
    threads = []

    def start(respond=answer, directory="/project"):
        thread = threading.Thread(target=serve, args=(host_bench, stop, respond, directory))
        thread.start()
        threads.append(thread)

    yield start
    stop.set()
    for thread in threads:
        thread.join()


def run(bench):
    """Drain once a host is there."""
    for _ in range(200):
        if bench.desk.absent:
            bench.desk.absent = ""
        bench.drain()
        if bench.counts().get("ready", 0) + bench.counts().get("waiting", 0) == 0:
            return
        threading.Event().wait(0.02)


def test_a_whole_turn_by_the_host_s_model(host_bench, plugin):
    host_bench.session().turn("one", LONG)
    plugin()
    run(host_bench)
    assert len(host_bench.publications()) == 1
    assert host_bench.node(1).model == "p/small"
    spent = host_bench.spent()
    assert (spent.calls, spent.input_tokens, spent.cached_tokens) == (1, 1_000, 600)


def test_without_a_host_the_jobs_stay_and_cost_nothing(host_bench):
    host_bench.session().turn("one", LONG)
    assert host_bench.drain() == 0
    assert host_bench.spent().calls == 0
    assert "no host is open" in host_bench.service.status().notices[0]
    assert host_bench.counts()["ready"] >= 1


def test_a_host_that_is_gone_is_not_counted_on(host_bench, seconds):
    host_bench.session().turn("one", LONG)
    assert host_bench.service.work(request()).work is None
    assert host_bench.model.scopes() == frozenset({host_bench.scope().scope_id})
    seconds.now += 31
    assert host_bench.drain() == 0
    assert host_bench.spent().calls == 0


def test_a_host_gets_only_work_of_its_own_scope(host_bench, plugin):
    host_bench.session("A", directory="/project").turn("one", LONG)
    host_bench.session("B", directory="/other").turn("two", LONG)
    seen = []

    def watch(work):
        seen.append(work.messages[0].text)
        return answer(work)

    plugin(watch, directory="/other")
    for _ in range(100):
        host_bench.drain()
        if host_bench.spent().calls:
            break
        threading.Event().wait(0.02)
    assert len(seen) == 1
    assert "two" in seen[0]
    assert "one" not in seen[0].split("[")[-1]


def test_a_call_that_is_taken_and_not_answered_is_made_again(host_bench, plugin, seconds):
    host_bench.model.timeout_ms = 100
    lost = []

    def lose_the_first(work):
        if not lost:
            lost.append(work)
            return None
        return answer(work)

    host_bench.session().turn("one", LONG)
    plugin(lose_the_first)
    for _ in range(100):
        host_bench.drain()
        if lost:
            break
        threading.Event().wait(0.02)
    assert "timed out" in " ".join(host_bench.service.status().notices)
    late = host_bench.service.work_done(answer(lost[0]))
    assert not late.accepted, "a late answer is not taken"
    host_bench.model.timeout_ms = 2_000
    host_bench.clock.advance(3_600_000)
    run(host_bench)
    assert len(host_bench.publications()) == 1
    assert host_bench.counts().get("failed", 0) == 0


def test_an_answer_is_taken_once(host_bench, plugin):
    answers = []

    def twice(work):
        done = answer(work)
        answers.append(host_bench.service.work_done(done).accepted)
        answers.append(host_bench.service.work_done(done).accepted)

    host_bench.session().turn("one", LONG)
    plugin(twice)
    run(host_bench)
    assert answers == [True, False]
    assert not host_bench.service.work_done(WorkDone(id="unknown", outcome="empty")).accepted


@pytest.mark.parametrize("outcome", ["refused", "empty", "cut", "filtered", "reasoning_only"])
def test_a_host_s_failures_have_the_same_names(host_bench, plugin, outcome):
    host_bench.session().turn("one", LONG)
    plugin(lambda work: WorkDone(id=work.id, outcome=outcome))
    for _ in range(50):
        host_bench.drain()
        if host_bench.findings():
            break
        threading.Event().wait(0.02)
    assert host_bench.findings()[f"outcome: {outcome}"] >= 1
    assert host_bench.publications() == ()


def test_another_configured_model_sends_the_plugin_home(bench):
    bench.session().turn("one", LONG)
    response = bench.service.work(request())
    assert (response.wanted, response.work) == (False, None)


def test_a_call_that_did_not_reach_its_host_goes_to_the_next(host_bench, plugin):
    lost = []

    def lose_the_first(work):
        if lost:
            return answer(work)
        lost.append(work)
        host_bench.service.work_lost(WorkResponse(wanted=True, work=work))
        return None

    host_bench.session().turn("one", LONG)
    plugin(lose_the_first)
    run(host_bench)
    assert len(host_bench.publications()) == 1
    assert host_bench.spent().calls == 1, "one call, made once"
