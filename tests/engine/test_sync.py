"""Bringing a session up to its host: what is sealed, when, and what never is (§3, §5, §12, I5)."""

from __future__ import annotations

import dataclasses
import itertools
import json

import msgspec
import pytest

from optchat.core.records import Outcome, RecordKind
from optchat.errors import BadInput, EventConflict, OptChatError
from optchat.testing.scripted import ScriptedSession
from optchat.wire import (
    FilePart,
    MessageInfo,
    OwnResult,
    ResyncRequest,
    SyncRequest,
    TextPart,
    ToolPart,
)
from tests.harness.request_reader import check_sent, texts_of


def snapshot(session: ScriptedSession, *, idle: bool = False) -> SyncRequest:
    """A report of what the host holds now, to be delivered whenever."""
    return SyncRequest(
        session=session.info,
        messages=list(session.messages),
        idle=idle,
        observed_ms=session.clock_ms,
    )


def kinds(records) -> list[str]:
    return [r.kind.value for r in records]


# --- replays ------------------------------------------------------------------------------------


def test_replaying_the_last_state_any_number_of_times_changes_nothing(bench):
    a = bench.session()
    a.user("first")
    a.assistant("answer", tools=(("bash", {"c": "ls"}, "out"),), terminal="completed")
    a.sync(idle=True)
    bench.drain()
    before = bench.state()
    for idle in (False, True, False):
        response = a.sync(idle=idle)
        assert (response.sealed, response.need) == (0, [])
    bench.drain()
    assert bench.state() == before


def test_how_often_the_host_reports_does_not_matter(make_bench):
    """One report at the end, or one after each message with repetitions: the same store."""
    states = []
    for often in (False, True):
        bench = make_bench()
        a = bench.session()

        def told(_message: MessageInfo, often: bool = often, a: ScriptedSession = a) -> None:
            for _ in range(2 * often):
                a.sync()

        told(a.user("one"))
        told(a.assistant("working", tools=(("bash", {"c": 1}, "x" * 900),)))
        told(a.user("steer", opens=False))
        told(a.assistant("done", terminal="completed"))
        told(a.user("two"))
        told(a.assistant("half"))
        told(a.user("three"))
        told(a.assistant("", tools=(("read", {}, "y"), ("read", {}, "y"))))
        told(a.assistant("end", terminal="failed"))
        a.sync(idle=True)
        bench.drain()
        found, jobs, _ = bench.state()
        states.append((found, jobs))
    once, many = states
    assert [len(x) for x in once[0]] == [len(x) for x in many[0]]
    ours, theirs = once[0][1], many[0][1]
    assert by_turn(ours, 1) == by_turn(theirs, 1), "the same records"
    assert by_turn(ours, 3) == by_turn(theirs, 3), "the same membership"
    assert [
        (t.key, t.start_seq, t.end_seq_exclusive, t.outcome, t.opened_ms, t.closed_ms)
        for t in ours[2]
    ] == [
        (t.key, t.start_seq, t.end_seq_exclusive, t.outcome, t.opened_ms, t.closed_ms)
        for t in theirs[2]
    ]
    assert once[1] == many[1]


def by_turn(session_state, which: int) -> list:
    """Rows with the key of their turn instead of its id, which counts what was made before."""
    keys = {turn.turn_id: turn.key for turn in session_state[2]}
    return [msgspec.structs.replace(row, turn_id=keys[row.turn_id]) for row in session_state[which]]


def test_an_idle_report_before_the_messages_are_known_is_harmless(bench):
    a = bench.session()
    a.sync(idle=True)
    a.user("asked")
    a.sync()
    assert [t.outcome for t in bench.turns()] == [None]


def test_two_identical_messages_are_two_records(bench):
    a = bench.session()
    for _ in range(2):
        a.user("ok")
        a.assistant("ok", terminal="completed")
        a.sync(idle=True)
    records = bench.records()
    assert kinds(records) == ["user", "assistant"] * 2
    assert len({r.event_key for r in records}) == 4
    assert {bench.payload(r) for r in records} == {b"ok"}


def test_an_id_that_is_there_twice_is_refused_and_nothing_is_sealed(bench):
    a = bench.session()
    a.user("one")
    a.messages.append(a.messages[0])
    with pytest.raises(BadInput):
        a.sync()
    assert bench.records() == ()


def test_content_that_is_missing_is_asked_for_and_what_follows_waits(bench):
    a = bench.session()
    a.user("one")
    a.assistant("two", terminal="completed")
    a.user("three")
    whole = list(a.messages)
    bare = [msgspec.structs.replace(m, parts=None) for m in whole]
    response = bench.service.sync(SyncRequest(session=a.info, messages=[whole[0], *bare[1:]]))
    assert response.need == [whole[1].id, whole[2].id]
    assert kinds(bench.records()) == ["user"]
    response = bench.service.sync(SyncRequest(session=a.info, messages=[bare[0], *whole[1:]]))
    assert response.need == []
    assert kinds(bench.records()) == ["user", "assistant", "user"]


def test_an_unfinished_message_waits_and_so_does_what_follows(bench):
    a = bench.session()
    a.user("one")
    open_message = a._add("assistant", [TextPart(id="t", text="par")], final=False)
    a.sync()
    assert kinds(bench.records()) == ["user"]
    a.messages[-1] = msgspec.structs.replace(
        open_message, parts=[TextPart(id="t", text="partly done")], digest="d2", final=True
    )
    a.sync()
    assert [bench.payload(r) for r in bench.records()] == [b"one", b"partly done"]
    assert bench.held().disabled is None


# --- turns --------------------------------------------------------------------------------------


def test_steering_stays_in_the_running_turn(bench):
    a = bench.session()
    a.user("build it")
    a.assistant("building", tools=(("bash", {}, "ok"),))
    a.user("use make instead", opens=False)
    a.assistant("built with make", terminal="completed")
    a.sync(idle=True)
    (turn,) = bench.turns()
    assert (turn.start_seq, turn.end_seq_exclusive) == (0, 6)
    assert turn.outcome is Outcome.COMPLETED


def test_a_request_queued_after_the_final_answer_is_a_new_turn(bench):
    a = bench.session()
    a.user("one")
    a.assistant("answered", terminal="completed")
    a.user("queued while it ran", opens=False)
    a.sync()
    first, second = bench.turns()
    assert first.outcome is Outcome.COMPLETED
    assert second.outcome is None
    assert second.key == a.messages[-1].id


def test_a_dangling_answer_before_a_request_to_an_idle_session_is_an_interrupted_turn(bench):
    a = bench.session()
    a.user("one")
    a._add("assistant", [TextPart(id="t", text="half an ans")], final=False)
    a.user("two", opens=True)
    a.sync()
    first, second = bench.turns()
    assert first.outcome is Outcome.INTERRUPTED
    assert [bench.payload(r) for r in bench.records()] == [b"one", b"half an ans", b"two"]
    assert second.start_seq == 2


def test_an_idle_session_closes_what_has_no_terminal_message_as_interrupted(bench):
    """An idle session is not necessarily a completed task (§5)."""
    a = bench.session()
    a.user("one")
    a.assistant("said something")
    a.sync()
    assert bench.turns()[0].outcome is None
    a.sync(idle=True)
    assert bench.turns()[0].outcome is Outcome.INTERRUPTED


@pytest.mark.parametrize("terminal", ["completed", "interrupted", "failed"])
def test_a_turn_ends_as_the_host_says(bench, terminal):
    a = bench.session()
    a.user("one")
    a.assistant("two", terminal=terminal)
    a.sync(idle=True)
    (turn,) = bench.turns()
    assert turn.outcome.value == terminal
    assert turn.end_seq_exclusive == 2


def test_a_turn_ends_when_its_last_record_happened_whenever_that_was_reported(bench):
    """Recorded times are authoritative for interpretation (§5)."""
    a = bench.session()
    a.user("one")
    answer = a.assistant("said something")
    a.sync()
    a.sync(idle=True)
    assert bench.turns()[0].closed_ms == answer.created_ms


def test_turns_stay_in_order_also_when_one_gave_no_record(bench):
    """An attachment-free empty request opens and ends a turn without any record."""
    a = bench.session()
    for _ in range(12):
        a.user("")
        a.assistant("", terminal="completed")
    for message in a.messages:
        message.created_ms = 1_700_000_000_000
    a.user("real")
    a.messages[-1].created_ms = 1_600_000_100_000  # the host's clock went back
    a.sync()
    a.assistant("answer", terminal="completed")
    response = a.sync(idle=True)
    assert response.turn is None
    (with_records,) = [t for t in bench.turns() if t.end_seq_exclusive != t.start_seq]
    assert (with_records.start_seq, with_records.end_seq_exclusive) == (0, 2)
    assert with_records.outcome is Outcome.COMPLETED


def test_the_host_s_own_machinery_gives_no_records(bench):
    a = bench.session()
    a.user("one")
    a._add("other", [TextPart(id="c", text="compaction summary")])
    a.assistant("two", terminal="completed")
    a.sync(idle=True)
    assert kinds(bench.records()) == ["user", "assistant"]


# --- what a record is -----------------------------------------------------------------------------


def test_a_tool_part_is_a_call_and_a_result_paired_by_message_and_part(bench):
    a = bench.session()
    a.user("one")
    a.assistant("", tools=(("bash", {"c": "a"}, "A"), ("bash", {"c": "b"}, "B")))
    a.assistant("done", terminal="completed")
    a.sync(idle=True)
    _, call1, result1, call2, result2, _ = bench.records()
    assert (call1.pair, call2.pair) == (result1.pair, result2.pair)
    assert call1.pair != call2.pair
    assert [call1.kind, result1.kind] == [RecordKind.TOOL_CALL, RecordKind.TOOL_RESULT]
    assert [bench.payload(r) for r in (call1, result1, call2, result2)] == [
        b'{"c": "a"}',
        b"A",
        b'{"c": "b"}',
        b"B",
    ]


def test_a_call_without_a_result_says_that_it_was_interrupted(bench):
    a = bench.session()
    a.user("one")
    part = ToolPart(id="t", tool="bash", input_json="{}", status="running")
    a._add("assistant", [part], final=False)
    a.user("two")
    a.sync()
    _, _, result, _ = bench.records()
    assert result.status == "interrupted"
    assert b"no result" in bench.payload(result)


def test_a_truncated_output_says_so_and_where_the_whole_is(bench):
    a = bench.session()
    a.user("one")
    part = ToolPart(
        id="t",
        tool="bash",
        input_json="{}",
        status="completed",
        output="head…",
        truncated="output over 30000 characters",
        full_output_path="/tmp/full",
    )
    a._add("assistant", [part], terminal="completed")
    a.sync(idle=True)
    result = bench.records()[2]
    assert "30000" in result.truncated
    assert "/tmp/full" in result.truncated


def test_an_attachment_is_kept_by_manifest(bench):
    a = bench.session()
    a._add(
        "user", [FilePart(id="f", mime="image/png", filename="a.png", content_bytes=9)], opens=True
    )
    a.sync()
    (record,) = bench.records()
    assert json.loads(bench.payload(record))["filename"] == "a.png"


def test_a_lone_surrogate_is_kept_as_it_is(bench):
    a = bench.session()
    part = TextPart(id="p", text="broken \ud83d text")
    a.messages.append(MessageInfo(id="m", role="user", digest="d", final=True, parts=[part]))
    a.sync()
    (record,) = bench.records()
    assert bench.payload(record) == "broken \ud83d text".encode("utf-8", "surrogatepass")


def test_the_result_of_our_own_tool_is_kept_by_reference_only(bench):
    """Foreign evidence is not stored, indexed or published again as the reader's own (§3, I8)."""
    secret = "xylophone-quartz-7731"
    a = bench.session()
    a.user("what did we decide?")
    own = OwnResult(refs=["pub:0", "s9:0:3"], snapshot="pub<1", sha256="ab" * 32)
    part = ToolPart(
        id="t",
        tool="memory_zoom",
        input_json='{"ref": "pub:0"}',
        status="completed",
        output=f"the other session said {secret}",
        own=own,
    )
    a._add("assistant", [part])
    a.assistant("as the reference says", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    result = bench.records()[2]
    assert json.loads(bench.payload(result)) == {
        "refs": ["pub:0", "s9:0:3"],
        "snapshot": "pub<1",
        "sha256": "ab" * 32,
    }
    b = bench.session("B")
    b.user("anything?")
    b.sync()
    answer = b.assemble()
    assert secret not in answer.base + "".join(n.text for n in answer.news)
    found = json.loads(b.call("memory_search", query=secret).data_json)
    assert found["hits"] == []
    raw = b"".join(p.read_bytes() for p in bench.folder.iterdir() if p.is_file())
    assert secret.encode() not in raw


def test_there_is_no_part_for_reasoning(bench):
    """Hidden reasoning cannot be sent, so it cannot be stored (§3)."""
    body = {
        "session": msgspec.to_builtins(bench.session().info),
        "messages": [
            {
                "id": "m",
                "role": "assistant",
                "digest": "d",
                "final": True,
                "parts": [{"type": "reasoning", "id": "r", "text": "hmm"}],
            }
        ],
    }
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, SyncRequest)
    assert "reasoning" not in json.dumps(msgspec.json.schema(MessageInfo)).lower()


# --- changes of history ---------------------------------------------------------------------------


def changed_history(session: ScriptedSession, how: str) -> None:
    """What a host's edit, rewind or removal leaves, read a moment later."""
    session.clock_ms += 1
    match how:
        case "edited":
            session.edited(1, "something else")
        case "removed the last":
            del session.messages[-1]
        case "removed one within":
            del session.messages[1]
        case _:
            session.messages[0], session.messages[2] = session.messages[2], session.messages[0]


CHANGES = ["edited", "removed the last", "removed one within", "reordered"]


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_that_is_no_append_begins_a_generation_that_holds_what_the_host_holds(bench, how):
    """Superseded ranges cannot come back as evidence of the current generation (§12)."""
    a = bench.session()
    a.turn("one", "answer one")
    a.turn("two", "answer two")
    bench.drain()
    before = bench.history()
    changed_history(a, how)
    response = a.sync(idle=True)
    bench.drain()
    assert (response.generation, response.disabled) == (1, None)
    expected = [t.encode() for m in a.messages for t in texts_of(m)]
    assert [bench.payload(r) for r in bench.history()] == expected
    assert [bench.payload(r) for r in bench.records(generation=0)] == [
        bench.payload(r) for r in before
    ], "what was sealed is never changed (§3)"
    again = a.sync(idle=True)
    assert (again.sealed, again.generation) == (0, 1)


@pytest.mark.parametrize("how", CHANGES)
def test_publications_of_superseded_ranges_are_retired_and_others_stay(bench, how):
    a = bench.session()
    a.turn("one", "answer one")
    a.turn("two", "answer two")
    bench.drain()
    changed_history(a, how)
    a.sync(idle=True)
    bench.drain()
    first, second = bench.publications()[:2]
    assert (first.died is None) == (how == "removed the last")
    assert second.died is not None
    alive = [p for p in bench.publications() if p.died is None]
    covered = [seq for p in alive for seq in range(p.start_seq, p.end_seq_exclusive)]
    assert covered == list(range(len(bench.history()))), "each record in one live publication"


@pytest.mark.parametrize("how", CHANGES)
def test_the_next_request_after_a_change_shows_exactly_the_new_history(bench, how):
    a, b = bench.session("A"), bench.session("B")
    a.turn("one", "answer one")
    a.turn("two", "answer two")
    bench.drain()
    b.turn("before", "seen")
    changed_history(a, how)
    a.sync(idle=True)
    bench.drain()
    a.user("three")
    a.sync()
    check_sent(a, a.assemble())
    b.user("after")
    b.sync()
    check_sent(b, b.assemble())


def test_an_earlier_reading_of_the_host_changes_nothing(bench):
    """Late and repeated deliveries; what they lack was not removed (I5)."""
    a = bench.session()
    a.user("one")
    reports = [snapshot(a)]
    a.assistant("two", terminal="completed")
    reports.append(snapshot(a, idle=True))
    a.turn("three", "four")
    bench.drain()
    before = bench.state()
    for report in reports * 2:
        assert bench.service.sync(report).sealed == 0
    bench.drain()
    assert bench.state() == before


def test_one_reading_with_two_contents_is_a_conflict_and_nothing_is_written(bench):
    """Different content under an allegedly identical revision is an ingestion error (§3)."""
    a = bench.session()
    a.turn("one", "answer")
    before = bench.state()
    read_ms = a.clock_ms
    a.edited(1, "forged")
    a.clock_ms = read_ms
    with pytest.raises(EventConflict):
        a.sync()
    assert state_but_for_the_switch(bench) == before


def test_one_event_key_with_two_contents_is_a_conflict_and_nothing_is_written(bench):
    """The host lost and gave again the same ids with other content, behind our back (§3)."""
    a = bench.session()
    a.turn("one", "answer")
    held = bench.held()
    bench.store.write(lambda tx: tx.membership.truncate(held.session_id, 1))
    before = bench.state()
    a.messages[1] = msgspec.structs.replace(
        a.messages[1], parts=[msgspec.structs.replace(a.messages[1].parts[0], text="forged")]
    )
    with pytest.raises(EventConflict):
        a.sync()
    assert state_but_for_the_switch(bench) == before


def test_a_session_that_contradicted_itself_is_off_until_it_is_resynchronised(bench):
    """What its host delivers cannot be relied on, so requests go as they are, with the reason."""
    a = bench.session()
    a.turn("one", "answer")
    read_ms = a.clock_ms
    a.edited(1, "forged")
    a.clock_ms = read_ms
    with pytest.raises(EventConflict):
        a.sync()
    a.user("two")
    assert a.sync().sealed == 0
    assert "other content" in (a.sync().disabled or "")
    answer = a.assemble()
    assert (answer.state, answer.base) == ("native", "")
    assert "optchat resync" in (answer.notice or "")
    bench.service.resync(ResyncRequest(session="A"))
    assert a.sync().disabled is None
    assert bench.held().disabled is None


def state_but_for_the_switch(bench):
    """The state, with the session that was turned off turned on again; it must have been off."""
    held = bench.held()
    assert held.disabled
    bench.store.write(lambda tx: tx.sessions.put_session(dataclasses.replace(held, disabled=None)))
    return bench.state()


def test_every_order_of_reports_gives_the_same_records(make_bench):
    """Reports are made by several processes and may overtake each other (I5)."""
    expected = None
    for order in itertools.permutations(range(3)):
        bench = make_bench()
        a = bench.session()
        reports = []
        a.user("one")
        reports.append(snapshot(a))
        a.assistant("two", tools=(("bash", {}, "ok"),))
        reports.append(snapshot(a))
        a.assistant("three", terminal="completed")
        reports.append(snapshot(a, idle=True))
        for index in order:
            try:
                bench.service.sync(reports[index])
            except OptChatError as error:
                pytest.fail(f"{order}: {error}")
        bench.service.sync(reports[2])
        held = (
            [r.event_key for r in bench.records()],
            [(t.key, t.outcome) for t in bench.turns()],
            bench.held().disabled,
        )
        expected = expected or held
        assert held == expected, order
    assert expected is not None
    assert expected[2] is None
