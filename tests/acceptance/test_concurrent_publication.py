"""A publishes while B works: B stays on its snapshot until its next turn (§9, §16)."""

from __future__ import annotations

import re
from collections.abc import Generator

from optchat.testing.provider import CapturedRequest, Gate, Reply, ToolCall, calls, text
from tests.e2e.support import (
    Memory,
    answering,
    answers,
    bases,
    check_covered,
    grows,
    memory_fixture,
    news,
    shared_lines,
)

memory = memory_fixture()

PROBES = (
    ToolCall(name="memory_search", arguments={"query": "kestrel"}),
    ToolCall(name="memory_search", arguments={"query": "quokka77"}),
    ToolCall(name="memory_search", arguments={"query": "decided"}),
    ToolCall(name="memory_sessions"),
    ToolCall(name="memory_date", arguments={"ref": "pub:0"}),
    ToolCall(name="memory_date", arguments={"ref": "pub:1"}),
    ToolCall(name="memory_zoom", arguments={"ref": "pub:0"}),
    ToolCall(name="memory_zoom", arguments={"ref": "pub:1"}),
    ToolCall(name="memory_zoom", arguments={"ref": "pub:0+2"}),
    ToolCall(name="memory_zoom", arguments={"ref": "s3:0:0"}),
)
CURSOR = re.compile(r"^cursor: (\S+)$", re.MULTILINE)


def page_two(first_page: str) -> ToolCall:
    found = CURSOR.search(first_page)
    assert found is not None
    return ToolCall(name="memory_search", arguments={"query": "kestrel", "cursor": found[1]})


def test_b_keeps_its_snapshot_through_its_tool_loop_and_sees_the_rest_at_its_next_turn(
    memory: Memory,
) -> None:
    """§8, §9, §16; I3, I4. Automatic memory, search, zoom, date, sessions, counts and cursors."""
    host, provider = memory.host, memory.provider
    a, b = host.create_session(title="A"), host.create_session(title="B")
    many = [{"type": "text", "text": f"kestrel {n}"} for n in range(25)]
    memory.turn(a, "", text("decided first"), parts=many)

    gate = Gate()
    rounds: list[list[str]] = []

    def model(request: CapturedRequest) -> Generator[Reply, CapturedRequest, None]:
        request = yield calls(*PROBES)
        rounds.append(answers(request))
        request = yield calls(*PROBES, gate=gate)
        rounds.append(answers(request))
        request = yield calls(page_two(rounds[0][0]), page_two(rounds[1][0]))
        rounds.append(answers(request))
        yield text("done")

    provider.responder = answering(b, model)
    host.prompt_async(b, "investigate")
    gate.wait_entered()
    c = host.create_session(title="C")
    memory.turn(a, "and the second?", text("decided quokka77, with a kestrel"))
    memory.turn(c, "mine too", text("decided quokka77 in C"))
    gate.open()
    memory.wait_published(b, 1)
    provider.responder = None

    requests = provider.requests(b)
    assert len(requests) == 4
    assert grows(requests)
    assert {tuple(bases(r)) for r in requests} == {tuple(bases(requests[0]))}
    assert {tuple(news(r)) for r in requests} == {tuple(news(requests[0]))}
    assert [line.ref for line in shared_lines(requests[0])] == ["pub:0"]
    assert not [r for r in requests if "second?" in r.text or "in C" in r.text]

    # Before and after the others published: the same bytes, whether found or refused.
    before, after, (page_a, page_b) = rounds
    assert before == after
    assert page_a == page_b
    kestrel, quokka, decided, sessions, _, date_1, zoom_0, zoom_1, zoom_range, record = before
    assert kestrel.startswith("25 of 26 records match")
    assert quokka.startswith("0 of 26 records match")
    assert decided.startswith("1 of 26 records match")
    assert len(re.findall(r"^s\d+:0:\d+ ", kestrel + page_a, re.MULTILINE)) == 25
    assert re.findall(r"^s\d+ ", sessions, re.MULTILINE) == ["s1 "]
    assert "decided first" in zoom_0
    assert all("names nothing in this memory" in x for x in (date_1, zoom_1, zoom_range, record))

    # The next turn sees it all, automatically and by tool.
    provider.plan(b, calls(*PROBES), text("done"))
    host.prompt(b, "and now?")
    first, second = provider.requests(b)[4:]
    shown = [line.text for line in shared_lines(first)]
    assert len([x for x in shown if "quokka77" in x]) == 2
    kestrel, quokka, decided, sessions, _, date_1, _, zoom_1, zoom_range, record = answers(second)
    # The originals of the others are told by their refs; B is not told of its own.
    assert len(re.findall(r"^s[13]:0:\d+ ", quokka, re.MULTILINE)) == 2
    assert len(re.findall(r"^s[13]:0:\d+ ", decided, re.MULTILINE)) == 3
    assert int(kestrel.split()[0]) > 25
    assert sorted(re.findall(r"^s\d+ ", sessions, re.MULTILINE)) == ["s1 ", "s2 ", "s3 "]
    assert date_1.startswith("pub:1: work from ")
    assert "quokka77" in zoom_1
    assert "pub:1 " in zoom_range
    assert "mine too" in record
    memory.wait_published(b, 2)
    for session in (a, b, c):
        check_covered(memory, session)
