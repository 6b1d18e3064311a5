"""From a shared parent line down to the exact bytes, by memory_zoom alone (§8, §16)."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from optchat.core.tree import cover
from optchat.refs import PublicationRef, SessionRef, Span, parse_ref
from optchat.testing.provider import CapturedRequest, Reply, ToolCall, call, calls, text
from tests.e2e.support import (
    Memory,
    answers,
    bases,
    check_covered,
    lines,
    memory_fixture,
    shared_lines,
)

# Small enough that five turns make the shared view show parents, rendered anew for each session.
memory = memory_fixture(
    config="[memory]\nshared_high_bytes = 700\nshared_low_bytes = 400\n"
    "shared_base_news_bytes_max = 1\n"
)

# Long enough that a summary of two turns is shorter than their two lines.
REASONS = "memory is dear, disks are slow, and nobody has asked for more than that; " * 6
SCRIPT = 'for i in $(seq 1 1200); do echo "line $i: größer als ✓ 🜁"; done'
BELOW = re.compile(r"^  ((?:pub|s\d+:\d+):\d+(?:\+\d+)?) ", re.MULTILINE)
SOURCE = re.compile(r"^source: records (\d+)\.\.(\d+), covered by:$", re.MULTILINE)
ORIGINAL = re.compile(
    r"^original, bytes (\d+)\.\.(\d+) of (\d+), sha256 ([0-9a-f]{64}):\n((?:> .*\n)*)", re.MULTILINE
)
CURSOR = re.compile(r"^cursor: (\S+)$", re.MULTILINE)


@dataclass
class Walker:
    """A model that does nothing but open every reference it is shown, from one line down."""

    start: str
    session: str
    opened: dict[str, list[str]] = field(default_factory=dict)
    _asked: list[ToolCall] = field(default_factory=list)

    def __call__(self, request: CapturedRequest) -> Reply | None:
        if request.session_id != self.session:
            return None
        todo = [] if self._asked else [ToolCall(name="memory_zoom", arguments={"ref": self.start})]
        for asked, told in zip(self._asked, answers(request), strict=True):
            ref = asked.arguments["ref"]
            self.opened.setdefault(ref, []).append(told)
            below = [{"ref": found} for found in BELOW.findall(told)]
            below += [{"ref": ref, "cursor": found} for found in CURSOR.findall(told)]
            todo += [ToolCall(name="memory_zoom", arguments=args) for args in below]
        self._asked = todo
        return calls(*todo) if todo else text("done")

    def children(self, ref: str) -> list[str]:
        return [found for told in self.opened[ref] for found in BELOW.findall(told)]


def host_payloads(messages: list[dict[str, Any]]) -> list[bytes]:
    """What the host itself holds, as it must have been retained (§3), in order."""
    held: list[str] = []
    for message in messages:
        for part in message["parts"]:
            if part["type"] == "text":
                held.append(part["text"])
            elif part["type"] == "tool":
                state = part["state"]
                held += [
                    json.dumps(state["input"], ensure_ascii=False, separators=(",", ":")),
                    state["output"],
                ]
    return [content.encode() for content in held]


def test_a_shared_parent_line_leads_by_zoom_alone_to_the_bytes_that_the_host_holds(
    memory: Memory,
) -> None:
    """§4, §5, §8, §16; I1. Every range splits in two, every cover is exact, every byte is there."""
    host = memory.host
    a = host.create_session(title="A")
    bash = {"command": SCRIPT, "description": "much output"}
    memory.turn(a, "Wie groß ist der Bestand? — bitte zählen", call("bash", bash), text("1200 ✓"))
    for n in range(1, 5):
        answer = f"Decided: the limit of tier {n} is {n}00 MB, for these reasons: {REASONS}"
        memory.turn(a, f"What is the limit of tier {n}?", text(answer))
    memory.wait_quiet()

    b = host.create_session(title="B")
    (seen,) = memory.turn(b, "hello", text("hi"))
    [parent] = [x for x in shared_lines(seen) if x.ref == "pub:0+4"]
    assert parent in lines(bases(seen)[0])
    walker = Walker(start=parent.ref, session=b)
    memory.provider.responder = walker
    memory.turn(b, "Look it up.")
    memory.provider.responder = None
    used = [
        made["function"]["name"]
        for message in memory.provider.requests(b)[-1].messages
        for made in message.get("tool_calls") or ()
    ]
    assert set(used) == {"memory_zoom"}

    # Ranges split into their halves, down to publications.
    assert walker.children("pub:0+4") == ["pub:0+2", "pub:2+2"]
    assert walker.children("pub:0+2") == ["pub:0", "pub:1"]
    assert walker.children("pub:2+2") == ["pub:2", "pub:3"]
    # Each publication names its turn's exact cover; together they are A's history without a gap.
    number, end = int(memory.name(a)[1:]), 0
    for seq in range(4):
        told = walker.opened[f"pub:{seq}"][0]
        assert f"turn of s{number} (A), completed" in told
        found = SOURCE.search(told)
        assert found is not None
        first, last = int(found[1]), int(found[2])
        assert first == end
        end = last + 1
        expected = [str(SessionRef(number, 0, span)) for span in cover(first, end)]
        assert walker.children(f"pub:{seq}") == expected
    for ref in walker.opened:
        parsed = parse_ref(ref)
        if isinstance(parsed, PublicationRef) or parsed.span.count == 1:
            continue
        halves = [str(SessionRef(number, 0, half)) for half in parsed.span.children]
        assert walker.children(ref) == halves

    # Each record is byte for byte what A's host holds, its hash shown, page by page.
    payloads = host_payloads(host.messages(a)[: 3 + 2 * 3])
    assert end == len(payloads)
    for seq, payload in enumerate(payloads):
        pages = walker.opened[str(SessionRef(number, 0, Span(seq, 1)))]
        read, at = "", 0
        for page in pages:
            found = ORIGINAL.search(page)
            assert found is not None
            assert int(found[1]) == at
            assert int(found[3]) == len(payload)
            assert found[4] == hashlib.sha256(payload).hexdigest()
            at = int(found[2])
            read += "\n".join(line[2:] for line in found[5].splitlines())
        assert at == len(payload)
        assert read.encode() == payload
        assert "complete: yes" in pages[-1]
        assert all("complete: no" in page for page in pages[:-1])
    assert max(len(payload) for payload in payloads) > 30_000
    check_covered(memory, a)
    check_covered(memory, b)
    assert max(len(pages) for pages in walker.opened.values()) >= 3
