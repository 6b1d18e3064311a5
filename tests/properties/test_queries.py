# ruff: noqa: E501 - tables of what may be written
"""Whatever a model asks is answered, or refused by name; over both stores alike (§8).

A sample in the suite; ``make fuzz`` goes on for five minutes. A failure prints its seed, and
``OPTCHAT_TEST_FUZZ_SEED`` begins with it again.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from optchat.compactor.models import DeterministicModel
from optchat.compactor.worker import Worker
from optchat.config import Compactor, Config, Memory, Recall
from optchat.coordinator import service as service_module
from optchat.coordinator.service import Service
from optchat.engine.deps import Deps
from optchat.errors import OptChatError
from optchat.storage.memory import MemoryStore
from optchat.storage.ports import Store
from optchat.storage.sqlite import SqliteStore
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.testing.scripted import ScriptedSession
from optchat.wire import ALIAS_NAMES, TOOL_NAMES, ToolRequest, ToolResponse

SECONDS = float(os.environ.get("OPTCHAT_TEST_FUZZ_SECONDS", "0"))
SAMPLE = 600
ANSWER_S_MAX = 10.0
ALLOWED = frozenset({"bad_input", "not_found", "superseded", "snapshot_expired"})

TEXTS = (
    "the redirect loop was in src/auth/RedirectHandler.ts, getUserById and get_user_by_id",
    "重定向循环 はリダイレクト 한국어 ωmega naïve Été ﬁle ẞ İstanbul",
    "emoji 👩‍👩‍👧 🇩🇪 and NUL \0 and \u202eRTL مرحبا\u202c שלום",
    'say "quoted phrase" AND (nested OR NEAR/2) NOT col:umn a-b --flag ^start star*',
    "x",
    "long " * 3_000,
    "\ufeffBOM \r\n CRLF \u2028 separators \x1f unit",
)
FIELDS = (
    "query", "session", "project", "directory", "role", "evidence", "kind", "tool", "file",
    "outcome", "before", "after", "since", "until", "last", "group", "family", "limit", "cursor",
    "ref", "max_tokens", "parent", "search", "archived", "files", "tools", "node_id", "sessionID",
    "messageID", "window", "match", "scope", "results", "type", "authorship", "toolName", "deep",
    "deepCursor", "expand", "sessions", "excludeSessionID", "parentID",
)  # fmt: skip
PIECES = (
    "redirect", "RedirectHandler", "loop", "get_user", "重定", "循", "한국", "👩‍👩‍👧", "🇩", "\u200d", "مرحبا",
    "\u202e", "\0", "\ufeff", "\u2028", "\ud83d", "\udc69", "İ", "ẞ", "ﬁ", "e\u0301", '"', "'", "''", '""', "(",
    ")", "[", "]", "{", "}", "*", "**", "^", "-", "--", "- -", "+", ":", "::", ".", "..", ",", ";",
    "\\", "/", "%", "_", "@", "#", "&", "|", "||", "~", "!", "?", "=", "<", ">", "`", "$", "AND", "OR",
    "NOT", "NEAR", "NEAR(", "NEAR/3", "NOT NOT", "session:", "session:s1", "session:s1:0", "role:human",
    "role:", "kind:user", "kind:zzz", "evidence:unknown", "tool:bash", "file:*.ts", "before:yesterday",
    "before:2026-13-45", "after:9999-12-31", "since:0001-01-01", "last:2h", "last:999999y", "last:-1d",
    "group:session", "family:maybe", "limit:0", "limit:-1", "limit:99999999999999999999", "rowid",
    "text MATCH 'x'", "; drop table record;", "x" * 300, "-" * 300, '"' * 301, "(" * 400, "a ", " ", "\n",
    "\t", "\u00a0", "\u3000", "1", "0x10", "1e309", "NaN", "null", "true",
)  # fmt: skip
REFS = (
    "pub:0", "pub:1", "pub:0+2", "pub:0+3", "pub:7+0", "pub:-1", "pub:99999999999999999999", "pub:１",
    "s1", "s2", "s0", "s9999999999", "s1:0:0", "s1:0:0+2", "s1:1:0", "s1:0:99", "s2:0:1", "current",
    "s١", "A", "B", "A-m1", "A-m2", "", " ", "s1:0", "pub:", "pub:0+2+2", "n-3-7",
)  # fmt: skip


class World:
    """One store of either kind, with the same few conversations in it."""

    def __init__(self, folder: Path, store: Store, clock: ManualClock) -> None:
        config = Config(
            memory=Memory(readiness_timeout_ms=0),
            compactor=Compactor(model="deterministic"),
            recall=Recall(aliases=True),
        )
        self.store = store
        deps = Deps(config, clock, CountedIds())
        self.service = Service(store, deps, folder)
        self.cursors: list[str] = []
        a, b = (ScriptedSession(self.service, name, title=f"the {name} one") for name in "AB")
        for number, text in enumerate(TEXTS):
            session = (a, b)[number % 2]
            tools = (("bash", {"command": text, "filePath": "src/a.ts"}, text),)
            session.turn(f"{number} {text}", f"done: {text}", tools=tools)
        worker = Worker(store, deps, DeterministicModel(), "w")
        while worker.run_one():
            pass
        b.user("now")
        b.sync()
        b.assemble()

    def ask(self, request: ToolRequest) -> Any:
        """The answer, or the name and words of what it was refused for."""
        try:
            answer = self.service.tool(request)
        except OptChatError as error:
            if error.code not in ALLOWED:
                raise
            msgspec.json.encode([error.message, error.hint])  # it can be told
            return error.code, error.message
        msgspec.json.encode(answer)
        assert isinstance(answer, ToolResponse)
        json.loads(answer.data_json)
        return answer


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, World]]:
    folder = tmp_path_factory.mktemp("queries")
    clocks = ManualClock(), ManualClock()
    durable = SqliteStore(folder / "memory.db", clocks[0])
    with mock.patch.object(service_module, "observed_commit", return_value=None):
        yield World(folder, durable, clocks[0]), World(folder, MemoryStore(), clocks[1])
    durable.close()


def _text(rng: random.Random) -> str:
    match rng.randrange(8):
        case 0:
            return "".join(chr(rng.randrange(1, 0x2FFF)) for _ in range(rng.randrange(40)))
        case 1:
            data = bytes(rng.randrange(256) for _ in range(rng.randrange(60)))
            return data.decode("utf-8", rng.choice(("replace", "surrogateescape", "ignore")))
        case 2:
            text = rng.choice(TEXTS)
            start = rng.randrange(len(text))
            return text[start : start + rng.randrange(1, 60)]
        case 3:
            return (rng.choice(PIECES) + " ") * rng.choice((1, 2, 50, 300))
        case _:
            joint = rng.choice(("", " ", " ", "\n", ":"))
            return joint.join(rng.choice(PIECES) for _ in range(rng.randrange(1, 9)))


def _value(rng: random.Random, name: str, cursors: list[str]) -> Any:
    match rng.randrange(12):
        case 0:
            return rng.choice((None, True, False, 0, -1, 2**63, -(2**70), 1.5, [], {}, [1], ""))
        case 1:
            return [_text(rng) for _ in range(rng.randrange(3))]
        case 2 | 3 | 4 | 5 | 6 if name in VALID:
            return rng.choice(VALID[name])
        case 7 if name in ("limit", "window", "results", "max_tokens", "before", "after"):
            return rng.choice((0, 1, 3, -5, 10**9, 10**30))
        case 8:
            return _text(rng)
        case _ if "ursor" in name:
            made = rng.choice((*cursors, "e30", "AAAA", "====", _text(rng), "eyJraW5kIjoiem9vbSJ9"))
            return made if rng.random() < 0.7 else made[: rng.randrange(len(made) + 1)] + "A"
        case _ if name in ("ref", "session", "sessionID", "messageID", "parent", "parentID"):
            return rng.choice(REFS)
        case _:
            return _text(rng)


VALID: dict[str, tuple[Any, ...]] = {
    "query": ("redirect loop", '"quoted phrase"', "done -x", "重定向", "word session:s1", "long"),
    "session": ("s1", "s2", "current"),
    "role": ("human", "model", "user", "assistant"),
    "kind": ("user", "tool_result"),
    "evidence": ("human", "tool_output"),
    "group": ("session", "record"),
    "family": (True, False),
    "before": ("2030-01-01", 1), "after": ("2020-01-01", 2), "since": ("2020-01-01",), "until": ("2030-01-01",),
    "last": ("2h", "99y"),
    "limit": (1, 3, 10), "window": (0, 2), "results": (3,), "max_tokens": (20, 400),
    "ref": ("pub:0", "pub:0+2", "s1:0:0", "s2:0:1"),
    "sessionID": ("current", "s1", "A"), "messageID": ("A-m1", "s1:0:0", "B-m2"),
    "match": ("smart", "literal"), "type": ("text", "tool"), "node_id": ("pub:0",),
}  # fmt: skip

LIKELY = {
    "memory_zoom": ("ref", "cursor", "max_tokens"),
    "memory_search": ("query", *FIELDS[1:19]),
    "memory_date": ("ref",),
    "memory_sessions": ("parent", "search", "since", "until", "archived", "files", "limit", "cursor"),
    "memory_messages": ("ref", "before", "after", "session", "role", "query", "limit", "cursor"),
}  # fmt: skip


def _request(rng: random.Random, cursors: list[str]) -> ToolRequest:
    tool = rng.choice((*TOOL_NAMES, *ALIAS_NAMES, "memory_search", "memory_search", "recall"))
    names = list(LIKELY.get(tool, FIELDS)) if rng.random() < 0.9 else list(FIELDS)
    chosen = [n for n in names[:1] if rng.random() < 0.9]
    chosen += rng.sample(names, min(len(names), rng.choice((0, 0, 0, 1, 1, 2, 4))))
    args: Any = {name: _value(rng, name, cursors) for name in chosen}
    if tool == "recall" and rng.random() < 0.8:
        args = {"query": _text(rng)} | {k: v for k, v in args.items() if rng.random() < 0.3}
    if rng.random() < 0.02 and tool in ("memory_search", "recall"):
        args = {"query": (_text(rng) or "x") * 100_000}
        args["query"] = args["query"][:100_000]
    if rng.random() < 0.02:
        args = rng.choice((None, [], "text", 7, [args], {"": args}))
    told = json.dumps(args, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.03:
        at = rng.randrange(len(told) + 1)
        told = told[:at] + rng.choice(("", "\0", "}", '"', "\\ud800", "\\u0000")) + told[at:]
    who = rng.choice((("scripted", "B"), ("scripted", "B"), (None, None)))
    return ToolRequest(
        tool=tool,  # pyright: ignore[reportArgumentType]
        args_json=told,
        host=who[0],
        session=who[1],
        directory=None if who[1] else "/project",
    )


def _search(query: str) -> ToolRequest:
    told = json.dumps({"query": query})
    return ToolRequest(tool="memory_search", args_json=told, directory="/project")


def _ask_both(worlds: tuple[World, World], seed: int) -> str:
    rng = random.Random(seed)
    request = _request(rng, worlds[0].cursors)
    started_s = time.perf_counter()
    try:
        durable, plain = (world.ask(request) for world in worlds)
        assert durable == plain, "the stores answer differently"
    except Exception as error:
        error.add_note(
            f"OPTCHAT_TEST_FUZZ_SEED={seed} {request.tool} {request.args_json[:2_000]!r}"
        )
        raise
    took_s = time.perf_counter() - started_s
    assert took_s < ANSWER_S_MAX, f"seed {seed}: {took_s:.1f} s for {request.args_json[:400]!r}"
    if isinstance(durable, ToolResponse):
        cursor = json.loads(durable.data_json).get("cursor")
        if cursor:
            worlds[0].cursors = [*worlds[0].cursors[-40:], cursor]
        return "answered"
    return durable[0]


@pytest.mark.timeout(SECONDS + 300)
def test_any_query_and_any_arguments_have_an_answer_or_a_named_refusal(
    worlds: tuple[World, World],
) -> None:
    first = int(os.environ.get("OPTCHAT_TEST_FUZZ_SEED", random.randrange(10**9)))
    before = [w.store.read(lambda tx: tx.meta.csn()) for w in worlds]
    counts: dict[str, int] = {}
    until_s = time.monotonic() + SECONDS
    seed = first
    while seed < first + SAMPLE or time.monotonic() < until_s:
        came = _ask_both(worlds, seed)
        counts[came] = counts.get(came, 0) + 1
        seed += 1
    print(f"{seed - first} calls from seed {first}: {counts}")  # noqa: T201
    assert [w.store.read(lambda tx: tx.meta.csn()) for w in worlds] == before
    assert counts["answered"] > SAMPLE // 20


@pytest.mark.parametrize(
    "query", ["重定", "循环", "한국어", "İstanbul", "مرحبا", "get_user_by_id", "a-b"]
)
def test_what_was_said_is_found_in_any_script(worlds: tuple[World, World], query: str) -> None:
    for world in worlds:
        assert json.loads(world.ask(_search(query)).data_json)["hits"], query


@pytest.mark.parametrize(
    "query", ["", " ", "-", "!?…", "👩‍👩‍👧", "🇩🇪", '""', "---", "\0", "\u200d\ufe0f", "x" * 100_000]
)
def test_what_holds_no_word_is_refused_by_name(worlds: tuple[World, World], query: str) -> None:
    for world in worlds:
        code, message = world.ask(_search(query))
        assert code == "bad_input"
        assert "nothing was searched" in message
