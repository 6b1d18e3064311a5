"""Whatever the window, a request fits it, or the turn ends in an error that says so.

§6 (MEMORY_NOT_READY), §7 (budget), §16 Budget pressure; I9, I10. The endpoint counts by its own
rule and refuses what does not fit, as a provider would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from optchat.testing.hostfiles import BIG, SMALL, TINY, ModelSpec, short_agent
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import (
    CapturedRequest,
    LoopbackProvider,
    Reply,
    context_overflow,
    text,
)
from tests.e2e.support import check_requests
from tests.e2e.support_b import Memory, has_memory, last_error, temporary_memory

SPECS = {spec.id: spec for spec in (TINY, SMALL, BIG)}
ENOUGH = "this is what was decided about the queue and why it was decided in that way; "
CODE = "if (queue[i].acked && !(retry > 3)) { log.drop(queue[i++], {id: 0x1f}); }\n"
CJK = "消息队列会保留每条消息直到消费者确认它为止。"
EXPLICIT = ("turn_too_large", "memory_not_ready")

PATIENT = "[memory]\nreadiness_timeout_ms = 15000\n"
"""A small window needs coarse summaries at once; a loaded machine makes them late."""


def filling(size: int, turn: int) -> str:
    """About so many bytes: prose, code or Chinese, as it comes."""
    pattern = (ENOUGH, CODE, ENOUGH, CJK)[turn % 4]
    return f"[{turn}] " + pattern * (size // len(pattern.encode()) + 1)


def needed(request: CapturedRequest) -> int:
    return request.prompt_tokens + int(request.body.get("max_tokens") or 0)


@dataclass(frozen=True, slots=True)
class Windows:
    memory: Memory
    provider: LoopbackProvider
    host: OpenCodeHost


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windows]:
    with temporary_memory(PATIENT) as memory, LoopbackProvider() as provider:
        memory.ensure()
        with OpenCodeHost(
            tmp_path_factory.mktemp("windows"),
            provider.base_url,
            plugins=[memory.plugin()],
            agents={"short": short_agent("memory_*", "read")},
            env=memory.env,
        ) as host:
            yield Windows(memory, provider, host)


def talk(windows: Windows, spec: ModelSpec, agent: str, turns: int, size: int) -> str:
    """Turns of about ``size`` bytes each way, until one ends in an error or all are done."""
    session = windows.host.create_session(title=f"{spec.id} {agent}")

    def answer(request: CapturedRequest) -> Reply:
        if needed(request) > SPECS[request.model].context:
            return context_overflow()
        return text(filling(size, len(request.messages)))

    windows.provider.responder = answer
    for turn in range(turns):
        prompt = f"step {turn}: " + filling(size // 8, turn)
        windows.host.prompt(session, prompt, model=spec.id, agent=agent)
        if last_error(windows.host, session):
            break
    return session


def check(windows: Windows, session: str, spec: ModelSpec) -> list[CapturedRequest]:
    """Every request of the session fits, and leaves nothing out (I2)."""
    requests = windows.provider.requests(session)
    check_requests(windows.host, requests, session)
    everything = [r for r in windows.provider.requests(session, None) if r.purpose != "title"]
    shown = [(r.number, r.purpose, needed(r), has_memory(r)) for r in everything]
    assert [one for one in shown if one[2] > spec.context] == [], shown
    return requests


@pytest.mark.parametrize(
    "spec, turns, size",
    [
        pytest.param(TINY, 20, 1_200, id="8k"),
        pytest.param(SMALL, 20, 3_000, id="16k"),
        pytest.param(BIG, 14, 60_000, id="200k"),
    ],
)
def test_a_long_conversation_of_a_short_agent_folds_and_always_fits(
    windows: Windows, spec: ModelSpec, turns: int, size: int
) -> None:
    """§7: text several times the window; every turn is answered, with memory, within it."""
    session = talk(windows, spec, "short", turns, size)
    assert last_error(windows.host, session) == ""
    requests = check(windows, session, spec)
    assert len(requests) == turns
    assert all(has_memory(request) for request in requests)
    assert len(windows.memory.folds(session)) >= 2


@pytest.mark.parametrize(
    "spec, turns, size",
    [
        pytest.param(TINY, 3, 1_000, id="8k"),
        pytest.param(SMALL, 8, 1_000, id="16k"),
        pytest.param(BIG, 2, 20_000, id="200k"),
    ],
)
def test_the_hosts_own_agent_fits_or_stops_with_the_explicit_error(
    windows: Windows, spec: ModelSpec, turns: int, size: int
) -> None:
    """§6, §7: its instructions and tools alone are about twelve thousand tokens."""
    session = talk(windows, spec, "build", turns, size)
    requests = check(windows, session, spec)
    error = last_error(windows.host, session)
    if error:
        assert "optchat:" in error
        assert any(code in error for code in EXPLICIT)
        assert "Next: " in error
    else:
        assert len(requests) == turns
        assert all(has_memory(request) for request in requests)
    assert bool(error) == (spec is TINY) or spec is SMALL


def test_a_request_larger_than_the_window_is_not_sent(windows: Windows) -> None:
    """§7, I9: the live turn alone is too large; the model is not called, the text is not lost."""
    session = windows.host.create_session(title="too large")
    windows.provider.responder = None
    windows.host.prompt(session, "small", model=TINY.id, agent="short")
    large = filling(60_000, 0)
    windows.host.prompt(session, large, model=TINY.id, agent="short")
    error = last_error(windows.host, session)
    assert "turn_too_large" in error
    assert "larger window" in error
    assert len(windows.provider.requests(session)) == 1
    windows.host.prompt(session, "and in a larger one?", model=BIG.id, agent="short")
    assert last_error(windows.host, session) == ""
    assert large in windows.provider.requests(session)[-1].user_texts[1]


def test_after_the_hosts_own_compaction_it_goes_on_with_memory(windows: Windows) -> None:
    """§13: the host compacts when a provider reports a full window, and goes on by itself."""
    session = windows.host.create_session(title="compacted")
    windows.provider.responder = None
    full = {"prompt_tokens": 191_000, "completion_tokens": 3_000, "total_tokens": 194_000}
    windows.provider.plan(
        session,
        text("the code word is quokka " + filling(2_000, 0)),
        text("and so on", usage=full),
        text("went on"),
        text("still here"),
    )
    for prompt in ("what is the code word?", "go on", "are you there?"):
        windows.host.prompt(session, prompt, model=BIG.id, agent="short")
    assert len(windows.provider.requests(session, "compaction")) == 1
    requests = windows.provider.requests(session)
    assert len(requests) == 4
    assert all(has_memory(request) for request in requests)
    assert all("the code word is quokka" in request.text for request in requests[1:])
    assert last_error(windows.host, session) == ""
