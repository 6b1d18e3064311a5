"""The four points that the design rests on, proved on the real host (specification, section 13)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optchat.testing.hostfiles import short_agent
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import (
    SUMMARY_TEXT,
    Gate,
    LoopbackProvider,
    Reply,
    ToolCall,
    call,
    calls,
    canonical_bytes,
    failure,
    text,
)
from optchat.testing.stage import Recording, Stage
from optchat.testing.tui import TerminalHost

Json = dict[str, Any]
Make = Callable[..., OpenCodeHost]
BASH = {"command": "echo one", "description": "say one"}


def texts(message: Json) -> list[str]:
    return [part["text"] for part in message["parts"] if part["type"] == "text"]


def outline(messages: list[Json]) -> list[tuple[str, list[str]]]:
    return [(message["info"]["role"], texts(message)) for message in messages]


def assistants(messages: list[Json]) -> list[Json]:
    return [message for message in messages if message["info"]["role"] == "assistant"]


# Point 1


def test_the_ui_keeps_the_native_transcript_while_the_request_carries_synthetic_content(
    recorded_host: Make, provider: LoopbackProvider
) -> None:
    host = recorded_host({"view": "MEMORY OF EARLIER TURNS\n\n"})
    session = host.create_session(title="one")
    for prompt in ("alpha", "beta", "gamma"):
        host.prompt(session, prompt)

    last = provider.requests(session)[-1]
    assert [m["role"] for m in last.messages] == ["system", "user"]
    assert last.last_user_text == "MEMORY OF EARLIER TURNS\n\n\ngamma"
    assert outline(host.messages(session)) == [
        (role, [content])
        for prompt in ("alpha", "beta", "gamma")
        for role, content in (("user", prompt), ("assistant", "ok"))
    ]
    host.restart()
    assert "MEMORY" not in json.dumps(host.messages(session))


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_the_terminal_shows_the_native_transcript(
    make_host: Make, provider: LoopbackProvider, recording: Recording
) -> None:
    recorder = Path(__file__).parent / "plugins" / "recorder.js"
    options = {"file": str(recording.path), "view": "MEMORY OF EARLIER TURNS\n\n"}
    host = make_host(plugins=[(str(recorder), options)], start=False)
    provider.plan_text("alpha", text("first answer"))
    provider.plan_text("beta", text("second answer"))
    with TerminalHost(host) as terminal:
        terminal.wait_for("Ask anything")
        terminal.submit("alpha")
        terminal.wait_for("first answer")
        terminal.submit("beta")
        screen = terminal.wait_for("second answer")
    assert "alpha" in screen
    assert "first answer" in screen
    assert "MEMORY" not in screen
    assert provider.requests()[-1].last_user_text == "MEMORY OF EARLIER TURNS\n\n\nbeta"


# Point 2


def test_tool_continuations_keep_call_result_pairs_and_the_same_injected_bytes(
    recorded_host: Make, provider: LoopbackProvider
) -> None:
    host = recorded_host({"view": "MEMORY\n\n", "base": "BASE"})
    session = host.create_session(title="two")
    two = [ToolCall(name="bash", arguments={**BASH, "command": f"echo {n}"}) for n in "ab"]
    host.prompt(session, "before")
    provider.plan(session, calls(*two), call("bash", BASH), text("done"))
    host.prompt(session, "work")

    first, second, third = provider.requests(session)[1:]
    for earlier, later in ((first, second), (second, third)):
        assert canonical_bytes(later).startswith(canonical_bytes(earlier))
    asked = [c["id"] for m in third.messages for c in m.get("tool_calls") or ()]
    answered = [m["tool_call_id"] for m in third.messages if m["role"] == "tool"]
    assert asked == answered == ["call_2_0", "call_2_1", "call_3_0"]
    assert [m["content"] for m in third.messages if m["role"] == "tool"] == ["a\n", "b\n", "one\n"]
    assert third.system_texts[1] == "BASE"


def test_a_retried_call_carries_the_same_bytes(
    recorded_host: Make, provider: LoopbackProvider
) -> None:
    """The host runs only the system hook again for a retry, so the base must still be armed."""
    host = recorded_host({"view": "MEMORY\n\n", "base": "BASE"})
    session = host.create_session(title="retry")
    provider.plan(session, failure(503), text("done"))
    host.prompt(session, "work")

    first, second = provider.requests(session)
    assert first.raw == second.raw
    assert first.system_texts[1] == "BASE"


# Point 3


def test_every_terminal_outcome_is_read_back_exactly_once(stage: Stage) -> None:
    host, provider, events = stage.host, stage.provider, stage.events
    session = host.create_session(title="outcomes")

    host.prompt(session, "completed")
    provider.plan(session, failure(400, "no such thing"))
    host.prompt(session, "failed")
    provider.plan(session, Reply(text="half an answer", gate_mid=Gate()))
    mark = events.mark()
    host.prompt_async(session, "aborted")
    events.wait(
        lambda e: e["type"] == "message.part.delta" and e["properties"]["sessionID"] == session,
        since=mark,
    )
    host.abort(session)
    events.wait_final(session, since=mark)

    messages = host.messages(session)
    assert outline(messages) == [
        ("user", ["completed"]),
        ("assistant", ["ok"]),
        ("user", ["failed"]),
        ("assistant", []),
        ("user", ["aborted"]),
        ("assistant", ["half an answer"]),
    ]
    infos = [message["info"] for message in assistants(messages)]
    assert all(info["time"]["completed"] for info in infos)
    assert [info.get("finish") for info in infos] == ["stop", None, None]
    errors = [info["error"]["name"] if "error" in info else None for info in infos]
    assert errors == [None, "APIError", "MessageAbortedError"]
    ids = [message["info"]["id"] for message in messages]
    assert len(set(ids)) == len(ids)
    assert ids == [message["info"]["id"] for message in host.messages(session)]


def test_a_steered_message_ends_the_first_turn_at_its_tool_call(stage: Stage) -> None:
    host, provider, events = stage.host, stage.provider, stage.events
    session, gate = host.create_session(title="steered"), Gate()
    provider.plan(session, call("bash", BASH, gate=gate), text("both done"))
    mark = events.mark()
    host.prompt_async(session, "first")
    gate.wait_entered()
    host.prompt_async(session, "steer this")
    events.wait_text("steer this", since=mark)
    gate.open()
    events.wait_final(session, count=2, since=mark)
    events.wait_type("session.idle", session=session, since=mark)

    messages = host.messages(session)
    users = [m["info"]["id"] for m in messages if m["info"]["role"] == "user"]
    infos = [message["info"] for message in assistants(messages)]
    assert [info["parentID"] for info in infos] == users
    assert [info["finish"] for info in infos] == ["tool-calls", "stop"]
    assert len(events.of_type("session.idle", session=session)) == 1


def test_a_message_queued_during_the_final_text_starts_a_turn_without_an_idle_between(
    stage: Stage,
) -> None:
    host, provider, events = stage.host, stage.provider, stage.events
    session, gate = host.create_session(title="queued"), Gate()
    provider.plan(session, text("first answer", gate_mid=gate), text("second answer"))
    mark = events.mark()
    host.prompt_async(session, "first")
    gate.wait_entered()
    host.prompt_async(session, "queue this")
    events.wait_text("queue this", since=mark)
    gate.open()
    events.wait_final(session, count=2, since=mark)
    events.wait_type("session.idle", session=session, since=mark)

    messages = host.messages(session)
    infos = [message["info"] for message in assistants(messages)]
    assert [info["finish"] for info in infos] == ["stop", "stop"]
    assert [texts(m) for m in assistants(messages)] == [["first answer"], ["second answer"]]
    assert len({info["parentID"] for info in infos}) == 2
    assert len(events.of_type("session.idle", session=session)) == 1


def test_a_killed_host_leaves_an_open_row_that_stays_open(
    make_host: Make, provider: LoopbackProvider
) -> None:
    host = make_host()
    session = host.create_session(title="killed")
    provider.plan(session, Reply(text="lost words", gate_mid=Gate()))
    events = host.events()
    host.prompt_async(session, "go")
    events.wait_type("message.part.delta", session=session)
    host.kill()
    host.start()
    host.prompt(session, "after the crash")

    dangling, answered = assistants(host.messages(session))
    assert "completed" not in dangling["info"]["time"]
    assert "finish" not in dangling["info"]
    assert "error" not in dangling["info"]
    assert texts(dangling) == [""]
    assert answered["info"]["finish"] == "stop"


# Point 4


def test_native_compaction_is_a_marked_pair_after_which_the_hook_sees_only_the_rest(
    stage: Stage,
) -> None:
    host, provider = stage.host, stage.provider
    session = host.create_session(title="compacted")
    for prompt in ("one", "two"):
        host.prompt(session, prompt)
    mark = stage.events.mark()
    host.summarize(session)
    stage.events.wait_type("session.compacted", session=session, since=mark)
    host.prompt(session, "three")

    messages = host.messages(session)
    request, summary = messages[4:6]
    assert [part["type"] for part in request["parts"]] == ["compaction"]
    assert summary["info"]["summary"] is True
    assert summary["info"]["agent"] == "compaction"
    assert texts(summary) == [SUMMARY_TEXT]
    assert [texts(m) for m in messages[:4]] == [["one"], ["ok"], ["two"], ["ok"]]
    assert provider.requests(session, "compaction")[0].tools == []

    compacting, transform = stage.recording.of(
        "session.compacting", "messages.transform", session=session
    )[2:4]
    assert (compacting["hook"], transform["hook"]) == ("session.compacting", "messages.transform")
    seen = stage.recording.of("messages.transform", session=session)[-1]["messages"]
    assert [m["info"]["id"] for m in seen][:2] == [request["info"]["id"], summary["info"]["id"]]
    assert texts(seen[-1]) == ["three"]


def test_a_fork_has_new_ids_and_carries_the_metadata_stamp_of_its_origin(stage: Stage) -> None:
    host = stage.host
    session = host.create_session(title="origin", metadata={"optchat": {"session": "stamp"}})
    host.prompt(session, "one")
    host.prompt(session, "two")
    second_user = host.messages(session)[2]["info"]["id"]
    fork = host.fork(session, second_user)

    assert "parentID" not in fork
    assert fork["metadata"] == {"optchat": {"session": "stamp"}}
    original, copied = host.messages(session), host.messages(fork["id"])
    assert outline(copied) == outline(original)[:2]
    assert {m["info"]["id"] for m in copied}.isdisjoint(m["info"]["id"] for m in original)
    assert copied[0]["info"]["time"]["created"] == original[0]["info"]["time"]["created"]
    assert copied[0]["info"]["time"]["created"] < fork["time"]["created"]
    assert copied[1]["info"]["parentID"] == copied[0]["info"]["id"]


def test_an_edited_part_is_stored_and_sent_and_reported_as_a_part_update(stage: Stage) -> None:
    host = stage.host
    session = host.create_session(title="edited")
    host.prompt(session, "speling")
    part = host.messages(session)[0]["parts"][0]
    mark = stage.events.mark()
    host.patch_part(session, {**part, "text": "spelling"})
    stage.events.wait_text("spelling", since=mark)
    host.prompt(session, "next")

    assert texts(host.messages(session)[0]) == ["spelling"]
    assert stage.provider.requests(session)[-1].user_texts == ["spelling", "next"]


def test_a_revert_hides_messages_and_the_next_prompt_removes_them(stage: Stage) -> None:
    host, events = stage.host, stage.events
    session = host.create_session(title="reverted")
    host.prompt(session, "keep")
    host.prompt(session, "undo")
    undone = [m["info"]["id"] for m in host.messages(session)[2:]]
    host.revert(session, undone[0])
    assert host.session(session)["revert"]["messageID"] == undone[0]
    assert len(host.messages(session)) == 4
    host.unrevert(session)
    assert "revert" not in host.session(session)

    host.revert(session, undone[0])
    mark = events.mark()
    host.prompt(session, "instead")
    removed = [
        event["properties"]["messageID"]
        for event in events.events[mark:]
        if event["type"] == "message.removed"
    ]
    assert sorted(removed) == sorted(undone)
    assert [t for _, t in outline(host.messages(session))] == [
        ["keep"], ["ok"], ["instead"], ["ok"],
    ]  # fmt: skip


def test_deleting_a_message_orphans_its_answer_and_deleting_a_session_leaves_nothing(
    stage: Stage,
) -> None:
    host, events = stage.host, stage.events
    session = host.create_session(title="deleted")
    host.prompt(session, "one")
    host.prompt(session, "two")
    first = host.messages(session)[0]["info"]["id"]
    mark = events.mark()
    host.delete_message(session, first)
    events.wait_type("message.removed", session=session, since=mark)
    assert host.messages(session)[0]["info"]["parentID"] == first

    host.delete(session)
    events.wait_type("session.deleted", session=session, since=mark)
    assert session not in {found["id"] for found in host.sessions()}


def test_a_resumed_session_sends_what_it_sent_before_and_more(
    make_host: Make, provider: LoopbackProvider
) -> None:
    host = make_host(agents={"short": short_agent("bash")}, overrides={"default_agent": "short"})
    session = host.create_session(title="resumed")
    provider.plan(session, call("bash", BASH), text("done"))
    host.prompt(session, "before")
    host.restart()
    host.prompt(session, "after")

    earlier, later = provider.requests(session)[-2:]
    assert later.tool_names == ["bash"]
    assert canonical_bytes(later).startswith(canonical_bytes(earlier))
