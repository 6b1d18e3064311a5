"""Whatever makes the summaries, a turn of one session reaches the next session's request.

The host's own model, an endpoint that speaks chat completions, and one that speaks Anthropic's
messages (§10, §14), each on the real host. What the host's model is used for leaves no trace in the
host: no session in a list, nothing of it in the memory, and nothing left behind by a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from optchat.compactor.prompts import prompts
from optchat.testing.captured import CapturedRequest
from optchat.testing.endpoint import Asked, Endpoint, obedient
from optchat.testing.provider import Gate, Reply, content_text, failure, text
from optchat.testing.tui import TerminalHost
from tests.e2e.support import (
    Json,
    Memory,
    check_covered,
    eventually,
    running_memory,
    shared_lines,
)

HOST = """
[compactor]
model = "host"
hold_seconds = 0
timeout_seconds = 20
"""
ENDPOINT = """
[compactor]
model = "{model}"
url = "{url}"
model_name = "m-1"
hold_seconds = 0
"""
SMALL = "medium-64k"
LONG = "The retry in src/net/http.ts waits 250 ms; the log shows ECONNRESET from the proxy. " * 10
NAME = "src/net/http.ts"

Responder = Callable[[CapturedRequest], Reply | None]


def is_summary(request: CapturedRequest) -> bool:
    return bool(request.system_texts) and request.system_texts[0] == prompts().system


def asked_of(request: CapturedRequest) -> Asked:
    """A captured call of the compactor as a model reads it."""
    system, *messages = (content_text(m) for m in request.messages)
    return Asked(system, tuple(messages))


def answer(request: CapturedRequest, **options: Any) -> Reply:
    """What an obedient model says to it."""
    return text(obedient(asked_of(request)), **options)


def summaries(memory: Memory) -> list[CapturedRequest]:
    return [r for r in memory.provider.requests(purpose=None) if is_summary(r)]


def answering(respond: Responder = answer) -> Responder:
    return lambda request: respond(request) if is_summary(request) else None


@pytest.fixture(scope="module")
def by_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    folder = tmp_path_factory.mktemp("m")
    with running_memory(folder, config=HOST, small_model=SMALL) as memory:
        yield memory


@pytest.fixture
def memory(by_host: Memory) -> Memory:
    by_host.provider.responder = answering()
    return by_host


def traces(memory: Memory) -> list[Json]:
    """Every session of the host that is not a person's, wherever it hangs."""
    return [s for s in memory.host.sessions() if s.get("metadata", {}).get("optchat")]


def gone(memory: Memory) -> bool:
    return not traces(memory)


def titles(memory: Memory) -> list[str]:
    """What a person's list shows."""
    return sorted(s["title"] for s in memory.host.sessions(roots="true"))


def calls_billed(memory: Memory) -> int:
    return memory.optchat_json("spend")["total"]["calls"]


def reaches(memory: Memory, name: str) -> None:
    """A turn of one session, made into a line, stands in the next session's request (§7)."""
    a = memory.host.create_session(title=f"{name} A")
    memory.turn(a, "Which retry?", text(LONG))
    memory.wait_quiet()
    b = memory.host.create_session(title=f"{name} B")
    [request] = memory.turn(b, "What of the retry?", text("It waits."))
    mine = [line for line in shared_lines(request) if line.label.startswith(memory.name(a))]
    assert len(mine) == 1
    assert NAME in mine[0].text
    assert len(mine[0].text) < len(LONG)
    check_covered(memory, a)
    check_covered(memory, b)


@pytest.mark.parametrize("model", ["openai", "anthropic"])
def test_a_turn_reaches_the_next_session_by_an_endpoint(model: str, tmp_path: Path) -> None:
    """§10, §14: chat completions and Anthropic's messages drive the same way."""
    with Endpoint() as endpoint:
        config = ENDPOINT.format(model=model, url=endpoint.url)
        with running_memory(tmp_path, config=config) as memory:
            reaches(memory, model)
            assert not summaries(memory), "the host's own model was not asked"
            spent = memory.optchat_json("spend")["total"]
            assert spent["calls"] == len(endpoint.received) >= 2
    assert all("tools" not in r.body for r in endpoint.received)


def test_a_turn_reaches_the_next_session_by_the_host_s_own_model(memory: Memory) -> None:
    """§10: the small model, no tools, the instructions as they are; each call is on the bill."""
    # A call whose host was closed on it counts, whether or not it went out: of other tests there
    # may be more calls on the bill than were seen.
    memory.wait_quiet()
    before, billed = len(summaries(memory)), calls_billed(memory)
    reaches(memory, "host")
    made = summaries(memory)[before:]
    assert made
    for request in made:
        assert not request.tools
        assert "tool_choice" not in request.body
        assert request.model == SMALL
        roles = [m["role"] for m in request.messages]
        assert roles == ["system", "user"]
        assert "optchat_memory" not in request.text
        assert "optchat_news" not in request.text
    memory.wait_quiet()  # a call is on the bill before it is on the wire
    assert calls_billed(memory) - billed == len(summaries(memory)) - before
    spend = memory.optchat_json("spend")
    assert spend["total"]["input_tokens"] > 0
    assert not spend["unfinished"]
    # The agent that makes them is offered to nobody: not to a person, and not to a model as a task.
    mains = [r for r in memory.provider.requests() if not is_summary(r)]
    assert not [r for r in mains if "optchat-summary" in r.text]


def test_a_second_try_goes_on_in_the_same_conversation(memory: Memory) -> None:
    """§10: the answer that was refused stands between the two questions, as the model's own."""
    bad = "nothing of the form that was asked for"
    before = len(summaries(memory))
    memory.provider.responder = answering(
        lambda request: answer(request) if asked_of(request).is_retry else text(bad)
    )
    a = memory.host.create_session(title="second try")
    memory.turn(a, "Which retry?", text(LONG))
    first, second = summaries(memory)[before:]
    assert [m["role"] for m in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[:2] == first.messages
    assert content_text(second.messages[2]) == bad
    assert second.session_id != first.session_id


def test_nothing_of_a_summary_is_seen_kept_or_left(memory: Memory) -> None:
    """§10, §13: before, during and after a call the lists and the memory hold the person's only."""
    gate = Gate()
    memory.provider.responder = answering(lambda request: answer(request, gate=gate))
    a = memory.host.create_session(title="seen")
    before = titles(memory)
    events = memory.host.events()
    memory.provider.plan(a, text(LONG))
    memory.host.prompt(a, "Which retry?")
    gate.wait_entered()

    assert titles(memory) == before
    assert memory.host.request("GET", f"/session/{a}/children") == []
    [hidden] = traces(memory)
    assert hidden["parentID"] == "ses_optchat"
    stored = memory.host.messages(hidden["id"])
    assert LONG[:40] not in str(stored), "no transcript's text is stored a second time"
    assert memory.counts(hidden["id"]) is None
    gate.open()
    memory.wait_published(a, 1)
    eventually(lambda: gone(memory), what="the session of the call deleted")

    assert titles(memory) == before
    assert memory.counts(hidden["id"]) is None
    assert memory.records(a) == 2
    assert "an archive of conversations" in prompts().system
    searched = memory.optchat("search", "archive", "--directory", str(memory.host.project))
    assert "of conversations" not in searched
    asked = events.of_type("permission.asked", "permission.updated")
    assert not asked
    assert not events.of_type("session.error")


def test_the_terminal_shows_nothing_of_a_summary(memory: Memory) -> None:
    """§13: neither the screen nor the list of sessions, while one is made and after it."""
    gate = Gate()
    memory.provider.responder = answering(lambda request: answer(request, gate=gate))
    memory.provider.plan_text("Which terminal?", text(LONG))
    with TerminalHost(memory.host) as terminal:
        terminal.wait_for("Ask anything")
        terminal.submit("Which terminal?")
        terminal.wait_for("ECONNRESET")
        gate.wait_entered()
        during = terminal.screen()
        terminal.submit("/sessions")
        listed = terminal.wait_for("Sessions")
        gate.open()
        eventually(lambda: gone(memory))
        after = terminal.screen()
    for screen in (during, listed, after):
        assert "summary" not in screen.lower()
        assert "optchat" not in screen.lower()


def test_what_a_killed_host_leaves_is_deleted_by_the_next_and_the_turn_is_summarised(
    tmp_path: Path,
) -> None:
    """§10: kill -9 in the middle of a call; the session goes, and the job is not lost."""
    gate = Gate()
    with running_memory(tmp_path, config=HOST, small_model=SMALL) as memory:
        memory.provider.responder = answering(lambda request: answer(request, gate=gate))
        a = memory.host.create_session(title="killed")
        memory.provider.plan(a, text(LONG))
        memory.host.prompt(a, "Which retry?")
        gate.wait_entered()
        [left] = traces(memory)
        memory.host.kill()
        memory.provider.responder = answering()
        gate.open()

        memory.host.start()
        # The first request makes the host load its plugins.
        eventually(lambda: gone(memory), what=f"{left['id']} deleted")
        eventually(lambda: memory.published(a) == 1 or None, timeout=90)
        assert memory.records(a) == 2
        assert memory.counts(left["id"]) is None
        eventually(lambda: gone(memory))
        again = [code for r in summaries(memory)[1:] for code in asked_of(r).codes]
        assert len(again) == len(set(again)), "only the call that was cut off is made twice"


def test_a_provider_that_is_overrun_is_not_asked_again_by_the_host(memory: Memory) -> None:
    """§10: the host would try for ever; the queue waits instead, says so, and goes on."""
    refusals: list[CapturedRequest] = []

    def refuse_once(request: CapturedRequest) -> Reply:
        if not refusals:
            refusals.append(request)
            return failure(429, "Rate limit reached")
        return answer(request)

    memory.provider.responder = answering(refuse_once)
    events = memory.host.events()
    before = len(summaries(memory))
    a = memory.host.create_session(title="overrun")
    memory.provider.plan(a, text(LONG))
    memory.host.prompt(a, "Which retry?")
    told = eventually(lambda: [n for n in memory.status().notices if "rate limited" in n] or None)
    assert "summaries wait" in told[0]
    memory.provider.plan(a, text("ok"))
    memory.host.prompt(a, "And now?")
    memory.wait_published(a, 2)
    eventually(lambda: gone(memory))
    after = summaries(memory)[before:]
    assert after[0].raw == refusals[0].raw
    assert after[1].session_id != after[0].session_id, "a new call, and not the host's own retry"
    assert not events.of_type("session.error"), "the person is not shown an error of the host's"


def test_a_one_shot_run_leaves_its_jobs_and_ends_in_time(tmp_path: Path) -> None:
    """§10: whoever is opened next makes what it left; the run does not wait."""
    with running_memory(tmp_path, config=HOST, small_model=SMALL, start=False) as memory:
        memory.provider.responder = answering()
        memory.provider.plan_text("one shot", text(LONG))
        done = memory.host.run("one shot")
        assert done.status == 0, done
        assert not summaries(memory)
        assert memory.records(done.session_id) == 2
        assert memory.published(done.session_id) == 0
        assert "no host is open that could make summaries" in memory.optchat("status")

        memory.host.start()
        assert gone(memory)  # asking makes the host load its plugins
        memory.wait_published(done.session_id, 1)


def test_a_model_that_the_host_does_not_have_is_told_and_costs_nothing(tmp_path: Path) -> None:
    """§10: the named outcome, no call on the bill, and the turn is there all the same."""
    config = HOST + 'small_model = "fake/no-such-model"\n'
    with running_memory(tmp_path, config=config) as memory:
        a = memory.host.create_session(title="A")
        memory.provider.plan(a, text(LONG))
        memory.host.prompt(a, "Which retry?")
        eventually(lambda: "gone" in " ".join(memory.status().notices) or None)
        assert memory.optchat_json("spend")["total"]["input_tokens"] == 0
        eventually(lambda: gone(memory))
        assert memory.records(a) == 2
        assert len(memory.provider.requests(purpose=None)) == 1
