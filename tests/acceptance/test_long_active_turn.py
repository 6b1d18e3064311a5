"""A turn many windows long: the live task is preserved, and so is the tool protocol (§7, §16)."""

from __future__ import annotations

import re

import pytest

from optchat.testing.hostfiles import ModelSpec, short_agent
from optchat.testing.provider import CapturedRequest, Reply, ToolCall, calls, text
from tests.e2e.support import Memory, answers, check_each_request, eventually, memory_fixture

WINDOW = ModelSpec(id="window-32k", context=32_768, output=2_048)
STEPS = 300
TASK = "go through all the ledgers, one by one, and tell which of them does not add up"
READY = "[memory]\nreadiness_timeout_ms = 20000\n"

memory = memory_fixture(
    config=READY,
    models=(WINDOW,),
    model=WINDOW.id,
    agents={"build": short_agent("read", "memory_*")},
)


@pytest.mark.timeout(600)
def test_a_tool_loop_of_many_windows_finishes_with_the_request_as_it_was_said(
    memory: Memory,
) -> None:
    """I2, I9: 300 steps on a 32k window; every request whole, paired and within the window."""
    host, provider = memory.host, memory.provider
    for n in range(10):
        rows = "".join(f"row {n}-{r}: debit and credit of the account\n" for r in range(18))
        (host.project / f"ledger{n}.txt").write_text(f"ledger number {n}\n{rows}", encoding="utf-8")
    session = host.create_session(title="long")
    memory.turn(session, "where are the ledgers?", text("they are in the project's folder"))
    made: list[str] = []

    def next_step(request: CapturedRequest) -> Reply:
        n = len(provider.requests(session)) - 2
        if n >= STEPS:
            return text("ledger 7 does not add up")
        told = re.findall(r"^(s\d+:\d+:\d+\S*) ", checkpoint_of(request), re.MULTILINE)
        if told and n % 50 == 0:
            made.append(told[0])
            return calls(ToolCall(name="memory_zoom", arguments={"ref": told[0]}))
        files = [host.project / f"ledger{(n + i) % 10}.txt" for i in range(1 + (n % 4 == 0))]
        return calls(*(ToolCall(name="read", arguments={"filePath": str(f)}) for f in files))

    provider.responder = next_step
    host.prompt_async(session, TASK)
    provider.wait_for(3, session)
    eventually(lambda: not host.status().get(session), 480, what="the end of the turn")
    requests = provider.requests(session)
    assert len(requests) == STEPS + 2
    memory.wait_published(session, 2)

    # Not one request is missing, none was refused, and the host never compacted.
    assert host.messages(session)[-1]["info"]["finish"] == "stop"
    assert provider.requests(session, "compaction") == []
    largest = max(requests, key=lambda r: len(r.raw))
    assert largest.prompt_tokens < WINDOW.context - WINDOW.output
    reads = check_each_request(memory, session)
    for read in reads[1:]:
        assert [said for role, said in read.native if role == "user"][-1] == TASK
    told = [tuple((c.start, c.end) for c in read.checkpoints) for read in reads]
    batches = len({x for x in told if x})
    assert 3 <= batches <= 40, "made in batches"
    assert reads[-1].checkpoints[0].end > STEPS * 2
    # What the checkpoint tells can be opened in the same turn.
    opened = [r for r in requests if made and any("memory_zoom" in str(m) for m in r.messages[-3:])]
    assert made
    assert any(
        "names nothing" not in told and "s1:0:" in told for r in opened for told in answers(r)
    )
    # The next turn goes on from it.
    (after,) = memory.turn(session, "which one was it?", text("ledger 7"))
    assert TASK in after.text


def checkpoint_of(request: CapturedRequest) -> str:
    found = re.findall(r"<optchat_checkpoint .*?</optchat_checkpoint>", _texts(request), re.DOTALL)
    return found[-1] if found else ""


def _texts(request: CapturedRequest) -> str:
    return "\n".join(request.user_texts)
