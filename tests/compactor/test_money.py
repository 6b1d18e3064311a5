"""I12: no model token is spent that the meter does not show, or that a cap does not allow."""

from __future__ import annotations

import threading

import pytest

from optchat.compactor.money import HOUR_MS, day_of, next_day_ms
from optchat.config import Caps, Prices
from optchat.testing.endpoint import ScriptedModel, obedient
from optchat.wire import JobsRequest, SpendRequest

LONG = "The retry in src/net/http.ts waits 250 ms; the log shows ECONNRESET from the proxy. " * 10


def caps(**limits: int) -> Caps:
    named = (
        "day_calls",
        "day_tokens",
        "turn_calls",
        "turn_tokens",
        "idle_hour_calls",
        "idle_hour_tokens",
    )
    return Caps(**{**dict.fromkeys(named, 0), **limits})


def turns(bench, count, name="A"):
    session = bench.session(name)
    for n in range(count):
        session.turn(f"question {n}", f"{n} {LONG}")
    return session


def test_the_eleventh_call_is_not_made(make_bench):
    bench = make_bench(caps=caps(day_calls=10), batch_lines=1, hold_seconds=0)
    a = turns(bench, 8)
    bench.drain()
    assert len(bench.model.calls) == 10
    assert bench.drain() == 0
    status = bench.service.status()
    assert "10 of 10 today's calls" in status.notices[0]
    spend = bench.service.spend(SpendRequest())
    assert (spend.total.calls, spend.caps[0].used, spend.caps[0].limit) == (10, 10, 10)
    assert spend.notices == [status.notices[0]]
    a.user("and now?")
    told = a.sync()
    assert "10 of 10" in (told.notice or ""), "the plugin is told as well"
    ready = a.assemble()
    assert ready.state == "ready"
    assert ready.keep_from is None, "every record without a node is still native"


def test_the_next_day_or_a_resume_goes_on(make_bench):
    bench = make_bench(caps=caps(day_calls=3), batch_lines=1, hold_seconds=0)
    turns(bench, 6)
    bench.drain()
    assert len(bench.model.calls) == 3
    bench.clock.advance(1)
    bench.service.resume()
    bench.drain()
    assert len(bench.model.calls) == 6
    bench.clock.advance(next_day_ms(bench.clock.now_ms()) - bench.clock.now_ms() + 1)
    bench.drain()
    assert len(bench.model.calls) == 9
    assert bench.service.spend(SpendRequest()).total.calls == 9


def test_two_workers_cannot_both_take_the_last_call(make_bench):
    barrier = threading.Barrier(2, timeout=10)

    def script(asked):
        barrier.wait()
        return obedient(asked)

    bench = make_bench(ScriptedModel(script), caps=caps(day_calls=2), batch_lines=1, hold_seconds=0)
    turns(bench, 3, "A")
    turns(bench, 3, "B")
    threads = [threading.Thread(target=bench.worker().run_one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.drain() == 0
    assert len(bench.model.calls) == 2


def test_a_turn_has_its_own_cap(make_bench):
    bench = make_bench(caps=caps(turn_calls=2), batch_lines=1, hold_seconds=0)
    a = bench.session()
    a.user("long turn")
    a.assistant("", tools=tuple(("bash", {"n": n}, f"{n} {LONG}") for n in range(6)))
    a.assistant("seen", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    assert len(bench.model.calls) == 2
    waiting = bench.service.jobs(JobsRequest()).waiting
    assert waiting
    assert all("this turn's calls" in job.error for job in waiting)
    bench.session("B").turn("short", "seen")
    bench.drain()
    assert len(bench.publications()) == 1, "another turn is not held up"
    before = len(bench.model.calls)
    bench.clock.advance(1)
    assert bench.service.resume().released > 0
    bench.drain()
    assert len(bench.model.calls) > before


def test_an_idle_evening_spends_what_the_idle_cap_allows(make_bench):
    bench = make_bench(caps=caps(idle_hour_calls=4), batch_lines=1, hold_seconds=0)
    turns(bench, 30)
    bench.active_ms = bench.clock.now_ms()
    bench.clock.advance(20 * 60_000)
    for hour in range(1, 5):
        for _ in range(6):
            bench.drain()
            bench.clock.advance(HOUR_MS // 6)
        assert len(bench.model.calls) <= 4 * hour + 4
    assert "idle hour" in bench.service.status().notices[0]
    bench.active_ms = None
    before = len(bench.model.calls)
    bench.drain()
    assert len(bench.model.calls) > before + 4, "with a host at work it goes on"


def test_every_call_has_a_row_with_what_the_provider_reported(make_bench):
    bench = make_bench(prices=Prices(input=1.0, output=5.0))
    turns(bench, 3)
    bench.finish()
    spend = bench.service.spend(SpendRequest())
    assert spend.total.calls == len(bench.model.calls)
    expected = sum(c.input_bytes // 4 for c in bench.model.calls)
    assert spend.total.input_tokens == expected
    assert sum(r.calls for r in spend.by_session) == spend.total.calls
    assert sum(r.calls for r in spend.by_purpose) == spend.total.calls
    assert [r.name for r in spend.by_day] == [day_of(bench.clock.now_ms())]
    cost = (spend.total.input_tokens * 1.0 + spend.total.output_tokens * 5.0) / 1e6
    assert spend.total.cost == pytest.approx(cost)
    assert spend.by_session[-1].name.startswith("s1 ") or spend.by_session[0].name.startswith("s1 ")


def test_a_call_that_a_crash_cut_off_stays_in_the_bill(make_bench):
    """Its row was written before it was sent, with an estimate."""

    class Killed(BaseException):
        pass

    def script(asked):
        raise Killed

    bench = make_bench(ScriptedModel(script))
    turns(bench, 1)
    with pytest.raises(Killed):
        bench.worker().run_one()
    spend = bench.service.spend(SpendRequest())
    assert (spend.total.calls, spend.unfinished) == (1, 1)
    assert spend.total.input_tokens > 0


def test_usage_that_nobody_reports_is_estimated(make_bench):
    bench = make_bench(ScriptedModel(reports_usage=False))
    turns(bench, 1)
    bench.finish()
    assert bench.spent().input_tokens > 1_000


def test_caps_are_on_by_default():
    on = Caps()
    assert 0 < on.day_calls <= 1_000
    assert 0 < on.day_tokens <= 2_000_000
    assert all((on.turn_calls, on.turn_tokens, on.idle_hour_calls, on.idle_hour_tokens))
