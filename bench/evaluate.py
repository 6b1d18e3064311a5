"""A real summary model over lines of the transcripts: bound, names, faults, calls, tokens, time.

Runs only against an endpoint that speaks chat completions, named by ``OPTCHAT_TEST_ENDPOINT``
and ``OPTCHAT_TEST_MODEL`` (a key, if any, in ``OPTCHAT_TEST_KEY``). ``OPTCHAT_TEST_LEAVES``,
``OPTCHAT_TEST_MERGES`` and ``OPTCHAT_TEST_RUNS`` make it smaller than 60, 30 and 3. A run is
seeded: the same sources in the same order. Nothing of it is a gate; it is reported as it comes out.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.compactor import NO_CAPS, transcripts
from optchat.compactor.admission import Subject, findings
from optchat.compactor.desk import Desk
from optchat.compactor.facts import Facts, names
from optchat.compactor.models.http import Poster
from optchat.compactor.models.openai import OpenAIModel
from optchat.compactor.prompts import prompts
from optchat.compactor.worker import Worker
from optchat.config import Compactor, Config
from optchat.coordinator import service as service_module
from optchat.coordinator.service import Service
from optchat.core.tree import NodeKind, SessionTree
from optchat.engine.deps import Deps
from optchat.refs import Span
from optchat.storage.sqlite import SqliteStore
from optchat.storage.sqlite.store import SystemClock
from optchat.testing.clockwork import CountedIds
from optchat.testing.scripted import ScriptedSession

SEED = 20261130
SOURCE_BYTES_MAX = 3_000
"""Longer sources are left out: a small model on two cores reads a hundred tokens a second."""


def sources() -> list[tuple[str, str]]:
    """(role, text) of records that need a summary."""
    found: list[tuple[str, str]] = []
    for session in transcripts():
        for message in session["messages"]:
            for part in message["parts"]:
                text = part.get("text") or part.get("output") or ""
                role = "tool" if part["type"] == "tool" else message["role"]
                if 600 < len(text.encode()) <= SOURCE_BYTES_MAX:
                    found.append((role, text))
    return found


def one_run(seed: int, leaves: int, merges: int) -> dict[str, Any]:
    url, model_name = os.environ["OPTCHAT_TEST_ENDPOINT"], os.environ["OPTCHAT_TEST_MODEL"]
    timeout_ms = 600_000
    chosen = random.Random(seed).sample(sources(), leaves)
    settings = Compactor(
        model="openai",
        url=url,
        model_name=model_name,
        caps=NO_CAPS,
        hold_seconds=0,
        batch_lines=1,  # one source a call: what is measured is the model
        context_bytes=0,
    )
    poster = Poster(
        url,
        key_env="OPTCHAT_TEST_KEY" if os.environ.get("OPTCHAT_TEST_KEY") else "",
        timeout_ms=timeout_ms,
    )
    model = OpenAIModel(poster, model_name, timeout_ms=timeout_ms, cache_marks=False)
    with tempfile.TemporaryDirectory() as folder:
        clock = SystemClock()
        store = SqliteStore(Path(folder) / "memory.db", clock)
        deps = Deps(Config(compactor=settings), clock, CountedIds())
        service = Service(store, deps, Path(folder))
        session = ScriptedSession(service, "evaluated")
        for role, text in chosen:
            if role == "user":
                session.user(text, opens=False)
            elif role == "tool":
                session.assistant("", tools=(("bash", {"c": "…"}, text),))
            else:
                session.assistant(text)
        session.sync()
        worker = Worker(store, deps, model, "w", Desk(settings, clock.now_ms))
        started = time.monotonic()
        done_merges = 0
        while done_merges < merges + leaves and worker.run_one():
            done_merges += 1
        figures = _figures(store, time.monotonic() - started)
        store.close()
    return {"seed": seed, **figures}


def _figures(store: Any, seconds: float) -> dict[str, Any]:
    def work(tx: Any) -> dict[str, Any]:
        held = tx.sessions.session_of_host("scripted", "evaluated")
        tree = SessionTree(held.session_id, held.generation)
        length = tx.sessions.generation(held.session_id, held.generation).length
        kept = lines = 0
        soft = 0
        for level in range(8):
            for index in range(length >> level):
                node = tx.trees.node(tree, Span(index << level, 1 << level))
                if node is None or node.kind is not NodeKind.SUMMARY:
                    continue
                lines += 1
                if level:
                    continue
                record = tx.records.record(tree, index)
                text = tx.blobs.read(record.payload, 0, 10_000).decode("utf-8", "replace")
                subject = Subject(kind=node.label, source=Facts(text))
                kept += any(n in node.text for n in names(text)[:8])
                soft += any(f.name == "drops_names" for f in findings(node.text, subject))
        spent = tx.ledger.spent(0)
        found = {n: t for _, _, n, t in tx.ledger.findings()}
        counts = {s.value: n for s, n in tx.jobs.counts().items() if n}
        first = max(1, found.get("first: lines", 0))
        return {
            "lines_standing": lines,
            "jobs": counts,
            "within_512_at_first_try": round(1 - found.get("first: too_long", 0) / first, 3),
            "admitted_at_first_try": round(
                1
                - sum(
                    t
                    for n, t in found.items()
                    if n.startswith("first: ") and n not in ("first: lines", "first: drops_names")
                )
                / first,
                3,
            ),
            "leaves_with_a_name_of_the_source": kept,
            "findings": {n: t for n, t in sorted(found.items()) if not n.startswith("first:")},
            "calls": spent.calls,
            "input_tokens": spent.input_tokens,
            "output_tokens": spent.output_tokens,
            "seconds": round(seconds, 1),
        }

    return store.read(work)


def run() -> dict[str, Any]:
    service_module.observed_commit = lambda _: None
    if not os.environ.get("OPTCHAT_TEST_ENDPOINT"):
        return {
            "figures": {"skipped": "OPTCHAT_TEST_ENDPOINT and OPTCHAT_TEST_MODEL are not set"},
            "baseline": {},
        }
    leaves = int(os.environ.get("OPTCHAT_TEST_LEAVES", "60"))
    merges = int(os.environ.get("OPTCHAT_TEST_MERGES", "30"))
    runs = int(os.environ.get("OPTCHAT_TEST_RUNS", "3"))
    return {
        "figures": {
            "model": os.environ["OPTCHAT_TEST_MODEL"],
            "prompt_version": prompts().version,
            "leaves": leaves,
            "merges": merges,
            "runs": [one_run(SEED + n, leaves, merges) for n in range(runs)],
        },
        "baseline": {"peers_over_512_at_first_try": "17 to 20 % thinking, 60 % without"},
    }
