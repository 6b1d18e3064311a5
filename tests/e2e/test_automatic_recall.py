"""A request that refers to earlier work brings it along, on the real host (§7, §8; I2, I4)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from optchat.core.context import recalled_in
from optchat.testing.hostfiles import short_agent
from optchat.testing.provider import CapturedRequest, call, text
from tests.e2e.support import (
    Memory,
    check_covered,
    comparable,
    grows,
    memory_fixture,
    news,
    running_memory,
)

AGENTS = {"build": short_agent("bash", "memory_*")}
# A loaded test machine is not what the bound is for.
CUES = '[recall]\nautomatic = "cues"\nautomatic_ms = 20000\n'
memory = memory_fixture(config=CUES, agents=AGENTS)

FIX = "The redirect loop is gone: nginx needs proxy_redirect off in the server block."
CUE = "How did we fix the redirect loop of nginx last time?"


def brought_up(request: CapturedRequest) -> str:
    return recalled_in(news(request)[-1])


def told(memory: Memory) -> str:
    session = memory.host.create_session(title="the fix")
    memory.turn(session, "nginx is in a redirect loop", text(FIX))
    memory.wait_quiet()
    return session


def test_a_cue_brings_up_what_another_conversation_said_and_never_the_conversation_itself(
    memory: Memory,
) -> None:
    first = told(memory)
    name = memory.name(first)
    other = memory.host.create_session(title="asking")
    bash = {"command": "echo step", "description": "a step"}
    requests = memory.turn(other, CUE, call("bash", bash), text("as it says"))
    assert len(requests) == 2
    for request in requests:
        assert FIX in brought_up(request)
        assert re.search(rf"\n{name}:0:\d+ ", brought_up(request))
    (plain,) = memory.turn(other, "Write a haiku about nginx and its redirect loop", text("done"))
    assert brought_up(plain) == ""
    assert FIX in news(plain)[0], "what a turn was told is repeated with it"
    # Asked again where it was said, and where the answer only repeats it.
    (own,) = memory.turn(first, CUE, text("see above"))
    assert f"\n{name}:" not in brought_up(own)
    for session in (first, other):
        assert grows(memory.provider.requests(session))
        check_covered(memory, session)


def test_switched_off_each_request_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    sent = []
    for config in ("", '[recall]\nautomatic = "off"\nautomatic_bytes = 4096\n'):
        with running_memory(tmp_path / "m", config=config, agents=AGENTS) as memory:
            told(memory)
            session = memory.host.create_session(title="asking")
            memory.turn(session, CUE, text("no idea"))
            memory.turn(session, "and now?", text("none either"))
            sent.append([plain(r) for r in memory.provider.requests(session)])
        shutil.rmtree(tmp_path / "m")
    assert sent[0] == sent[1]
    assert len(sent[0]) == 2
    assert "recalled" not in json.dumps(sent)


def plain(request: CapturedRequest) -> Any:
    """A request's body without the minute at which it was made."""
    body = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", "MINUTE", request.raw.decode())
    return comparable(json.loads(body))
