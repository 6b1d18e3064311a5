"""kill -9 of coordinator and host: what was there comes back as it was, and nothing is made again.

§6 (persisted views), §10 (crash recovery), §16 Restart; invariants I1, I5, I6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import Gate, LoopbackProvider, Reply, call, canonical_bytes, text
from tests.e2e.support import check_requests
from tests.e2e.support_b import (
    Memory,
    base_of,
    eventually,
    has_memory,
    news_of,
    temporary_memory,
)

LONG = "the broker keeps every message until its consumer acknowledges it " * 20
# So small that both views have merged something when the crash comes.
SMALL_VIEWS = """
[memory]
own_high_bytes = 700
own_low_bytes = 400
shared_high_bytes = 700
shared_low_bytes = 400
"""
KEPT = {
    "node": "select * from node order by tree, start, count, revision",
    "publication": "select * from publication order by scope, seq",
    "tree_view": "select * from tree_view order by tree, revision",
    "record": "select * from record order by doc",
    "fold": "select * from fold order by fold_id",
}


@dataclass(frozen=True, slots=True)
class World:
    memory: Memory
    provider: LoopbackProvider
    host: OpenCodeHost

    def crash(self) -> None:
        """End both at once, without a word to either."""
        self.memory.kill()
        self.host.kill()

    def turn(self, session: str, prompt: str, *replies: Reply) -> None:
        """A turn that is published, and all that it gave to do is done, when this returns."""
        published = self.published(session)
        self.provider.plan(session, *replies)
        self.host.prompt(session, prompt)
        open_jobs = "select 1 from job where state in ('ready', 'waiting', 'leased')"
        eventually(lambda: self.published(session) > published)
        eventually(lambda: not self.memory.rows(open_jobs))

    def published(self, session: str) -> int:
        """How many of a session's turns are published."""
        rows = self.memory.rows(
            "select s.host_session from publication as p "
            "join session as s on s.session_id = p.session_id"
        )
        return rows.count((session,))

    def kept(self) -> dict[str, list[Any]]:
        """Every row that a restart must not change."""
        return {name: self.memory.rows(sql) for name, sql in KEPT.items()}

    def looked_up(self, *refs: str) -> dict[str, Any]:
        """What each ref leads to, without the number of the snapshot that was served."""
        found: dict[str, Any] = {}
        for ref in refs:
            done = self.memory.cli("zoom", ref, "--directory", str(self.host.project), "--json")
            assert done.status == 0, done
            found[ref] = {k: v for k, v in done.data.items() if k not in ("snapshot", "cursor")}
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with temporary_memory(SMALL_VIEWS) as memory, LoopbackProvider() as provider:
        memory.ensure()
        home = tmp_path_factory.mktemp("restart")
        plugins = [memory.plugin()]
        host = OpenCodeHost(home, provider.base_url, plugins=plugins, env=memory.env)
        with host:
            yield World(memory, provider, host)
            provider.clear_plans()


def unchanged(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> None:
    """Each row of before is there as it was."""
    for name, rows in before.items():
        missing = [row for row in rows if row not in after[name]]
        assert missing == [], name


def made_once(rows: dict[str, list[Any]]) -> None:
    """No span has a second revision, no event a second record, no turn a second publication."""
    spans = [row[:3] for row in rows["node"]]
    assert len(spans) == len(set(spans))
    turns = [(row[0], row[2], row[3], row[4]) for row in rows["publication"]]
    assert len(turns) == len(set(turns))


def test_at_rest_views_and_refs_come_back_and_no_node_is_made_again(world: World) -> None:
    """§6, §16 Restart: rows, rendered base and what refs lead to are the same; requests go on."""
    a = world.host.create_session(title="A")
    b = world.host.create_session(title="B")
    notes = world.host.project / "notes.txt"
    notes.write_text(LONG, encoding="utf-8")
    world.turn(a, "which broker?", call("read", {"filePath": str(notes)}), text("the durable one"))
    world.turn(a, "why?", text(LONG))
    world.turn(b, "deploy", text("deployed"))
    world.turn(a, "and now?", text("we wait"))
    before = world.kept()
    merged = [row[4] for row in before["tree_view"] if re.search(r"\[\d+,\s*[248]", row[4])]
    assert merged, "no view has shrunk"
    refs = ("pub:0+2", "pub:0", "pub:1", "s1:0:0+2", "s1:0:2")
    led_to = world.looked_up(*refs)
    sent = world.provider.requests(a)[-1]

    world.crash()
    world.host.start()
    world.memory.ensure()
    assert world.kept() == before  # starting alone writes none of them
    assert world.looked_up(*refs) == led_to

    world.turn(a, "go on", text("going on"))
    resumed = world.provider.requests(a)[-1]
    after = world.kept()
    unchanged(before, after)
    made_once(after)
    assert base_of(resumed) == base_of(sent)
    assert news_of(resumed)[: len(news_of(sent))] == news_of(sent)
    assert canonical_bytes(resumed).startswith(canonical_bytes(sent))
    for session in (a, b):
        check_requests(world.host, world.provider.requests(session), session)


def test_in_mid_turn_the_turn_is_interrupted_and_nothing_is_lost_or_doubled(world: World) -> None:
    """§5, §10, §16 Crash boundaries: the step before the crash is kept, its end is no success."""
    a = world.host.create_session(title="A in mid-turn")
    b = world.host.create_session(title="B after it")
    world.turn(a, "first", text(LONG))
    gate = Gate()
    notes = world.host.project / "step.txt"
    notes.write_text("what the tool saw", encoding="utf-8")
    world.provider.plan(a, call("read", {"filePath": str(notes)}), text("never said", gate=gate))
    world.host.prompt_async(a, "second, with a tool")
    gate.wait_entered()
    before = world.kept()

    world.crash()
    gate.open()
    world.host.start()
    published = len(world.memory.publications())
    world.provider.plan(a, text("third done"))
    world.host.prompt(a, "third")
    world.memory.published(published + 2)
    after = world.kept()
    unchanged(before, after)
    made_once(after)
    outcomes = world.memory.rows(
        "select p.outcome from publication p join session s using (session_id) "
        f"where s.host_session = '{a}' order by p.seq"
    )
    assert [row[0] for row in outcomes] == ["completed", "interrupted", "completed"]
    request = world.provider.requests(a)[-1]
    assert has_memory(request)
    assert "what the tool saw" in request.text
    assert "never said" not in request.text

    world.host.prompt(b, "what happened in A?")
    shown = world.provider.requests(b)[-1]
    check_requests(world.host, world.provider.requests(b), b)
    check_requests(world.host, [request], a)
    told = [x for x in "".join([base_of(shown), *news_of(shown)]).splitlines() if "second, wi" in x]
    assert len(told) == 1
    assert " interrupted " in told[0]
