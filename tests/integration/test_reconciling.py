"""A start that has no time to read all that has changed in a host's store (§12).

What is gone is not seen any more all the same, and what is not read again yet is told.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from optchat.config import Compactor, Config, Import, Sharing
from optchat.coordinator.reconciling import START_MS
from optchat.coordinator.service import Service
from optchat.engine.deps import Deps
from optchat.errors import NotFound, Superseded
from optchat.evaluation import hoststore
from optchat.hosts.opencode.transcript import place
from optchat.storage.sqlite import SqliteStore
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.wire import ImportRequest, SessionInfo, SyncRequest, ToolRequest
from tests.e2e.support import eventually
from tests.harness.host_store import change, sessions

COUNT = 60
PROJECT = "/code/p0"
"""That of every third session."""


class HurriedClock(ManualClock):
    """Each look at it costs half of what a start may take."""

    def now_ms(self) -> int:
        self.advance(START_MS // 2)
        return super().now_ms()


@dataclass(slots=True)
class World:
    """A memory of a host's store, which is looked at again by ``start``."""

    folder: Path
    host: Path
    service: Service

    def start(self, clock: ManualClock) -> None:
        self.service.store.close()
        self.service = opened(self.folder, clock)
        self.service.start()

    def tool(self, tool: str, **args: Any) -> Any:
        request = ToolRequest(tool=tool, args_json=json.dumps(args), directory=PROJECT)  # type: ignore[arg-type]
        return json.loads(self.service.tool(request).data_json)

    def found(self, words: str) -> bool:
        return bool(self.tool("memory_search", query=f'"{words}"')["hits"])

    def limits(self) -> str:
        return str(self.tool("memory_search", query="question")["coverage"]["limited_by"])


def opened(folder: Path, clock: ManualClock) -> Service:
    config = Config(
        compactor=Compactor(model="deterministic"),
        import_=Import(auto=False),
        sharing=Sharing(isolated=["/code/private"]),
    )
    store = SqliteStore(folder / "memory.db", clock)
    return Service(store, Deps(config, clock, CountedIds(str(clock.now_ms()))), folder)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    host = tmp_path / "opencode.db"
    hoststore.write(host, sessions(COUNT))
    made = World(tmp_path, host, opened(tmp_path, ManualClock()))
    assert made.service.importing.take(ImportRequest(path=str(host))).sessions == COUNT
    yield made
    made.service.importing.close()
    made.service.store.close()


def touched(text: str) -> str:
    return f"update session set time_updated = 1 where {text}"


def test_what_is_gone_is_gone_before_anything_is_read_and_the_rest_follows_behind(
    world: World,
) -> None:
    """§12; I8: deleted, gone back behind, cut, moved away; what was edited comes later."""
    names = ("000000", "000300", "000600", "000900", "001200", "001500")
    assert [world.found(f"question {name}") for name in names] == [True] * 6
    after = json.dumps({"type": "text", "text": "quagga instead"})
    change(
        world.host,
        "delete from session where id = 'ses_0000'",
        """update session set revert = '{"messageID":"msg_000300a"}' where id = 'ses_0003'""",
        "delete from message where id = 'msg_000600a'",
        "update session set directory = '/code/private' where id = 'ses_0009'",
        f"update part set data = '{after}' where id = 'prt_001200a'",
        touched("true"),
    )
    world.start(HurriedClock())
    gone = {name: world.found(f"question {name}") for name in names}
    assert gone == dict.fromkeys(names[:4], False) | dict.fromkeys(names[4:], True)
    assert not world.found("answer 000600"), "what followed it is read with the rest"
    with pytest.raises(NotFound):
        world.tool("memory_zoom", ref="s1:0:0")
    for number in (2, 3):
        with pytest.raises(Superseded):
            world.tool("memory_zoom", ref=f"s{number}:0:0")
    # Of this project's twenty one is deleted and one shares no more.
    assert "18 conversations have changed and are not read again yet" in world.limits()
    assert not world.found("quagga instead")

    world.service.importing.begin()
    eventually(lambda: not world.service.importing.is_busy)
    assert "not read again" not in world.limits()
    gone = {name: world.found(f"question {name}") for name in names}
    assert gone == dict.fromkeys([*names[:5]], False) | {names[5]: True}
    assert world.found("quagga instead")
    assert world.found("answer 000600")


@pytest.mark.parametrize(
    "statement",
    [
        "delete from session where id {}",
        """update session set revert = '{{"messageID":"msg_' || substr(id, 5) || '00a"}}',
           time_updated = 1 where id {}""",
    ],
)
def test_what_goes_of_a_past_leaves_nothing_for_a_model_to_do(world: World, statement: str) -> None:
    """§8; I12: also where it was all that a line stood for."""
    change(world.host, statement.format("< 'ses_0030'"))
    world.start(ManualClock(1_700_000_000_001))
    assert not world.found("question 000300")
    assert world.found("question 003300")
    assert not any(world.service.status().jobs.values())


def test_a_start_with_time_reads_all_that_has_changed_and_leaves_nothing_for_later(
    world: World,
) -> None:
    after = json.dumps({"type": "text", "text": "quagga instead"})
    change(
        world.host, f"update part set data = '{after}' where id = 'prt_001200a'", touched("true")
    )
    world.start(ManualClock(1_700_000_000_001))
    assert world.found("quagga instead")
    assert "not read again" not in world.limits()
    assert not world.service.importing.is_busy


def test_a_start_that_ended_before_it_had_read_all_goes_on_at_the_next(world: World) -> None:
    """I6: what is not read again keeps its mark."""
    after = json.dumps({"type": "text", "text": "quagga instead"})
    change(
        world.host, f"update part set data = '{after}' where id = 'prt_001200a'", touched("true")
    )
    world.start(HurriedClock())
    assert not world.found("quagga instead")
    world.service.importing.close()
    world.start(ManualClock(1_800_000_000_000))
    assert world.found("quagga instead")
    assert "not read again" not in world.limits()


def test_a_project_that_is_called_otherwise_is_known_by_its_first_new_session(world: World) -> None:
    """§11: while the coordinator runs, and before the host speaks of a session that is held."""
    of_project = world.service.status().scopes
    change(
        world.host,
        "insert into project (id, worktree, time_created, time_updated, sandboxes) select "
        "'prj_new', worktree, time_created, 1, sandboxes from project where id = 'prj_0000'",
        "update session set project_id = 'prj_new' where project_id = 'prj_0000'",
        "delete from project where id = 'prj_0000'",
    )
    new = SessionInfo(
        host="opencode",
        id="ses_new",
        project_key="prj_new",
        project_directory=PROJECT,
        directory=PROJECT,
        store=place.identity(world.host),
    )
    world.service.sync(SyncRequest(session=new, messages=[]))
    after = world.service.status().scopes
    assert [s.scope for s in after] == [s.scope for s in of_project]
    assert sum(len(s.sessions) for s in after) == COUNT + 1
