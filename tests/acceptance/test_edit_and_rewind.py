"""What an edit or a rewind supersedes is no evidence any more, for anybody (§12, §16).

Through the host's own operations: its revert, an edited part, deleted messages. The session's own
view, the shared view of another, and what either gets for an old reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from optchat.testing.provider import CapturedRequest, ToolCall, calls, text
from tests.e2e.support import (
    Memory,
    answers,
    bases,
    check_requests,
    eventually,
    memory_fixture,
    native_texts,
    news,
    own_lines,
    shared_lines,
)

memory = memory_fixture(
    configs={
        "fold": "",
        "every-turn": '[memory]\nlayout = "every-turn"\nprevious_exchange = false\n',
    }
)

OLD = "quagga"


def revert(memory: Memory, session: str) -> None:
    """As /undo does; the messages go with the next prompt."""
    memory.host.revert(session, memory.host.messages(session)[2]["info"]["id"])


def edit(memory: Memory, session: str) -> None:
    for message in memory.host.messages(session)[2:4]:
        for part in message["parts"]:
            if part["type"] == "text":
                told = f"edited {message['info']['role']}"
                memory.host.patch_part(session, {**part, "text": told})


def delete(memory: Memory, session: str) -> None:
    for message in memory.host.messages(session)[2:]:
        memory.host.delete_message(session, message["info"]["id"])


def zoom(ref: str) -> ToolCall:
    return ToolCall(name="memory_zoom", arguments={"ref": ref})


def memory_of(request: CapturedRequest) -> str:
    """All that the request holds of memory: bases and news."""
    return "".join([*bases(request), *news(request)])


@pytest.mark.parametrize("change", [revert, edit, delete])
def test_superseded_ranges_do_not_come_back_in_any_view_or_answer(
    memory: Memory, change: Callable[[Memory, str], None]
) -> None:
    """§12, §16; I2, I4. Own view, shared view, zoom, date, search; the old refs say what stands."""
    host, provider = memory.host, memory.provider
    old = f"{OLD}{change.__name__}{len(provider.requests())}"
    a, b = host.create_session(title="A"), host.create_session(title="B")
    begin = memory.publications()
    memory.turn(a, "Where do we deploy?", text("to the harbour"))
    memory.turn(a, f"And the limit of {old}?", text(f"The limit of {old} is 40"))
    name = memory.name(a)
    search = ToolCall(name="memory_search", arguments={"query": old, "session": name})
    gone, record, kept = f"pub:{begin + 1}", f"{name}:0:3", f"{name}:0:1"
    date = ToolCall(name="memory_date", arguments={"ref": gone})

    # While it stands, the other reads it, automatically and by each tool.
    probes = calls(zoom(gone), zoom(record), search, date)
    seen = memory.turn(b, "what is known?", probes, text("noted"))
    assert old in memory_of(seen[0])
    assert all("superseded" not in told for told in answers(seen[-1]))
    assert f"{record} " in answers(seen[-1])[2]

    change(memory, a)
    sent = len(provider.requests(a))
    provider.plan(a, calls(zoom(record), zoom(gone), zoom(kept)), text("now the limit is 50"))
    host.prompt(a, "go on from there")
    # As many as before: the edited turn is published anew, the removed one is not.
    expected = 3 if change is edit else 2
    eventually(lambda: memory.published(a) == expected, what="the new publications")
    memory.wait_quiet()
    mine = provider.requests(a)[sent:]

    # The session's own requests: nothing of it, neither native nor in its own view or news.
    assert len(mine) == 2
    for request in mine:
        assert old not in memory_of(request)
        spoken = [told for role, told in native_texts(request)[1:] if role != "tool"]
        assert not [told for told in spoken if old in told]
    check_requests(host, mine, a)
    own, shared, still = answers(mine[-1])
    assert own.startswith(f"superseded: {record} was superseded: {name} was edited or rewound")
    assert shared.startswith(f"superseded: {gone} was superseded")
    assert "to the harbour" in still

    # And once its history as it is now is in its own view.
    (folded,) = memory.turn(a, "once more", text("ok"))
    assert old not in memory_of(folded)
    check_requests(host, [folded], a)
    if "every-turn" in (memory.home / "config.toml").read_text(encoding="utf-8"):
        assert re.match(rf"{name}:[1-9]:0", own_lines(folded)[0].ref)
        assert "to the harbour" in "".join(line.text for line in own_lines(folded))

    # The other's next turn: its shared view, and each tool.
    again = memory.turn(
        b, "and now?", calls(zoom(gone), zoom(record), date, search), text("noted too")
    )
    assert not [line for line in shared_lines(again[0]) if old in line.text]
    [buried] = [line for line in shared_lines(again[0]) if line.ref == gone] or [None]
    assert buried is None or buried.label == "retired"
    told = answers(again[-1])
    instead = re.search(r"what stands there now is (pub:\d+)\.", told[0])
    assert instead is not None, told[0]
    assert f"{gone} was superseded: {name} was edited or rewound there" in told[0]
    assert f"{record} was superseded" in told[1]
    assert told[2].splitlines()[0] == told[0].splitlines()[0]
    assert told[3].startswith("0 of ")
    [opened] = answers(memory.turn(b, "open it", calls(zoom(instead[1])), text("seen"))[-1])
    assert f"turn of {name} (A)" in opened
    assert "go on from there" in opened or "edited user" in opened
    check_requests(host, provider.requests(b)[-3:], b)
