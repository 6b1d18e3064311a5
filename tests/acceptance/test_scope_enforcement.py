"""Another scope's references are as unknown as those that never were (§8, §11, §16).

Two projects on one host and one coordinator. That the refusal also costs the same work is in
``tests/engine/test_scope_enforcement.py``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from optchat.engine.answers import Cursor, encode_cursor
from optchat.errors import OptChatError
from optchat.testing.hostfiles import make_project
from optchat.testing.provider import ToolCall, calls, text
from optchat.wire import ToolRequest, ToolResponse
from tests.e2e.support import (
    Memory,
    answers,
    check_covered,
    memory_fixture,
    shared_lines,
)

memory = memory_fixture()

SECRET = "zanzibar"


@dataclass(frozen=True, slots=True)
class Two:
    """A first project with three sessions and five turns, a second with one session."""

    memory: Memory
    other: Path
    mine: str
    theirs: tuple[str, ...]

    def ask(self, *probes: ToolCall) -> list[str]:
        """What the session of the second project is told, in one turn of its own."""
        sent = self.memory.turn(
            self.mine, "look", calls(*probes), text("seen"), directory=self.other
        )
        assert SECRET not in "".join(r.text for r in sent).replace(f'"{SECRET}"', "")
        return answers(sent[-1])


@pytest.fixture(scope="module")
def theirs(memory: Memory) -> tuple[str, ...]:
    """The first project's sessions; the host ids."""
    found = tuple(memory.host.create_session(title=f"{SECRET} {n}") for n in range(3))
    for n, session in enumerate([*found, *found[:2]]):
        many = [{"type": "text", "text": f"{SECRET} kestrel {n} {m}"} for m in range(8)]
        memory.turn(session, "", text(f"{SECRET} answer {n}"), parts=many)
    return found


@pytest.fixture
def two(memory: Memory, theirs: tuple[str, ...], request: pytest.FixtureRequest) -> Two:
    name = re.sub(r"\W+", "-", request.node.name)
    other = make_project(memory.host.home / name)
    mine = memory.host.create_session(directory=other, title="mine")
    memory.turn(mine, "kestrel of mine", text("kestrel answer of mine"), directory=other)
    return Two(memory, other, mine, theirs)


def zoom(ref: str) -> ToolCall:
    return ToolCall(name="memory_zoom", arguments={"ref": ref})


def date(ref: str) -> ToolCall:
    return ToolCall(name="memory_date", arguments={"ref": ref})


FOREIGN = ("pub:3", "pub:4", "pub:2+2", "pub:0+4", "s2:0:0", "s3:0:8", "s2:0:0+8", "s2:0:16+2")
NEVER = tuple(ref.replace(":", ":90", 1) if "pub" in ref else f"s9{ref[1:]}" for ref in FOREIGN)


def test_a_request_shows_nothing_of_another_scope(two: Two) -> None:
    """§7, §11: the view is built from the scope's own publications, not filtered afterwards."""
    sent = two.memory.provider.requests(two.mine)
    assert sent
    for request in sent:
        assert SECRET not in request.text.replace(f'"{SECRET}"', "")
        assert {line.label.split()[0] for line in shared_lines(request)} <= {"s1"}
    (second,) = two.memory.turn(two.mine, "again", text("ok"), directory=two.other)
    assert [line.ref for line in shared_lines(second)][:1] == ["pub:0"]
    check_covered(two.memory, two.mine)


@pytest.mark.parametrize("probe", [zoom, date])
def test_a_foreign_ref_is_answered_byte_for_byte_like_one_that_never_was(
    two: Two, probe: Callable[[str], ToolCall]
) -> None:
    """§8, §11; I4. Publications, ranges, records, of numbers that the reader's scope has not."""
    told = two.ask(*(probe(ref) for ref in (*FOREIGN, *NEVER)))
    for foreign, never, a, b in zip(
        FOREIGN, NEVER, told[: len(FOREIGN)], told[len(FOREIGN) :], strict=True
    ):
        assert a.startswith(f"not_found: {foreign} names nothing in this memory.")
        assert a.replace(foreign, "REF") == b.replace(never, "REF")


def test_a_number_that_both_scopes_have_names_the_reader_s_own(two: Two) -> None:
    """§11: a ref identifies inside the reader's scope and grants nothing."""
    opened, record = two.ask(zoom("pub:0"), zoom("s1:0:0"))
    assert "turn of s1 (mine)" in opened
    assert "> kestrel of mine" in record


def test_opaque_ids_and_foreign_sessions_open_nothing(two: Two) -> None:
    """§8: ids identify data; they do not grant access."""
    memory = two.memory
    status = memory.status()
    assert status is not None
    scope = next(s.scope for s in status.scopes if s.publications == 5)
    ids = [*two.theirs, scope, f"p:{scope}"]
    told = two.ask(*(zoom(name) for name in (*ids, "nobody")))
    assert {answer.split(":", 1)[0] for answer in told} == {"bad_input"}
    for name in ("s2", "s3", "s92"):
        [answer] = two.ask(
            ToolCall(name="memory_search", arguments={"query": "kestrel", "session": name})
        )
        assert answer.replace(name, "S") == (
            "not_found: 'S' names no conversation in this memory.\n"
            "write it as s12; memory_sessions lists those that there are"
        )
    for extra in ("scope", "directory", "session"):
        [answer] = two.ask(ToolCall(name="memory_zoom", arguments={"ref": "pub:3", extra: scope}))
        assert answer.startswith("bad_input: "), answer


def test_counts_lists_and_search_are_those_of_the_reader_s_scope_alone(two: Two) -> None:
    """§8; I4: "0 of n" names an n without the others' records."""
    before = two.memory.records(two.mine)
    found, listed, nothing = two.ask(
        ToolCall(name="memory_search", arguments={"query": "kestrel"}),
        ToolCall(name="memory_sessions"),
        ToolCall(name="memory_search", arguments={"query": "answer 3"}),
    )
    hits = [line for line in found.splitlines() if line.startswith(("s", "pub:"))]
    assert all(line.startswith(("s1:", "pub:", "snapshot")) for line in hits)
    assert int(found.split()[2]) <= before
    assert [line.split()[0] for line in listed.splitlines() if line.startswith("s")][:1] == ["s1"]
    assert f"{SECRET}" not in found + listed + nothing


def test_a_cursor_of_another_scope_is_answered_like_one_that_was_never_given(two: Two) -> None:
    """§8; I4: a cursor grants nothing, and the answer does not tell a true one from a forged."""
    memory, query = two.memory, {"query": "kestrel"}
    request = ToolRequest(
        tool="memory_search", args_json=json.dumps(query), directory=str(memory.host.project)
    )
    page: ToolResponse = memory.client.call("/v1/tool", request, ToolResponse)
    true = json.loads(page.data_json)["cursor"]
    assert true
    kind, of = _question(true)
    forged = encode_cursor(Cursor(kind=kind, of=of, at=20, snapshot="pub<900 own<1 epoch 1"))
    a, b = two.ask(
        ToolCall(name="memory_search", arguments={**query, "cursor": true}),
        ToolCall(name="memory_search", arguments={**query, "cursor": forged}),
    )
    assert a == b
    assert a.startswith("snapshot_expired: ")


def _question(cursor: str) -> tuple[str, str]:
    held = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    return held["kind"], held["of"]


def test_direct_reads_of_a_person_are_bound_to_the_directory_s_scope(two: Two) -> None:
    """§11: the same filter over the command line and the socket."""
    for ref, never in zip(FOREIGN, NEVER, strict=True):
        told = []
        for name in (ref, never):
            request = ToolRequest(
                tool="memory_zoom",
                args_json=json.dumps({"ref": name}),
                directory=str(two.other),
            )
            with pytest.raises(OptChatError) as refused:
                two.memory.client.call("/v1/tool", request, ToolResponse)
            assert refused.value.code == "not_found"
            told.append(str(refused.value).replace(name, "REF"))
        assert told[0] == told[1]
    stranger = ToolRequest(tool="memory_zoom", args_json='{"ref": "pub:3"}', directory="/nowhere")
    with pytest.raises(OptChatError) as nobody:
        two.memory.client.call("/v1/tool", stranger, ToolResponse)
    assert SECRET not in str(nobody.value)
