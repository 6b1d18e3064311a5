"""What is published after the snapshot is in no hit, no excerpt, no count and no rank (§8, §16)."""

from __future__ import annotations

import re
from collections.abc import Generator

from optchat.testing.provider import CapturedRequest, Gate, Reply, ToolCall, calls, text
from tests.e2e.support import Memory, answering, answers, check_covered, memory_fixture

memory = memory_fixture()

LATE = "quokka77"
LONG = "the kestrel keeps its nest in the tower and returns to it each spring; " * 12


def search(query: str, **arguments: str) -> ToolCall:
    return ToolCall(name="memory_search", arguments={"query": query, **arguments})


# By word, phrase, exclusion, session, time; the last ones only what is late could match.
PROBES = (
    search("kestrel"),
    search('"the kestrel keeps"'),
    search("kestrel -tower"),
    search("kestrel nest", session="s1"),
    search("kestrel", after="2020-01-01"),
    search("kestrel", before="2099-01-01"),
    search(LATE),
    search(f"{LATE} kestrel"),
    search(LATE, session="s1"),
    search("nest", session="s3"),
)
CURSOR = re.compile(r"^cursor: (\S+)$", re.MULTILINE)
FIRST = re.compile(r"^(\d+) of (\d+) records match, and (\d+) summaries$", re.MULTILINE)


def test_hits_excerpts_counts_and_ranks_are_those_of_the_snapshot(memory: Memory) -> None:
    """§8, §9, §16; I3, I4. The same bytes before and after others publish what would rank first."""
    host, provider = memory.host, memory.provider
    a, b = host.create_session(title="A"), host.create_session(title="B")
    many = [{"type": "text", "text": f"kestrel {n}"} for n in range(30)]
    memory.turn(a, "", text(LONG), parts=many)
    memory.turn(a, "and then?", text(LONG))
    memory.wait_quiet()  # the summaries over both turns are there, to be found as well

    gate = Gate()
    rounds: list[list[str]] = []

    def model(request: CapturedRequest) -> Generator[Reply, CapturedRequest, None]:
        request = yield calls(*PROBES)
        rounds.append(answers(request))
        request = yield calls(*PROBES, gate=gate)
        rounds.append(answers(request))
        pages = [CURSOR.search(told[0]) for told in rounds]
        cursors = [page[1] for page in pages if page is not None]
        request = yield calls(*(search("kestrel", cursor=cursor) for cursor in cursors))
        rounds.append(answers(request))
        yield text("done")

    provider.responder = answering(b, model)
    host.prompt_async(b, "investigate")
    gate.wait_entered()
    # More matches, rarer words, and so many publications that new parents and their summaries come.
    c = host.create_session(title="C")
    for session in (a, c, a, c):
        memory.turn(session, f"{LATE} kestrel nest", text(f"{LATE} kestrel nest {LONG}"))
    memory.wait_quiet()
    gate.open()
    memory.wait_published(b, 1)
    provider.responder = None

    before, after, pages = rounds
    assert before == after
    assert len(pages) == 2
    assert pages[0] == pages[1]
    counts = [FIRST.search(told) for told in before[:9]]
    assert all(counts)
    searched = {found[2] for found in counts if found is not None}
    assert searched == {"33"}
    matched = [int(found[1]) for found in counts if found is not None]
    assert matched == [32, 2, 30, 32, 32, 32, 0, 32, 0]
    assert any(int(found[3]) for found in counts if found is not None), "no summary was found"
    assert before[9].startswith("not_found: 's3' names no conversation in this memory.")
    told = "".join([*before, *pages])
    assert LATE not in told.replace(f'"{LATE}', "")
    assert {ref.split(":")[0] for ref in re.findall(r"^(s\d+:0):", told, re.MULTILINE)} == {"s1"}

    # The next turn finds it all.
    provider.plan(b, calls(search(LATE), search("nest", session="s3")), text("done"))
    host.prompt(b, "and now?")
    late, in_c = answers(provider.requests(b)[-1])
    assert set(re.findall(r"^(s[13]):0:", late, re.MULTILINE)) == {"s1", "s3"}
    assert re.findall(r"^s3:0:", in_c, re.MULTILINE)
    memory.wait_published(b, 2)
    for session in (a, b, c):
        check_covered(memory, session)
