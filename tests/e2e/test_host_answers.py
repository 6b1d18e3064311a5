"""What the real host does where the design had open questions; one claim each."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optchat.testing.hostfiles import configuration, write_json
from optchat.testing.opencode import HostError, OpenCodeHost
from optchat.testing.provider import Gate, LoopbackProvider, call, text
from optchat.testing.stage import Recording, Stage
from optchat.testing.tui import TerminalHost

Make = Callable[..., OpenCodeHost]
PLUGINS = Path(__file__).parent / "plugins"
STOP = "please STOP HERE"
BASH = {"command": "echo one", "description": "say one"}


def last_assistant(host: OpenCodeHost, session: str) -> dict[str, Any]:
    messages = host.messages(session)
    return [m["info"] for m in messages if m["info"]["role"] == "assistant"][-1]


# A turn that the plugin stops


@pytest.mark.parametrize(
    "hook", ["experimental.chat.system.transform", "chat.params", "chat.headers"]
)
def test_a_throw_in_a_request_hook_ends_the_turn_with_a_visible_error(
    hook: str, recorded_host: Make, provider: LoopbackProvider
) -> None:
    name = hook.removeprefix("experimental.chat.")
    host = recorded_host({"throwIn": name, "throwText": STOP})
    session, events = host.create_session(title="stopped"), host.events()
    answer = host.prompt(session, STOP)["info"]

    message = f"recorder stops this turn in {name}"
    assert answer["error"] == {"name": "UnknownError", "data": {"message": message}}
    assert answer["time"]["completed"]
    assert "finish" not in answer
    error = events.wait_type("session.error", session=session)["properties"]["error"]
    assert error["data"]["message"] == message
    assert provider.requests(session) == []  # neither sent nor tried again
    assert host.prompt(session, "go on")["info"]["finish"] == "stop"
    assert provider.requests(session)[0].user_texts == [STOP, "go on"]


def test_a_throw_after_a_tool_step_keeps_the_step_and_ends_the_turn(
    recorded_host: Make, provider: LoopbackProvider
) -> None:
    host = recorded_host({"throwIn": "chat.params", "throwText": STOP, "throwFrom": 2})
    session = host.create_session(title="stopped later")
    provider.plan(session, call("bash", BASH))
    answer = host.prompt(session, STOP)["info"]
    assert answer["error"]["data"]["message"] == "recorder stops this turn in chat.params"
    steps = [m["info"] for m in host.messages(session)[1:]]
    assert [s.get("finish") for s in steps] == ["tool-calls", None]
    assert all(s["time"]["completed"] for s in steps)


def test_a_throw_in_messages_transform_leaves_a_row_that_never_ends(recorded_host: Make) -> None:
    host = recorded_host({"throwIn": "messages.transform", "throwText": STOP})
    session = host.create_session(title="torn")
    with pytest.raises(HostError) as caught:
        host.prompt(session, STOP)
    assert caught.value.status == 500
    row = last_assistant(host, session)
    assert "completed" not in row["time"]
    assert "error" not in row


def test_an_abort_from_messages_transform_ends_the_row_without_saying_why(
    recorded_host: Make, provider: LoopbackProvider
) -> None:
    host = recorded_host({"abortIn": "messages.transform", "throwText": STOP})
    session = host.create_session(title="aborted")
    answer = host.prompt(session, STOP)["info"]
    assert answer["error"] == {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    assert provider.requests(session) == []


def test_a_throw_in_chat_message_refuses_the_prompt_and_stores_nothing(recorded_host: Make) -> None:
    host = recorded_host({"throwIn": "chat.message", "throwText": STOP})
    session = host.create_session(title="refused")
    with pytest.raises(HostError) as caught:
        host.prompt(session, STOP)
    assert caught.value.status == 500
    assert host.messages(session) == []


def test_a_stopped_turn_is_visible_in_a_one_shot_run(recorded_host: Make) -> None:
    host = recorded_host({"throwIn": "chat.params", "throwText": STOP})
    result = host.run(STOP)
    errors = [event["error"] for event in result.events if event["type"] == "error"]
    assert errors[0]["data"]["message"] == "recorder stops this turn in chat.params"
    assert result.status == 1


# The size of tools


def mcp_server() -> dict[str, Any]:
    command = [sys.executable, str(PLUGINS / "mcp_server.py")]
    return {"mcp": {"srv": {"type": "local", "command": command}}}


def test_tool_definition_runs_once_a_tool_before_messages_transform_but_not_for_mcp(
    recorded_host: Make, provider: LoopbackProvider, recording: Recording
) -> None:
    host = recorded_host({}, overrides=mcp_server())
    session = host.create_session(title="tools")
    provider.plan(session, call("bash", BASH), text("done"))
    host.prompt(session, "go")

    order = [line["hook"] for line in recording.of("tool.definition", "messages.transform")]
    defined = [line["toolID"] for line in recording.of("tool.definition")]
    each = len(defined) // 2
    assert defined[:each] == defined[each:]  # once for each of the two calls
    assert order == (["tool.definition"] * each + ["messages.transform"]) * 2
    sent = provider.requests(session)[0].tool_names
    assert set(sent) - set(defined) == {"srv_lookup"}
    # Built-in tools come without a JSON schema, so the hook cannot size them.
    sized = {line["toolID"] for line in recording.of("tool.definition") if line["schema"]}
    assert sized == {"task"}


def test_the_tool_list_is_what_goes_over_the_wire_except_for_mcp(
    recorded_host: Make, provider: LoopbackProvider, recording: Recording
) -> None:
    host = recorded_host({"listTools": True}, overrides=mcp_server())
    session = host.create_session(title="tools")
    host.prompt(session, "go")

    listed = {tool["id"]: tool for tool in recording.of("tool.list")[0]["tools"]}
    sent = {tool["function"]["name"]: tool["function"] for tool in provider.requests()[0].tools}
    assert set(sent) - set(listed) == {"srv_lookup"}
    assert set(listed) - set(sent) == {"invalid"}
    for name in set(sent) & set(listed):
        assert sent[name]["description"] == listed[name]["description"]
        assert sent[name]["parameters"] == listed[name]["parameters"]


def test_a_fetch_set_in_the_config_hook_sees_and_can_refuse_every_request(
    make_host: Make, provider: LoopbackProvider, recording: Recording
) -> None:
    meter = (str(PLUGINS / "meter.js"), {"file": str(recording.path)})
    host = make_host(plugins=[meter])
    session = host.create_session()
    host.prompt(session, "go")
    provider.wait_for(1, session, purpose="title")
    refused = host.prompt(session, "this one is OVER BUDGET")["info"]

    metered = sorted(line["bytes"] for line in recording.of("fetch", session=session))
    sent = sorted(len(request.raw) for request in provider.requests(purpose=None))
    assert metered[: len(sent)] == sent
    assert len(metered) == len(sent) + 1
    assert refused["error"]["data"]["message"] == "this request is over budget"
    assert refused["time"]["completed"]


# Plugin entries


@pytest.mark.parametrize(
    "where, name",
    [("global", "opencode.json"), ("global", "opencode.jsonc"), ("project", "opencode.jsonc")],
)
def test_every_form_of_plugin_entry_loads_and_gets_its_options(
    where: str, name: str, make_host: Make, provider: LoopbackProvider, tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    home = tmp_path / "home"
    base = home / "config" / "opencode" if where == "global" else home / "project"

    def plugin(label: str) -> Path:
        path = folder / f"{label}.js"
        out = json.dumps(str(tmp_path / "loaded"))
        path.write_text(
            'import { appendFileSync } from "node:fs"\n'
            f'export default {{ id: "{label}", async server(_, options = null) {{\n'
            f'  appendFileSync({out}, JSON.stringify(["{label}", options]) + "\\n")\n'
            "  return {}\n}}\n"
        )
        return path

    options = {"a": {"b": [1, True, None]}}
    entries: list[Any] = [
        [plugin("uri-options").as_uri(), options],
        [str(plugin("path-options")), options],
        plugin("uri").as_uri(),
        str(plugin("path")),
        os.path.relpath(plugin("relative"), base),
    ]
    host = make_host(home=home, start=False)
    whole = {**configuration(provider.base_url), "plugin": entries}
    if where == "global":
        (base / "opencode.json").unlink()
        write_json(base / name, whole)
    else:
        write_json(base / name, {"plugin": entries})
    path = base / name
    if name.endswith("c"):
        path.write_text("// a comment\n" + path.read_text())
    host.start()
    host.prompt(host.create_session(title="x"), "go")

    loaded = [json.loads(line) for line in (tmp_path / "loaded").read_text().splitlines()]
    assert loaded == [
        ["uri-options", options],
        ["path-options", options],
        ["uri", None],
        ["path", None],
        ["relative", None],
    ]


# What messages look like in the hook and in the store


def seen_by_hook(stage: Stage, session: str) -> list[dict[str, Any]]:
    return stage.recording.of("messages.transform", session=session)[-1]["messages"]


def test_a_mode_reminder_is_a_synthetic_part_of_the_hook_that_is_never_stored(
    stage: Stage,
) -> None:
    session = stage.host.create_session(title="plan")
    stage.host.prompt(session, "make a plan", agent="plan")
    stored = stage.host.messages(session)[0]["parts"]
    shown = seen_by_hook(stage, session)[0]["parts"]
    assert [part["text"] for part in stored] == ["make a plan"]
    assert shown[0] == stored[0]
    assert shown[1]["synthetic"] is True
    assert shown[1]["text"].startswith("<system-reminder>")
    assert shown[1]["id"] not in {part["id"] for part in stored}


def test_a_file_attachment_is_stored_as_synthetic_text_and_a_file_part(stage: Stage) -> None:
    path = stage.host.project / "note.txt"
    path.write_text("first line\n")
    session = stage.host.create_session(title="file")
    attached = {"type": "file", "mime": "text/plain", "filename": "note.txt", "url": path.as_uri()}
    stage.host.prompt(session, parts=[{"type": "text", "text": "look"}, attached])
    stored = stage.host.messages(session)[0]["parts"]
    assert [(p["type"], p.get("synthetic")) for p in stored] == [
        ("text", None),
        ("text", True),
        ("text", True),
        ("file", None),
    ]
    assert seen_by_hook(stage, session)[0]["parts"] == stored


def test_a_steered_message_looks_like_any_other_user_message(stage: Stage) -> None:
    session, gate = stage.host.create_session(title="steer"), Gate()
    stage.provider.plan(session, call("bash", BASH, gate=gate), text("done"))
    mark = stage.events.mark()
    stage.host.prompt_async(session, "start")
    gate.wait_entered()
    stage.host.prompt_async(session, "turn left")
    stage.events.wait_text("turn left", since=mark)
    gate.open()
    stage.events.wait_type("session.idle", session=session, since=mark)

    shown = seen_by_hook(stage, session)
    stored = stage.host.messages(session)[:3]
    assert [m["parts"] for m in shown] == [m["parts"] for m in stored]
    assert [m["info"]["id"] for m in shown] == [m["info"]["id"] for m in stored]
    assert stage.provider.requests(session)[-1].last_user_text == "turn left"


def test_a_subagent_is_a_session_with_a_parent_and_its_report_is_a_tool_result(
    stage: Stage,
) -> None:
    session = stage.host.create_session(title="parent")
    task = {"description": "sub", "prompt": "do the small thing", "subagent_type": "general"}
    stage.provider.plan(session, call("task", task), text("parent done"))
    stage.provider.plan_text("do the small thing", text("child report"))
    stage.host.prompt(session, "delegate")

    (child,) = [s for s in stage.host.sessions() if s.get("parentID") == session]
    assert child["agent"] == "general"
    request = stage.provider.requests(child["id"])[0]
    assert request.parent_session_id == session
    assert seen_by_hook(stage, child["id"])[0]["info"]["agent"] == "general"
    (tool,) = [p for p in stage.host.messages(session)[1]["parts"] if p["type"] == "tool"]
    assert "child report" in tool["state"]["output"]
    assert tool["state"]["metadata"]["sessionId"] == child["id"]


# Memory and the title


@pytest.mark.parametrize("order", ["mainWaits", "titleWaits", "free"])
def test_a_base_reaches_every_main_request_and_no_title_request(
    order: str, recorded_host: Make, provider: LoopbackProvider, recording: Recording
) -> None:
    """Both use the same model; the first two cases force the title between or after the hooks."""
    recorder = {"base": "BASE OF MEMORY", order: True}
    host = recorded_host(recorder, overrides={"small_model": None})
    events = host.events()
    sessions = [host.create_session() for _ in range(1 if order != "free" else 8)]
    for session in sessions:
        host.prompt_async(session, "hello")
    for session in sessions:
        events.wait_type("session.idle", session=session, timeout=60)
        titles = provider.wait_for(1, session, purpose="title")
        assert all("BASE OF MEMORY" not in request.text for request in titles)
        host.prompt(session, "again")
        for request in provider.requests(session):
            assert request.system_texts[1:] == ["BASE OF MEMORY"]
        assert {request.model for request in provider.requests(session, None)} == {"big-200k"}
    if order != "free":
        hooks = ("messages.transform", "system.transform", "chat.params")
        lines = recording.of(*hooks, session=sessions[0])
        kinds = [line["agent"] for line in lines if line["hook"] == "chat.params"]
        first = ["title", "build"] if order == "mainWaits" else ["build", "title"]
        assert kinds[:2] == first


def test_a_flag_alone_would_leak_into_the_title(
    recorded_host: Make, provider: LoopbackProvider
) -> None:
    """The control for the test above: the forced order is one in which a flag is not enough."""
    recorder = {"base": "BASE OF MEMORY", "mainWaits": True, "naive": True}
    host = recorded_host(recorder)
    session = host.create_session()
    host.prompt(session, "hello")
    (title,) = provider.wait_for(1, session, purpose="title")
    assert "BASE OF MEMORY" in title.text


def test_a_base_does_not_reach_the_native_compaction(
    recorded_host: Make, provider: LoopbackProvider
) -> None:
    host = recorded_host({"base": "BASE OF MEMORY"})
    session = host.create_session(title="x")
    host.prompt(session, "hello")
    host.summarize(session)
    host.prompt(session, "again")
    (compaction,) = provider.requests(session, "compaction")
    assert "BASE OF MEMORY" not in compaction.text
    assert provider.requests(session)[-1].system_texts[1:] == ["BASE OF MEMORY"]


# Whether a session is busy


def test_session_status_at_chat_message_tells_a_new_turn_from_a_steered_one(stage: Stage) -> None:
    session, gate = stage.host.create_session(title="busy"), Gate()
    stage.provider.plan(session, text("slow", gate=gate))
    mark = stage.events.mark()
    stage.host.prompt_async(session, "start")
    gate.wait_entered()
    stage.host.prompt_async(session, "meanwhile")
    stage.events.wait_text("meanwhile", since=mark)
    gate.open()
    stage.events.wait_type("session.idle", session=session, since=mark)
    statuses = [line["status"] for line in stage.recording.of("chat.message", session=session)]
    assert [status.get(session) for status in statuses] == [None, {"type": "busy"}]


# Notices


def test_a_notice_works_without_a_terminal(recorded_host: Make, recording: Recording) -> None:
    host = recorded_host({"notice": "memory is off"})
    events = host.events()
    host.prompt(host.create_session(title="x"), "go")
    (line,) = recording.of("notice")
    assert (line["toast"], line["log"]) == (True, True)
    shown = events.wait_type("tui.toast.show")["properties"]
    assert (shown["message"], shown["variant"]) == ("memory is off", "warning")
    assert "memory is off" in host.log


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_a_notice_is_a_toast_in_the_terminal(make_host: Make, recording: Recording) -> None:
    plugin = (
        str(PLUGINS / "recorder.js"),
        {"file": str(recording.path), "notice": "memory is off"},
    )
    host = make_host(plugins=[plugin], start=False)
    with TerminalHost(host) as terminal:
        terminal.wait_for("Ask anything")
        terminal.submit("say something")
        terminal.wait_for("memory is off")


# Two processes


def test_a_second_process_reads_what_the_first_wrote_and_hears_nothing_of_it(
    make_host: Make, provider: LoopbackProvider
) -> None:
    first = make_host()
    second = make_host(sibling_of=first)
    session, gate = first.create_session(title="shared"), Gate()
    second.prompt(second.create_session(title="warm"), "load the folder")
    events = second.events()
    provider.plan(session, text("slow", gate=gate))
    first_events = first.events()
    first.prompt_async(session, "only in the first")
    gate.wait_entered()
    assert first.status()[session] == {"type": "busy"}
    assert session not in second.status()
    gate.open()
    first_events.wait_type("session.idle", session=session)

    assert [p["text"] for p in second.messages(session)[0]["parts"]] == ["only in the first"]
    second.prompt(session, "now in the second")
    assert provider.requests(session)[-1].user_texts == ["only in the first", "now in the second"]
    heard = [e for e in events.events if "only in the first" in json.dumps(e)]
    assert heard == []
