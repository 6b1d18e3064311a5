"""How much of each request repeats the session's request before it, byte for byte from the start.

A provider reads such a prefix from its cache. Two sessions take turns on the real host; requests
are compared in provider order, tools and then messages. The first request of a session counts with
nothing repeated, and folds are counted in.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optchat
from optchat.storage.sqlite.connection import Connection
from optchat.testing.hostfiles import ModelSpec
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import (
    CapturedRequest,
    LoopbackProvider,
    Reply,
    canonical_bytes,
    common_prefix_bytes,
    text,
)
from optchat.testing.replies import call
from optchat.testing.settings import local

PLUGIN = Path(optchat.__file__).parent / "hosts" / "opencode" / "plugin" / "optchat.js"
COMMAND = [sys.executable, "-m", "optchat"]

TURNS = 40
SESSIONS = 2
TURN_BYTES = {1: 1_100, 5: 2_500}
"""What a turn adds, by its model calls: an answer, or four tool results and an answer."""

WINDOW = ModelSpec(id="window-40k", context=40_960, output=4_096)
"""Small enough that every session folds several times."""

PATIENT = {"start_timeout_ms": 40_000, "assemble_timeout_ms": 20_000, "sync_timeout_ms": 30_000}
"""A loaded machine must not look like a coordinator that is gone."""

Inspect = Callable[[OpenCodeHost, list[CapturedRequest], str], None]
"""Shown the host, a session's requests and its id."""

_TEXT = (
    "the queue keeps every message until its consumer has acknowledged it and the broker then "
    "drops it from the log while the retry handler waits for a moment before it asks again"
)
_WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured for one setting."""

    share: float
    requests: int
    folds_per_session: tuple[int, ...]
    request_bytes_mean: int

    def plain(self) -> dict[str, Any]:
        return {
            "share": round(self.share, 4),
            "requests": self.requests,
            "folds_per_session": list(self.folds_per_session),
            "request_bytes_mean": self.request_bytes_mean,
        }


def repeated_share(conversations: list[list[CapturedRequest]]) -> float:
    """Bytes that repeat the same session's request before, over all bytes of all requests."""
    repeated = total = 0
    for requests in conversations:
        before = b""
        for request in requests:
            now = canonical_bytes(request)
            repeated += common_prefix_bytes(before, now)
            total += len(now)
            before = now
    return repeated / total if total else 0.0


def prose(length: int, seed: int) -> str:
    """Deterministic plain words of about this many bytes, other ones for each seed."""
    found = [f"[{seed}]"]
    size = len(found[0])
    step = seed % (len(_WORDS) - 1) + 1
    at = seed
    while size < length:
        word = _WORDS[at % len(_WORDS)]
        found.append(word)
        size += len(word) + 1
        at += step
    return " ".join(found)


def measure(
    *,
    calls_per_turn: int,
    layout: str = "fold",
    turns: int = TURNS,
    turn_bytes: int | None = None,
    model: ModelSpec = WINDOW,
    inspect: Inspect | None = None,
) -> Figures:
    """Run the two interleaved sessions in a folder of their own and compare their requests.

    ``inspect`` is shown each session's requests while the host still runs.
    """
    with tempfile.TemporaryDirectory(prefix="optchat-prefix-") as folder:
        size = turn_bytes or TURN_BYTES[calls_per_turn]
        return _measure(Path(folder), calls_per_turn, layout, turns, size, model, inspect)


def _measure(
    root: Path,
    calls_per_turn: int,
    layout: str,
    turns: int,
    turn_bytes: int,
    model: ModelSpec,
    inspect: Inspect | None,
) -> Figures:
    home = root / "memory"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(local(f'[memory]\nlayout = "{layout}"\n'), encoding="utf-8")
    plugin = (PLUGIN.as_uri(), {"command": COMMAND, **PATIENT})
    with (
        LoopbackProvider() as provider,
        _coordinator(home),
        OpenCodeHost(
            root / "host",
            provider.base_url,
            plugins=[plugin],
            models=(model,),
            model=model.id,
            env={"OPTCHAT_HOME": str(home)},
        ) as host,
    ):
        notes = host.project / "notes.txt"
        answer_bytes = turn_bytes // calls_per_turn
        ids = [host.create_session(title=f"session {i}") for i in range(SESSIONS)]
        for turn in range(turns):
            for index, session in enumerate(ids):
                seed = 100 * turn + index
                notes.write_text(prose(answer_bytes, seed) + "\n", encoding="utf-8")
                provider.plan(session, *_replies(calls_per_turn, answer_bytes, seed, notes))
                host.prompt(session, f"Step {turn} of part {index}: go on with the queue.")
        conversations = [provider.requests(session) for session in ids]
        for session, requests in zip(ids, conversations, strict=True):
            if inspect is not None:
                inspect(host, requests, session)
    expected = turns * calls_per_turn
    counted = [len(requests) for requests in conversations]
    if counted != [expected] * SESSIONS:
        raise RuntimeError(f"{counted} requests instead of {expected} in each session")
    without = [r.number for rs in conversations for r in rs if "<optchat_memory>" not in r.text]
    if without:
        raise RuntimeError(f"requests {without} went out without memory")
    whole = [canonical_bytes(r) for requests in conversations for r in requests]
    return Figures(
        share=repeated_share(conversations),
        requests=len(whole),
        folds_per_session=_folds(home, ids),
        request_bytes_mean=sum(map(len, whole)) // len(whole),
    )


def _replies(calls: int, answer_bytes: int, seed: int, notes: Path) -> Iterator[Reply]:
    """One model call a turn, or tool calls that each read a file, and the answer."""
    for _ in range(calls - 1):
        yield call("read", {"filePath": str(notes)})
    yield text(prose(answer_bytes, seed + 50))


def _folds(home: Path, sessions: list[str]) -> tuple[int, ...]:
    """How many bases each session was given, the first one included."""
    connection = Connection(home / "memory.db", readonly=True)
    try:
        rows = connection.all(
            "select s.host_session, count(*) from fold f join session s using (session_id) "
            "group by s.host_session"
        )
    finally:
        connection.close()
    counts = {str(name): int(count) for name, count in rows}
    return tuple(counts.get(session, 0) for session in sessions)


@contextmanager
def _coordinator(home: Path) -> Iterator[None]:
    env = {**os.environ, "OPTCHAT_HOME": str(home)}
    subprocess.run([*COMMAND, "ensure"], env=env, check=True, capture_output=True, timeout=60)
    try:
        yield
    finally:
        subprocess.run([*COMMAND, "stop"], env=env, check=False, capture_output=True, timeout=60)


def run() -> dict[str, Any]:
    """Both settings, with one and with five model calls a turn."""
    settings = {
        (layout, calls): {"calls_per_turn": calls, "layout": layout}
        for layout in ("fold", "every-turn")
        for calls in (1, 5)
    }
    with ThreadPoolExecutor(2) as pool:
        running = {key: pool.submit(measure, **options) for key, options in settings.items()}
        done = {key: future.result().plain() for key, future in running.items()}
    workload = {
        "turns": TURNS,
        "interleaved_sessions": SESSIONS,
        "turn_bytes_by_calls": {str(calls): size for calls, size in TURN_BYTES.items()},
        "context_tokens": WINDOW.context,
    }
    return {
        "figures": {
            "workload": workload,
            "one_call_a_turn": done["fold", 1],
            "five_calls_a_turn": done["fold", 5],
        },
        "baseline": {
            "what": 'layout = "every-turn": both views rendered anew at each turn (§7)',
            "one_call_a_turn": done["every-turn", 1],
            "five_calls_a_turn": done["every-turn", 5],
        },
    }
