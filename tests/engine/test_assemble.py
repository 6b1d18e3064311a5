"""What a request carries: everything, once, and the same bytes again (§6, §7, §9, I2, I3, I10)."""

from __future__ import annotations

import random

import msgspec
import pytest

from optchat.config import Sharing
from optchat.wire import ModelInfo, UsageInfo
from tests.harness.request_reader import CoverageError, as_sent, check_sent, read_request

LONG = "a longer answer with several words in it " * 30


def model(context: int, output: int = 1_000, limit: int | None = None) -> ModelInfo:
    return ModelInfo(
        provider="fake",
        id=f"m{context}",
        context_tokens=context,
        output_tokens=output,
        input_tokens=limit,
    )


def ask(session, text: str = "next"):
    """Begin a turn and say what its first request carries."""
    session.user(text)
    session.sync()
    return session.assemble()


def end(session, text: str = "done", **options) -> None:
    session.assistant(text, terminal="completed", **options)
    session.sync(idle=True)


def joined(session, response) -> str:
    return "\x1e".join(f"{m['role']}\x1f{m['content']}" for m in as_sent(session, response))


# --- first turns and awareness --------------------------------------------------------------------


def test_the_first_turn_of_an_empty_scope_is_the_request_and_nothing_to_remember(bench):
    a = bench.session()
    answer = ask(a, "hello")
    read = check_sent(a, answer)
    assert (read.publications, read.boundary, read.shared, read.own) == (0, 0, (), ())
    assert [text for role, text in read.native if role == "user"] == ["hello"]


def test_another_session_s_decision_is_there_without_a_tool_call(bench):
    """Automatic awareness (§16)."""
    a, b = bench.session("A"), bench.session("B")
    a.turn("which broker?", "We decided on NATS JetStream.")
    bench.drain()
    read = check_sent(b, ask(b, "add a queue"))
    assert "NATS JetStream" in " ".join(x.text for x in (*read.shared, *read.news[-1].lines))


def test_the_current_request_is_not_in_the_own_view(bench):
    """It appears once, as live dialogue (§7)."""
    a = bench.session()
    for n in range(3):
        a.turn(f"r{n}", "x")
        bench.drain()
    answer = ask(a, "the current request")
    check_sent(a, answer)
    assert joined(a, answer).count("the current request") == 1


def test_own_turns_are_named_without_their_text_in_the_news(bench):
    a = bench.session()
    a.turn("unusual-word-1", "unusual-word-2")
    bench.drain()
    answer = ask(a)
    sent = joined(a, answer)
    assert (sent.count("unusual-word-1"), sent.count("unusual-word-2")) == (1, 1)


def test_a_subagent_s_request_is_left_alone(bench):
    a = bench.session()
    a.user("task")
    request = a.request()
    request.session.parent_id = "parent"
    assert bench.service.assemble(request).state == "native"


def test_an_unknown_conversation_is_left_alone_with_a_reason(bench):
    a = bench.session()
    a.user("one")
    answer = a.assemble()
    assert answer.state == "native"
    assert answer.notice


# --- the same bytes again -------------------------------------------------------------------------


def test_a_continuation_repeats_the_bytes_whatever_others_do_and_after_a_restart(bench):
    a, b = bench.session("A"), bench.session("B")
    a.turn("a1", LONG)
    bench.drain()
    first = ask(b, "go")
    b.assistant("", tools=(("bash", {"c": 1}, "out"),))
    b.sync()
    a.turn("a2", "published meanwhile")
    bench.drain()
    second = b.assemble()
    bench.reopen()
    third = b.assemble()
    for other in (second, third):
        assert (other.base, other.news, other.keep_from) == (
            first.base,
            first.news,
            first.keep_from,
        )
        check_sent(b, other)
    assert "published meanwhile" not in second.base + second.news[-1].text
    end(b)
    bench.drain()
    assert "published meanwhile" in ask(b).news[-1].text, "visible at the next turn (§9)"


def test_between_folds_a_conversation_only_grows(bench):
    """Each request is the one before with something appended (design, idea 4)."""
    a, b = bench.session("A"), bench.session("B")
    before = None
    bases = set()
    for n in range(12):
        b.turn(f"b{n}", LONG)
        bench.drain()
        answer = ask(a, f"a{n}")
        check_sent(a, answer)
        sent = joined(a, answer)
        if before is not None and answer.base in bases:
            assert sent.startswith(before)
        bases.add(answer.base)
        a.assistant("", tools=(("bash", {"n": n}, "out " * 20),))
        a.sync()
        continued = joined(a, a.assemble())
        assert continued.startswith(sent)
        end(a)
        before = continued
        bench.drain()
    assert len(bases) < 6, "most turns do not fold"


def test_a_steering_message_changes_nothing_before_it(bench):
    a = bench.session()
    before = joined(a, ask(a, "build"))
    a.assistant("", tools=(("bash", {}, "ok"),))
    a.user("use make", opens=False)
    a.sync()
    assert joined(a, a.assemble()).startswith(before)


def test_two_reads_of_one_turn_agree(bench):
    """The news name the snapshot that the tools serve (I3)."""
    a, b = bench.session("A"), bench.session("B")
    a.turn("one", "two")
    bench.drain()
    ask(b, "go")
    before = [b.call("memory_zoom", ref="pub:0").output, b.call("memory_sessions").output]
    for n in range(5):
        a.turn(f"more {n}", LONG)
        bench.drain()
    after = [b.call("memory_zoom", ref="pub:0").output, b.call("memory_sessions").output]
    assert before == after


# --- folds ----------------------------------------------------------------------------------------


def folds(bench, name: str = "A") -> list[str]:
    """The causes of a session's folds, in the order of its turns."""
    causes, seen = [], set()
    for turn in bench.turns(name):
        if turn.fold_id is not None and turn.fold_id not in seen:
            seen.add(turn.fold_id)
            causes.append(bench.read(lambda tx, t=turn: tx.folds.fold(t.fold_id)).cause)
    return causes


def test_a_tail_that_outgrows_its_part_folds_and_the_previous_exchange_stays(bench):
    a = bench.session(model=model(10_000))
    for n in range(30):
        answer = ask(a, f"request {n}")
        read = check_sent(a, answer)
        if n:
            assert f"request {n - 1}" in joined(a, answer), "the previous exchange is native"
            assert len([1 for role, _ in read.native if role == "user"]) >= 2
        assert answer.estimated_tokens <= answer.limit_tokens
        end(a, f"answer {n} {LONG}")
        bench.drain()
    causes = folds(bench)
    assert causes[0] == "first"
    assert "tail" in causes
    assert len(causes) < 15, "a fold lasts for several turns"


def test_news_past_their_bound_fold(make_bench):
    bench = make_bench(news_bytes_max=2_000, shared_base_news_bytes_max=1_000)
    a, b = bench.session("A"), bench.session("B")
    check_sent(a, ask(a))
    end(a)
    for n in range(10):
        b.turn(f"b{n}", LONG)
    bench.drain()
    read = check_sent(a, ask(a))
    assert folds(bench) == ["first", "news"]
    assert sum(len(x.text) for x in read.news[-1].lines) <= 1_000


def test_another_window_folds(bench):
    a = bench.session()
    check_sent(a, ask(a))
    end(a)
    a.model = model(64_000)
    check_sent(a, ask(a))
    assert folds(bench) == ["first", "window"]


def test_a_policy_change_folds_under_a_fresh_snapshot(bench):
    """An invalid snapshot is rebuilt or fails (§12)."""
    a, b = bench.session("A"), bench.session("B")
    b.turn("one", "two")
    bench.drain()
    check_sent(a, ask(a))
    end(a)
    scope = bench.scope()
    bench.store.write(
        lambda tx: tx.sessions.put_scope(
            msgspec.convert(
                {**{f: getattr(scope, f) for f in scope.__slots__}, "policy_revision": 2},
                type(scope),
            )
        )
    )
    check_sent(a, ask(a))
    assert folds(bench) == ["first", "forgotten"]
    assert a.call("memory_zoom", ref="pub:0").complete


def test_a_policy_change_within_a_turn_is_answered_with_a_fresh_snapshot(bench):
    a, b = bench.session("A"), bench.session("B")
    b.turn("one", "two")
    bench.drain()
    ask(a)
    scope = bench.scope()
    bench.store.write(
        lambda tx: tx.sessions.put_scope(
            msgspec.convert(
                {**{f: getattr(scope, f) for f in scope.__slots__}, "retention_epoch": 2},
                type(scope),
            )
        )
    )
    with pytest.raises(Exception, match="invalidated"):
        a.call("memory_zoom", ref="pub:0")
    check_sent(a, a.assemble())
    assert a.call("memory_zoom", ref="pub:0").complete


def test_the_layout_of_the_specification_renders_both_views_at_each_turn(make_bench):
    """§7: views, the previous exchange, the live turn."""
    bench = make_bench(layout="every-turn")
    a, b = bench.session("A"), bench.session("B")
    for n in range(6):
        b.turn(f"b{n}", "foreign")
        bench.drain()
        answer = ask(a, f"a{n}")
        read = check_sent(a, answer)
        users = [text for role, text in read.native if role == "user"]
        assert users == ([f"a{n - 1}"] if n else []) + [f"a{n}"], "the previous exchange, the live"
        assert read.boundary == max(0, 2 * (n - 1))
        end(a)
        bench.drain()


def test_without_the_previous_exchange_the_live_turn_stands_alone(make_bench):
    bench = make_bench(layout="every-turn", previous_exchange=False)
    a = bench.session()
    for n in range(4):
        read = check_sent(a, ask(a, f"a{n}"))
        assert [text for role, text in read.native if role == "user"] == [f"a{n}"]
        end(a)
        bench.drain()


def test_a_slow_compactor_moves_the_boundary_and_not_the_coverage(bench):
    """No summary is ever made here: everything stays native and nothing is missing (§6)."""
    a = bench.session(model=model(60_000))
    for n in range(12):
        answer = ask(a, f"request {n}")
        read = check_sent(a, answer)
        assert read.boundary == 0
        end(a, f"{n} {LONG}")


def test_a_compactor_that_is_late_is_used_when_it_comes(bench):
    a = bench.session(model=model(10_000))
    boundaries = []
    for n in range(24):
        answer = ask(a, f"request {n}")
        boundaries.append(check_sent(a, answer).boundary)
        end(a, f"{n} {LONG}")
        if n >= 8:
            bench.drain()
    assert boundaries[0] == 0
    assert boundaries[-1] > 0
    assert boundaries == sorted(boundaries)


def test_memory_that_cannot_be_covered_stops_with_memory_not_ready(bench):
    """Silent loss of coverage is forbidden; strict stops (§6)."""
    a = bench.session(model=model(8_000))
    stopped = None
    for n in range(30):
        answer = ask(a, f"request {n}")
        if answer.state == "stop":
            stopped = answer
            break
        check_sent(a, answer)
        end(a, f"{n} {LONG}")
    assert stopped is not None
    assert stopped.error is not None
    assert (stopped.error.code, stopped.error.retryable) == ("memory_not_ready", True)
    assert stopped.error.hint
    assert stopped.base == ""
    bench.drain()
    check_sent(a, a.assemble())


def test_partial_memory_discloses_what_is_missing(make_bench):
    bench = make_bench(readiness="partial")
    a = bench.session(model=model(8_000))
    partial = None
    for n in range(30):
        answer = ask(a, f"request {n}")
        assert answer.state == "ready"
        assert answer.estimated_tokens <= answer.limit_tokens
        if answer.notice:
            partial = answer
            break
        check_sent(a, answer)
        end(a, f"{n} {LONG}")
    assert partial is not None
    with pytest.raises(CoverageError):
        check_sent(a, partial)
    read = check_sent(a, partial, partial=True)
    assert read.notice is not None
    assert "not shown" in read.notice
    assert read.news[-1].coverage != "complete"
    end(a)
    bench.drain()
    answer = ask(a, "now ready")
    assert answer.notice is None, "the gap is not kept once it can be closed"
    check_sent(a, answer)


def test_a_live_turn_larger_than_the_window_stops_and_says_so(bench):
    a = bench.session(model=model(8_000))
    answer = ask(a, "x y z " * 20_000)
    assert answer.state == "stop"
    assert answer.error.code == "turn_too_large"


def test_a_turn_that_outgrows_its_room_is_folded_under_the_same_snapshot(bench):
    a, b = bench.session("A", model=model(12_000)), bench.session("B")
    for n in range(14):
        a.turn(f"a{n}", LONG)
        bench.drain()
    first = ask(a, "long work")
    snapshot = check_sent(a, first).snapshot
    b.turn("b", "published meanwhile")
    bench.drain()
    boundaries, told = [], []
    for n in range(40):
        a.assistant("", tools=(("bash", {"n": n}, f"out {n} {LONG}"),))
        a.sync()
        bench.drain()
        answer = a.assemble()
        read = check_sent(a, answer)
        assert read.snapshot == snapshot
        assert answer.estimated_tokens <= answer.limit_tokens
        boundaries.append(read.boundary)
        told.append(sum(c.end - c.start for c in read.checkpoints))
    assert boundaries[-1] > boundaries[0], "earlier turns gave way"
    assert told[boundaries.index(boundaries[-1])] == 0, "and before the live turn's own steps"
    assert told[-1] > 0, "in the end the live turn itself is folded"


# --- the shared base ------------------------------------------------------------------------------


def test_a_new_session_starts_with_the_scope_s_bytes(bench):
    """What others have just paid for is read from the cache (design, idea 4)."""
    a, b, c = (bench.session(name) for name in "ABC")
    for n in range(5):
        a.turn(f"a{n}", LONG)
        bench.drain()
    bases = []
    for session in (b, c):
        answer = ask(session, "hello")
        check_sent(session, answer)
        bases.append(answer.base)
        end(session)
        bench.drain()
    shared = [base.split("</shared_memory>")[0] for base in bases]
    assert shared[0] == shared[1]


def test_the_scope_s_base_is_renewed_when_its_news_pass_the_bound(make_bench):
    bench = make_bench(shared_base_news_bytes_max=1_500)
    a = bench.session("A")
    ends = []
    for n in range(8):
        a.turn(f"a{n}", LONG)
        bench.drain()
        other = bench.session(f"S{n}")
        read = check_sent(other, ask(other))
        ends.append(read.publications)
        end(other)
        bench.drain()
    assert ends == sorted(ends)
    assert 1 < len(set(ends)) < len(ends)


def test_isolated_sessions_see_no_publications(make_bench):
    bench = make_bench(sharing=Sharing(default="isolated"))
    a, b = bench.session("A"), bench.session("B")
    a.turn("one", "two")
    bench.drain()
    read = check_sent(b, ask(b))
    assert (read.publications, read.snapshot) == (0, 0)


def test_placement_follows_the_provider(bench):
    a = bench.session()
    a.turn("one", "two")
    bench.drain()
    answer = ask(a)
    for placement in ("system", "message"):
        answer.placement = placement
        assert check_sent(a, answer).base == answer.base


def test_what_the_host_left_out_is_brought_back_by_the_base(bench):
    """Native compaction drops messages; coverage does not go with them (§13)."""
    a, b = bench.session("A"), bench.session("B")
    for n in range(4):
        a.turn(f"a{n}", LONG)
        b.turn(f"b{n}", LONG)
        bench.drain()
    a.user("go on")
    a.sync()
    a.assemble()
    a.assistant("", tools=(("bash", {}, "ok"),))
    a.sync()
    request = a.request()
    request.shape = request.shape[6:]
    answer = bench.service.assemble(request)
    assert answer.state == "ready"
    kept = a.messages[6:]
    whole, a.messages = a.messages, kept
    read = read_request(as_sent(a, answer))
    a.messages = whole
    assert read.boundary >= 6
    assert read.snapshot == read.news[-1].snapshot


def test_no_publication_is_lost_when_the_host_drops_the_live_request(bench):
    """A compaction within a turn leaves out the message that carried the turn's news."""
    a, b = bench.session("A"), bench.session("B")
    a.turn("a0", "x")
    b.turn("b0", "y")
    bench.drain()
    a.turn("a1", "x")
    for n in range(3):
        b.turn(f"foreign {n}", LONG)
        bench.drain()
    a.user("live request")
    a.sync()
    shown = a.assemble()
    assert "foreign 2" in shown.base + "".join(n.text for n in shown.news)
    a.assistant("", tools=(("bash", {}, "ok"),))
    a._add("other", [])
    a.assistant("", tools=(("bash", {}, "ok"),))
    a.sync()
    request = a.request()
    request.shape = request.shape[-2:]
    answer = bench.service.assemble(request)
    assert answer.state == "ready"
    present = {m.id for m in request.shape}
    assert {x.message_id for x in answer.news} <= present
    for n in range(3):
        assert f"foreign {n}" in answer.base + "".join(x.text for x in answer.news)


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_every_request_fits_its_window_or_is_not_sent(make_bench, seed):
    """Random windows, sizes, foreign work and lag of the compactor (I2, I9, I10)."""
    rng = random.Random(seed)
    bench = make_bench(
        own_high_bytes=6_000, own_low_bytes=3_000, shared_high_bytes=5_000, shared_low_bytes=2_500
    )
    a, b = bench.session("A"), bench.session("B")
    states = []
    for n in range(18):
        a.model = model(rng.choice([6_000, 8_000, 12_000, 16_000, 32_000, 200_000]))
        if rng.random() < 0.6:
            b.turn(f"b{n}", "foreign " * rng.randrange(1, 400))
        if rng.random() < 0.7:
            bench.drain()
        answer = ask(a, f"a{n} " + "word " * rng.randrange(1, 300))
        states.append(answer.state)
        if answer.state == "ready":
            check_sent(a, answer)
            assert answer.estimated_tokens <= answer.limit_tokens
        else:
            assert answer.error is not None
            assert answer.error.code in ("memory_not_ready", "turn_too_large")
        a.assistant("", tools=(("bash", {"n": n}, "out " * rng.randrange(1, 300)),))
        a.sync()
        answer = a.assemble()
        if answer.state == "ready":
            check_sent(a, answer)
            assert answer.estimated_tokens <= answer.limit_tokens
        end(a, "answer " * rng.randrange(1, 300))
    assert "ready" in states


@pytest.mark.parametrize("context", [2_000, 4_000, 6_000, 8_000, 12_000, 16_000])
def test_a_small_window_gets_a_valid_request_or_an_error(bench, context):
    """§16 budget pressure."""
    a, b = bench.session("A", model=model(context, output=context // 4)), bench.session("B")
    for n in range(10):
        b.turn(f"b{n}", LONG)
        bench.drain()
        answer = ask(a, f"a{n}")
        if answer.state == "ready":
            check_sent(a, answer)
            assert answer.estimated_tokens <= answer.limit_tokens
        else:
            assert answer.error.code in ("memory_not_ready", "turn_too_large")
        end(a)
        bench.drain()


def test_a_small_window_folds_rather_than_stop_when_news_come_in(make_bench):
    """What would fit after a fold is not refused (§6: wait or fold, then stop)."""
    bench = make_bench(shared_high_bytes=6_000, shared_low_bytes=2_000)
    a, b = bench.session("A", model=model(10_000)), bench.session("B")
    end_state = ask(a, "start")
    assert end_state.state == "ready"
    end(a)
    for n in range(14):
        b.turn(f"b{n}", LONG)
        bench.drain()
    answer = ask(a, "and now")
    assert answer.state == "ready", answer.error
    check_sent(a, answer)


def test_calibration_makes_the_next_request_smaller_when_the_provider_counts_more(bench):
    a = bench.session(model=model(24_000))
    a.user("one")
    a.sync()
    first = a.assemble()
    a.assistant("two", terminal="completed")
    a.sync(idle=True)
    a.user("three")
    a.sync()
    request = a.request()
    request.usage = UsageInfo(message_id=a.messages[1].id, input_tokens=first.estimated_tokens * 3)
    second = bench.service.assemble(request)
    a.assistant("four", terminal="completed")
    assert second.estimated_tokens > first.estimated_tokens * 2
