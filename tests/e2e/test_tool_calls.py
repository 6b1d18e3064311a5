"""The model calls each tool and each alias, right, wrong, short and with too much (§8, §13).

The host passes raw arguments, so that what a model gets wrong reaches us as it is: each call must
be answered in words that it can act on, the loop goes on, and nothing is logged as a failure.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from optchat.testing.hostfiles import short_agent
from optchat.testing.provider import ToolCall, calls, text
from optchat.wire import ALIAS_NAMES, TOOL_NAMES
from tests.e2e.support import Memory, answers, check_pairs, memory_fixture

memory = memory_fixture(
    config="[recall]\naliases = true\n",
    agents={"build": short_agent("bash", "memory_*", "recall*", "search_memory_tree")},
)
plain = memory_fixture(agents={"build": short_agent("bash", "memory_*", "recall*")})

PORT = "The port of the broker is 4222, as we have decided."
Args = Any

RIGHT: dict[str, list[Args]] = {
    "memory_zoom": [{"ref": "pub:0"}, {"ref": "s1:0:1"}],
    "memory_search": [{"query": "broker"}, {"query": '"port of the broker"', "session": "s1"}],
    "memory_date": [{"ref": "pub:0"}],
    "memory_sessions": [{}, {"search": "first", "files": True, "tools": True}],
    "memory_messages": [{"session": "s1"}, {"ref": "s1:0:1", "before": 1, "after": 0}],
    "recall": [
        {"query": "broker"},
        {"query": "broker", "scope": "global", "results": 3, "expand": "context", "window": 1},
        {"query": "port.*broker", "match": "regex", "deep": True, "width": 80},
    ],
    "recall_get": [{"messageID": "s1:0:1"}, {"sessionID": "$SESSION", "messageID": "$ANSWER"}],
    "recall_context": [{"sessionID": "$SESSION", "messageID": "$ANSWER", "window": 0, "before": 1}],
    "recall_messages": [{"sessionID": "$SESSION"}, {"sessionID": "s1", "role": "user", "limit": 1}],
    "recall_sessions": [{"scope": "project"}, {"search": "first"}, {"parentID": "current"}],
    "search_memory_tree": [{"node_id": "pub:0"}, {"query": "broker"}],
}
MISSING: dict[str, Args] = {
    "memory_zoom": {},
    "memory_search": {},
    "memory_date": {},
    "memory_messages": {"before": 1},
    "recall": {"scope": "global"},
    "recall_get": {"sessionID": "s1"},
    "recall_context": {},
    "search_memory_tree": {},
}
WRONG: dict[str, list[Args]] = {
    "memory_zoom": [
        {"ref": 7},
        {"ref": "s1"},
        {"ref": "pub:0", "max_tokens": "all"},
        {"ref": None},
    ],
    "memory_search": [{"query": ["a"]}, {"query": "a", "before": "soon"}, {"query": ""}],
    "memory_date": [{"ref": {}}, {"ref": "yesterday"}],
    "memory_sessions": [{"archived": "yes"}, {"since": "soon"}, {"cursor": "x"}, {"parent": "s99"}],
    "memory_messages": [
        {"role": "god"},
        {"limit": 0},
        {"ref": "s1:0:0", "before": -1},
        {"session": "s99"},
        {"session": "s1", "ref": "s1:0:0"},
    ],
    "recall": [{"query": 7}, {"query": "a", "type": "dreams"}, {"query": "a", "scope": "moon"}],
    "recall_get": [{"messageID": 7}, {"sessionID": "ses_none", "messageID": "msg_none"}],
    "recall_context": [{"messageID": "s1:0:0", "window": "wide"}],
    "recall_messages": [{"sessionID": 7}, {"sessionID": "ses_none"}, {"role": "god"}],
    "recall_sessions": [{"limit": "all"}, {"scope": "moon"}],
    "search_memory_tree": [
        {"node_id": 7},
        {"node_id": "node0_001"},
        {"query": "a", "node_id": "b"},
    ],
}
CODES = ("bad_input:", "not_found:")


def check_log(memory: Memory) -> None:
    """Nothing has failed in the coordinator; it names each refusal by path and code alone."""
    logs = [*memory.home.rglob("*.log")]
    assert logs
    for path in logs:
        logged = path.read_text(encoding="utf-8")
        assert "Traceback" not in logged
        assert "failed" not in logged


@pytest.fixture(autouse=True)
def _first(memory: Memory) -> None:
    """The conversation that is looked up; before anything else, whichever test comes first."""
    if not memory.provider.requests():
        first = memory.host.create_session(title="first")
        memory.turn(first, "Which port has the broker?", text(PORT))
        memory.wait_quiet()
        assert memory.name(first) == "s1"


@pytest.fixture
def asking(memory: Memory) -> Any:
    """Makes calls in one turn of a conversation; what was answered, in their order."""

    def ask(tool: str, *given: Args) -> list[str]:
        first = next(
            s.host_session
            for scope in memory.status().scopes  # type: ignore[union-attr]
            for s in scope.sessions
            if s.ref == "s1"
        )
        answer = memory.host.messages(first)[-1]["info"]["id"]
        session = memory.host.create_session(title=f"ask {tool}")
        filled = json.loads(json.dumps(given).replace("$SESSION", first).replace("$ANSWER", answer))
        made = calls(*(ToolCall(name=tool, arguments=args) for args in filled))
        requests = memory.turn(session, "look it up", made, text("gone on"))
        assert len(requests) == 2, "the loop went on"
        check_pairs(requests[-1])
        told = answers(requests[-1])
        assert len(told) == len(given)
        # What was answered is kept by reference, right or wrong.
        rows = memory.host.messages(session)
        owned = [p for m in rows for p in m["parts"] if p["type"] == "tool"]
        assert all("optchat" in p["state"]["metadata"] for p in owned)
        return told

    return ask


@pytest.mark.parametrize("tool", [*TOOL_NAMES, *ALIAS_NAMES])
def test_a_model_may_call_it_right_wrong_short_and_with_too_much(
    memory: Memory, asking: Any, tool: str
) -> None:
    right, wrong = RIGHT[tool], WRONG[tool]
    surplus = {**right[0], "nonsense": True, "query2": "x"}
    missing = [MISSING[tool]] if tool in MISSING else []
    told = asking(tool, *right, *wrong, *missing, surplus)
    for args, answer in zip(right, told, strict=False):
        assert not answer.startswith(CODES), (args, answer)
        assert "snapshot: pub<" in answer
    for args, answer in zip([*wrong, *missing, surplus], told[len(right) :], strict=False):
        assert answer.startswith(CODES), (args, answer)
        code, hint = answer.split("\n", 1)
        assert "nothing was" in code or "names no" in code, answer
        assert hint.strip(), answer
        assert len(answer) < 900
    check_log(memory)


@pytest.mark.parametrize("tool", ["memory_search", "recall"])
def test_arguments_that_are_no_object_are_the_hosts_to_refuse_and_the_loop_goes_on(
    memory: Memory, tool: str
) -> None:
    session = memory.host.create_session(title="no object")
    made = calls(*(ToolCall(name=tool, arguments=given) for given in ([], "text", 7)))
    requests = memory.turn(session, "look it up", made, text("gone on"))
    assert len(requests) == 2
    check_pairs(requests[-1])
    check_log(memory)


def test_their_results_are_kept_by_reference_and_are_not_found_again(
    memory: Memory, asking: Any
) -> None:
    """§3: what an alias answered is no new record of it."""
    (told,) = asking("recall", {"query": "broker"})
    assert PORT in told
    (found,) = asking("memory_search", {"query": '"as we have decided"'})
    assert found.startswith("1 of "), found


def test_what_has_no_counterpart_is_said(asking: Any) -> None:
    regex, reasoning, deep = asking(
        "recall",
        {"query": "port.*broker", "match": "regex"},
        {"query": "broker", "type": "reasoning"},
        {"query": '"as we have decided"', "deep": True},
    )
    assert "note: a regular expression is searched for" in regex
    assert "note: reasoning is never kept" in reasoning
    assert PORT not in reasoning
    assert "note: tool outputs are always searched" in deep
    assert PORT in deep


def test_their_names_are_offered_only_where_that_is_switched_on(
    memory: Memory, plain: Memory
) -> None:
    offered = {}
    for name, host in (("on", memory), ("off", plain)):
        session = host.host.create_session(title="offered")
        (request,) = host.turn(session, "hello", text("hi"))
        tools = json.loads(request.raw)["tools"]
        offered[name] = {t["function"]["name"]: t["function"] for t in tools}
    ours, theirs = set(TOOL_NAMES), set(ALIAS_NAMES)
    assert offered["on"].keys() & (ours | theirs) == ours | theirs
    assert offered["off"].keys() & (ours | theirs) == ours
    recall = offered["on"]["recall"]["parameters"]
    assert recall["required"] == ["query"]
    assert recall["properties"]["sessions"]["items"] == {"type": "string"}
    for name in ours:
        assert offered["on"][name] == offered["off"][name]
