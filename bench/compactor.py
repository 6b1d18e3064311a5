"""What summaries cost on real transcripts, replayed as live turns against a counting model.

``make bench NAME=compactor`` prints calls, bytes, cached prefixes and lags, for batches and for one
call a node, for both layouts of the context, and with a model that overshoots like a real one. The
transcripts are read from ``OPTCHAT_TRANSCRIPTS``, else from the folder of shared data beside the
repository. The model here is a script: it measures the machinery, not the wording.
"""

from __future__ import annotations

import bisect
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optchat.compactor.desk import Desk
from optchat.compactor.models import Reply
from optchat.compactor.worker import Worker
from optchat.config import Caps, Compactor, Config, Memory
from optchat.coordinator import service as service_module
from optchat.coordinator.service import Service
from optchat.core.tree import NodeKind
from optchat.engine.deps import Deps
from optchat.storage.sqlite import SqliteStore
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.testing.endpoint import Asked, ScriptedModel, asked_of, obedient
from optchat.testing.scripted import ScriptedSession
from optchat.wire import TextPart, ToolPart

SEED = 20261130
OVERSHOOT = 0.18
"""The part of first lines over the bound that a peer saw with a thinking model."""

LATENCY_S = 0.05
NO_CAPS = Caps(
    day_calls=0, day_tokens=0, turn_calls=0, turn_tokens=0, idle_hour_calls=0, idle_hour_tokens=0
)


def transcripts() -> list[dict[str, Any]]:
    """The sessions, as their files hold them."""
    named = os.environ.get("OPTCHAT_TRANSCRIPTS")
    beside = Path(__file__).resolve().parents[2] / "shared" / "data" / "transcripts"
    path = Path(named) if named else beside / "agent_sessions.json"
    if not path.exists():
        raise SystemExit(f"bench.compactor: no transcripts at {path}; set OPTCHAT_TRANSCRIPTS")
    sessions: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["sessions"]
    return sessions


def wire_part(part: dict[str, Any]) -> TextPart | ToolPart:
    """A part of a transcript as a host would send it."""
    if part["type"] != "tool":
        return TextPart(id=part["id"], text=part["text"])
    return ToolPart(
        id=part["id"],
        tool=part["tool"],
        input_json=json.dumps(part["input"]),
        status="error" if part.get("error") else "completed",
        output=part.get("output"),
        error=part.get("error"),
    )


def turns(session: ScriptedSession, messages: list[dict[str, Any]]) -> Iterator[None]:
    """Replay a transcript message by message; yields at the end of each turn."""
    for index, message in enumerate(messages):
        parts: list[Any] = [wire_part(p) for p in message["parts"]]
        following = messages[index + 1] if index + 1 < len(messages) else None
        ends = message["role"] == "assistant" and (following is None or following["role"] == "user")
        role = message["role"]
        if role == "user":
            session._add(role, parts, opens=True)  # noqa: SLF001
            session.sync()
            session.assemble()
        else:
            session._add(role, parts, terminal="completed" if ends else None)  # noqa: SLF001
            session.sync(idle=ends)
        if ends:
            yield


class Overshooting:
    """Obedient, except that some first lines are far too long; seeded."""

    def __init__(self, part: float) -> None:
        self.random = random.Random(SEED)
        self.part = part

    def __call__(self, asked: Asked) -> Reply | str:
        made = obedient(asked)
        if asked.is_retry or not self.part:
            return made
        lines = []
        for line in made.split("\n"):
            code, _, text = line.partition(": ")
            if self.random.random() < self.part:
                text = (text + " ") * (600 // (len(text) + 1) + 1)
            lines.append(f"{code}: {text}")
        return "\n".join(lines)


class Run:
    """One store, one model, one way of calling it."""

    def __init__(self, folder: Path, script: Any = obedient, **settings: Any) -> None:
        compactor = Compactor(
            model="openai", url="http://x", model_name="m", caps=NO_CAPS, **settings
        )
        config = Config(memory=Memory(readiness_timeout_ms=0), compactor=compactor)
        self.clock = ManualClock()
        self.store = SqliteStore(folder / "memory.db", self.clock)
        self.deps = Deps(config, self.clock, CountedIds())
        self.service = Service(self.store, self.deps, folder)
        self.desk = Desk(compactor, self.clock.now_ms)
        self.model = ScriptedModel(script)
        self.worker = Worker(self.store, self.deps, self.model, "w", self.desk)

    def drain(self) -> None:
        while self.worker.run_one():
            pass

    def finish(self) -> None:
        while True:
            self.drain()
            due = self.store.read(lambda tx: tx.jobs.next_due_ms())
            if due is None:
                return
            self.clock.advance(max(1, due - self.clock.now_ms()))

    def replay(self, sessions: list[dict[str, Any]]) -> None:
        """Every session a turn at a time, all of them side by side, summaries after each turn."""
        going = [
            turns(ScriptedSession(self.service, s["id"], title=s["title"]), s["messages"])
            for s in sessions
        ]
        while going:
            for one in list(going):
                if next(one, self) is self:
                    going.remove(one)
                self.clock.advance(60_000)
                self.drain()
        self.finish()

    def figures(self) -> dict[str, Any]:
        calls = self.model.calls
        counts = self.store.read(lambda tx: tx.jobs.counts())
        found = {n: t for _, _, n, t in self.store.read(lambda tx: tx.ledger.findings())}
        records = self.store.read(lambda tx: tx.records.count())
        spent = self.store.read(lambda tx: tx.ledger.spent(0))
        scope = self.store.read(lambda tx: tx.sessions.scopes()[0])
        source, beside, repeated = _shares(calls)
        first = found.get("first: lines", 0)
        return {
            "calls": len(calls),
            "records": records,
            "publications": scope.publications,
            "calls_per_record": round(len(calls) / records, 4),
            "input_bytes": source + beside,
            "input_bytes_per_source_byte": round((source + beside) / max(1, source), 3),
            "prefix_share_beside_sources": round(repeated / max(1, beside), 4),
            "output_bytes": spent.output_tokens * 4,
            "lines": first,
            "lines_over_bound_at_first_try": round(
                found.get("first: too_long", 0) / max(1, first), 4
            ),
            "calls_by_purpose": {
                name: s.calls
                for name, s in self.store.read(lambda tx: tx.ledger.table("purpose", 0))
            },
            "failed_jobs": {s.value: n for s, n in counts.items()}["failed"],
            "findings": {n: t for n, t in sorted(found.items()) if not n.startswith("first:")},
        }


def _shares(calls: list[Any]) -> tuple[int, int, int]:
    """Source bytes, bytes beside them, and how many of these repeat an earlier call's prefix."""
    source = beside = repeated = 0
    before: list[str] = []
    for call in calls:
        asked = asked_of(call)
        text = call.system + "".join(asked.texts)
        bodies = sum(len(b.body.encode()) for b in asked.blocks.values())
        source_here = bodies
        whole = len(text.encode())
        source += source_here
        beside += whole - source_here
        # Of all earlier calls, the one that shares most stands next to it in sorted order.
        at = bisect.bisect(before, text)
        longest = max(
            (_common(text, other) for other in before[max(0, at - 1) : at + 1]), default=0
        )
        fresh_at = len(call.system) + call.messages[0].stable
        if asked.is_retry and longest >= fresh_at:
            # All of the first message is read again, so what stands beside its sources is too.
            repeated += len((call.system + asked.first).encode()) - bodies
        else:
            repeated += len(text[: min(longest, fresh_at)].encode())
        before.insert(at, text)
    return source, beside, repeated


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _verbatim_part(run: Run) -> float:
    """The part of the records whose leaf is the record itself."""

    def work(tx: Any) -> tuple[int, int]:
        leaves = [
            leaf
            for scope in tx.sessions.scopes()
            for s in tx.sessions.sessions(scope.scope_id)
            for leaf in tx.trees.leaves_from(_tree(s), 0, 100_000)
        ]
        return sum(n.kind is NodeKind.VERBATIM for n in leaves), len(leaves)

    verbatim, every = run.store.read(work)
    return round(verbatim / max(1, every), 4)


def _tree(session: Any) -> Any:
    from optchat.core.tree import SessionTree

    return SessionTree(session.session_id, session.generation)


def _lag(sessions: list[dict[str, Any]], workers: int) -> dict[str, float]:
    """Seconds until everything is published, with a model that takes a while for each call."""
    with tempfile.TemporaryDirectory() as folder:

        def slow(asked: Asked) -> str:
            time.sleep(LATENCY_S)
            return obedient(asked)

        run = Run(Path(folder), slow)
        for s in sessions:
            replay = turns(ScriptedSession(run.service, s["id"], title=s["title"]), s["messages"])
            for _ in replay:
                pass
        started = time.monotonic()

        def work(name: str) -> None:
            worker = Worker(run.store, run.deps, run.model, name, run.desk)
            idle = 0
            while idle < 20:
                idle = 0 if worker.run_one() else idle + 1
                if idle:
                    time.sleep(0.01)

        threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - started - 0.2
        run.store.close()
        return {"seconds": round(took, 2), "calls": len(run.model.calls)}


def run() -> dict[str, Any]:
    """The table: figures of the product, baseline of what it is compared with."""
    service_module.observed_commit = lambda _: None  # the folders are names only
    sessions = transcripts()
    found: dict[str, dict[str, Any]] = {}
    variants: dict[str, tuple[Any, dict[str, Any]]] = {
        "batched": (obedient, {}),
        "batched, 18 % of first lines too long": (Overshooting(OVERSHOOT), {}),
        "batched, context rendered anew": (obedient, {"context": "fresh"}),
        "one call a node": (obedient, {"batch_lines": 1, "hold_seconds": 0}),
    }
    for name, (script, settings) in variants.items():
        with tempfile.TemporaryDirectory() as folder:
            one = Run(Path(folder), script, **settings)
            one.replay(sessions)
            found[name] = one.figures()
            print(f"{name}: {found[name]['calls_per_record']} calls a record", file=sys.stderr)
            if name == "batched":
                found[name]["verbatim_leaves"] = _verbatim_part(one)
            one.store.close()
    few = sessions[:4]
    main = found.pop("batched")
    return {
        "figures": {
            **main,
            "overshooting": found.pop("batched, 18 % of first lines too long"),
            "publication_lag_2_workers": _lag(few, 2),
            "publication_lag_8_workers": _lag(few, 8),
        },
        "baseline": {
            "expected_calls_per_record_one_call_a_node": 0.88,
            "required": {"calls_per_record": 0.20, "prefix_share_beside_sources": 0.90},
            **found,
        },
    }
