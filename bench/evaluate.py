"""A real summary model over lines of the transcripts: bound, names, faults, calls, tokens, time.

Runs only against an endpoint that speaks chat completions, named by ``OPTCHAT_TEST_ENDPOINT``
and ``OPTCHAT_TEST_MODEL`` (a key, if any, in ``OPTCHAT_TEST_KEY``). One session is made of
``OPTCHAT_TEST_LEAVES`` sources (60), none over ``OPTCHAT_TEST_SOURCE_BYTES`` (3,000); a line for
each of them is asked for, and for the first ``OPTCHAT_TEST_MERGES`` (30) nodes over them that need
a model; ``OPTCHAT_TEST_RUNS`` times (3) with other sources, each for at most
``OPTCHAT_TEST_MINUTES`` (no bound). The answers go to the file ``OPTCHAT_TEST_ANSWERS``, for the
eye. A run is seeded: the same sources in the same order. Nothing of it is a gate; it is reported
as it comes out.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.compactor import NO_CAPS, transcripts, wire_part
from optchat.compactor import results
from optchat.compactor.admission import Subject
from optchat.compactor.answers import parse
from optchat.compactor.desk import Desk
from optchat.compactor.facts import Facts
from optchat.compactor.models import Absent, Call, Outcome, Reply
from optchat.compactor.models.http import Poster
from optchat.compactor.models.openai import OpenAIModel
from optchat.compactor.prompts import prompts
from optchat.compactor.worker import Worker
from optchat.config import Compactor, Config
from optchat.coordinator import service as service_module
from optchat.coordinator.service import Service
from optchat.core.context import escaped_bytes
from optchat.core.tree import NodeKind, SessionTree
from optchat.engine.deps import Deps
from optchat.limits import SUMMARY_BYTES_MAX
from optchat.refs import ScopeId, Span
from optchat.storage.ports import JobState, Tx
from optchat.storage.sqlite import SqliteStore
from optchat.storage.sqlite.store import SystemClock
from optchat.testing.clockwork import CountedIds
from optchat.testing.endpoint import Block, asked_of
from optchat.testing.scripted import ScriptedSession

SEED = 20261130
SOURCE_BYTES_MIN = 600
INPUT_BYTES_MAX = 300
"""Results of calls with a longer input are left out: the call would need a line of its own."""

OUTPUT_TOKENS_MAX = 256
"""A line takes 130 at most; a small model that runs in circles is stopped here."""

TIMEOUT_MS = 600_000
PUT_OFF_MS = 7 * 24 * 3_600_000


@dataclass(slots=True)
class Asked:
    """One line that was asked for: its source, and what each answer held of it.

    None stands for an answer with no line to be read from it.
    """

    purpose: str
    block: Block
    tries: list[str | None] = field(default_factory=list[str | None])

    @property
    def lines(self) -> list[str]:
        return [line for line in self.tries if line is not None]


class Watched:
    """A model whose answers are kept as they come, one line a call."""

    def __init__(self, model: OpenAIModel, seed: int) -> None:
        self.name, self.timeout_ms = model.name, model.timeout_ms
        self.asked: dict[str, Asked] = {}
        self._model = model
        self._seed = seed
        self._path = os.environ.get("OPTCHAT_TEST_ANSWERS")

    def scopes(self) -> frozenset[ScopeId] | Absent | None:
        return self._model.scopes()

    def close(self) -> None:
        self._model.close()

    def count(self, purpose: str) -> int:
        """How many different lines were asked for."""
        return sum(a.purpose == purpose for a in self.asked.values())

    def call(self, call: Call) -> Reply:
        reply = self._model.call(call)
        if reply.outcome.is_models:
            return reply  # an outage says nothing of a line
        read = asked_of(call)
        (code,) = read.codes
        asked = self.asked.setdefault(read.first, Asked(call.purpose, read.blocks[code]))
        parsed = parse(reply.text, [code]) if reply.outcome is Outcome.ANSWER else None
        readable = parsed is not None and code not in parsed.faults
        asked.tries.append(parsed.lines[code] if parsed is not None and readable else None)
        if self._path:
            told = {
                "seed": self._seed,
                "code": code,
                "head": asked.block.head,
                "try": len(asked.tries),
                "again": read.texts[-1] if read.is_retry else "",
                "outcome": reply.outcome.value,
                "answer": reply.text,
                "source": asked.block.body,
            }
            with Path(self._path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(told, ensure_ascii=False) + "\n")
        return reply


def sources(bytes_max: int) -> list[tuple[str, Any]]:
    """(role, part) of the records that need a line of a model."""
    found: list[tuple[str, Any]] = []
    for session in transcripts():
        for message in session["messages"]:
            for part in message["parts"]:
                text = part.get("text") or part.get("output") or part.get("error") or ""
                short = len(json.dumps(part.get("input"))) <= INPUT_BYTES_MAX
                if short and SOURCE_BYTES_MIN < len(text.encode()) <= bytes_max:
                    found.append((message["role"], wire_part(part)))
    return found


def put_off_merges(tx: Tx, now_ms: int) -> None:
    """Leave the merges that were not begun for after the run."""
    for state in (JobState.READY, JobState.WAITING):
        for job in tx.jobs.listed(state, 10_000):
            if job.error or results.target(job)[1].count == 1:
                continue
            held = tx.jobs.lease(job.job_id, "bench", now_ms, 1)
            assert held is not None
            tx.jobs.postpone(
                held.job_id, held.token, not_before_ms=now_ms + PUT_OFF_MS, error="enough of them"
            )


def one_run(seed: int, leaves: int, merges: int, bytes_max: int, minutes: float) -> dict[str, Any]:
    url, model_name = os.environ["OPTCHAT_TEST_ENDPOINT"], os.environ["OPTCHAT_TEST_MODEL"]
    chosen = random.Random(seed).sample(sources(bytes_max), leaves)
    settings = Compactor(
        model="openai",
        url=url,
        model_name=model_name,
        caps=NO_CAPS,
        hold_seconds=0,
        batch_lines=1,  # one source a call: what is measured is the model
        context_bytes=0,
        output_tokens_max=OUTPUT_TOKENS_MAX,
    )
    key_env = "OPTCHAT_TEST_KEY" if os.environ.get("OPTCHAT_TEST_KEY") else ""
    poster = Poster(url, key_env=key_env, timeout_ms=TIMEOUT_MS)
    model = Watched(OpenAIModel(poster, model_name, timeout_ms=TIMEOUT_MS, cache_marks=False), seed)
    with tempfile.TemporaryDirectory() as folder:
        clock = SystemClock()
        store = SqliteStore(Path(folder) / "memory.db", clock)
        deps = Deps(Config(compactor=settings), clock, CountedIds())
        session = ScriptedSession(Service(store, deps, Path(folder)), "evaluated")
        for role, part in chosen:
            session._add(role, [part], opens=False if role == "user" else None)  # noqa: SLF001
        session.sync()
        worker = Worker(store, deps, model, "w", Desk(settings, clock.now_ms))
        started = time.monotonic()
        is_enough = False
        while time.monotonic() - started < minutes * 60:
            if not is_enough and model.count("merge") >= merges:
                is_enough = True
                store.write(lambda tx: put_off_merges(tx, clock.now_ms()))
            if worker.run_one():
                continue
            due_ms = store.read(lambda tx: tx.jobs.next_due_ms())
            if due_ms is None or due_ms > clock.now_ms() + PUT_OFF_MS // 2:
                break
            time.sleep(max(50, due_ms - clock.now_ms()) / 1000)
        seconds = round(time.monotonic() - started)
        figures = store.read(lambda tx: _figures(tx, model))
        store.close()
    model.close()
    return {"seed": seed, "seconds": seconds, **figures}


def _figures(tx: Any, model: Watched) -> dict[str, Any]:
    held = tx.sessions.session_of_host("scripted", "evaluated")
    tree = SessionTree(held.session_id, held.generation)
    length = tx.sessions.generation(held.session_id, held.generation).length
    spans = [Span(i << level, 1 << level) for level in range(12) for i in range(length >> level)]
    nodes = [n for n in (tx.trees.node(tree, span) for span in spans) if n is not None]
    standing = {n.text for n in nodes if n.kind is NodeKind.SUMMARY}
    spent = dict(tx.ledger.table("purpose", 0))
    found = {n: t for _, _, n, t in tx.ledger.findings()}
    return {
        "jobs": {s.value: n for s, n in tx.jobs.counts().items() if n},
        **{
            purpose: {
                **_lines([a for a in model.asked.values() if a.purpose == purpose], standing),
                "calls": spent[purpose].calls,
                "input_tokens": spent[purpose].input_tokens,
                "cached_tokens": spent[purpose].cached_tokens,
                "output_tokens": spent[purpose].output_tokens,
            }
            for purpose in ("leaf", "merge")
            if purpose in spent
        },
        "findings": {n: t for n, t in sorted(found.items()) if not n.startswith("first:")},
        "findings_at_first_try": {
            n.removeprefix("first: "): t for n, t in sorted(found.items()) if n.startswith("first:")
        },
    }


def _lines(asked: list[Asked], standing: set[str]) -> dict[str, Any]:
    """What became of the lines that were asked for; shares are of all of them."""
    admitted = [a for a in asked if standing.intersection(a.lines)]
    kept = [_kept(a, standing) for a in admitted]
    named = [(k, n) for k, n in kept if n]

    def within(line: str | None) -> bool:
        return line is not None and escaped_bytes(line) <= SUMMARY_BYTES_MAX

    return {
        "lines": len(asked),
        "within_512_at_first_try": _share(sum(within(a.tries[0]) for a in asked), len(asked)),
        "within_512_at_last_try": _share(sum(within(a.tries[-1]) for a in asked), len(asked)),
        "admitted": len(admitted),
        "admitted_at_first_try": sum(len(a.tries) == 1 for a in admitted),
        "names_kept": _share(sum(k for k, _ in named), sum(n for _, n in named)),
        "admitted_with_a_name": _share(sum(k > 0 for k, _ in named), len(named)),
    }


def _kept(asked: Asked, standing: set[str]) -> tuple[int, int]:
    """How many of the names by which one would look for a source its standing line has."""
    names = Subject(kind=asked.block.head, source=Facts(asked.block.body)).salient
    line = next(line for line in asked.lines if line in standing).lower()
    return sum(n.lower() in line for n in names), len(names)


def _share(part: int, whole: int) -> float:
    return round(part / max(1, whole), 3)


def run() -> dict[str, Any]:
    service_module.observed_commit = lambda _: None
    if not os.environ.get("OPTCHAT_TEST_ENDPOINT"):
        return {
            "figures": {"skipped": "OPTCHAT_TEST_ENDPOINT and OPTCHAT_TEST_MODEL are not set"},
            "baseline": {},
        }
    leaves = int(os.environ.get("OPTCHAT_TEST_LEAVES", "60"))
    merges = int(os.environ.get("OPTCHAT_TEST_MERGES", "30"))
    bytes_max = int(os.environ.get("OPTCHAT_TEST_SOURCE_BYTES", "3000"))
    runs = int(os.environ.get("OPTCHAT_TEST_RUNS", "3"))
    minutes = float(os.environ.get("OPTCHAT_TEST_MINUTES", "inf"))
    return {
        "figures": {
            "model": os.environ["OPTCHAT_TEST_MODEL"],
            "prompt_version": prompts().version,
            "source_bytes_max": bytes_max,
            "output_tokens_max": OUTPUT_TOKENS_MAX,
            "context_bytes": 0,
            "lines_a_call": 1,
            "minutes_max": minutes if minutes < float("inf") else None,
            "runs": [one_run(SEED + n, leaves, merges, bytes_max, minutes) for n in range(runs)],
        },
        "baseline": {"peers_over_512_at_first_try": "17 to 20 % thinking, 60 % without"},
    }
