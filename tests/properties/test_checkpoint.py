"""Random long turns: steps, steering, lag of the compactor (§7; I2, I9, I10)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from optchat.coordinator import service
from optchat.wire import AssembleResponse, ModelInfo
from tests.engine.conftest import Bench
from tests.harness.request_reader import as_sent, check_sent, texts_of


@pytest.mark.parametrize("seed", range(8))
def test_a_long_turn_is_whole_paired_and_within_its_window_whatever_happens(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "observed_commit", lambda directory: None)
    rng = random.Random(seed)
    bench = Bench(tmp_path)
    try:
        _run(bench, rng)
    finally:
        bench.store.close()


def _run(bench: Bench, rng: random.Random) -> None:
    window = rng.choice([8_000, 12_000, 20_000, 40_000])
    session = bench.session("A")
    session.model = ModelInfo(
        provider="fake", id="m", context_tokens=window, output_tokens=window // 8
    )
    for n in range(rng.randrange(4)):
        session.turn(f"earlier {n}", "word " * rng.randrange(1, 200))
        bench.drain()
    session.user("request: " + "do this " * rng.randrange(1, 60))
    session.sync()
    first = session.assemble()
    request = session.messages[-1]
    steered = [request]
    before: tuple[AssembleResponse, str] | None = None
    stopped = 0
    for n in range(60):
        for _ in range(rng.choice([1, 1, 1, 2])):
            _step(session, rng, n, window)
        if rng.random() < 0.05:
            steered.append(session.user(f"steer {n}", opens=False))
        session.sync()
        worker = bench.worker()
        for _ in range(rng.choice([0, 1, 3, 50])):
            if not worker.run_one():
                break
        if rng.random() < 0.05:
            bench.reopen()
        answer = session.assemble()
        if answer.state == "stop":
            # Never silently: it says what to do, and goes on once the summaries are there.
            assert answer.error is not None
            assert answer.error.code in ("memory_not_ready", "turn_too_large")
            assert answer.error.hint
            stopped += 1
            bench.drain()
            answer = session.assemble()
            if answer.state == "stop":
                break
        read = check_sent(session, answer)
        assert answer.estimated_tokens <= answer.limit_tokens
        native = [text for role, text in read.native if role == "user"]
        said = [text for m in steered for text in texts_of(m)]
        assert native[-len(said) :] == said, "what the user said, as it was said"
        _check_steps(session, answer)
        sent = _text(session, answer)
        if before is not None and _same(before[0], answer):
            assert sent.startswith(before[1]), "the same bytes between checkpoints"
        before = (answer, sent)
    assert before is not None or first.state == "stop", "the turn never went on"


def _step(session, rng: random.Random, n: int, window: int) -> None:
    calls = tuple(
        ("bash", {"n": n, "c": c}, f"out-{n}-{c} " + "word " * rng.randrange(0, window // 40))
        for c in range(rng.choice([0, 1, 1, 1, 2, 3]))
    )
    session.assistant("" if calls and rng.random() < 0.5 else f"said {n}", tools=calls)


def _check_steps(session, answer: AssembleResponse) -> None:
    """A step is told whole or native whole: a checkpoint begins and ends between messages."""
    edges, seq = {0}, 0
    for message in session.messages:
        for part in message.parts or []:
            seq += 2 if hasattr(part, "input_json") else 1
        edges.add(seq)
    told = check_sent(session, answer).checkpoints
    assert all({c.start, c.end} <= edges for c in told)


def _same(one: AssembleResponse, other: AssembleResponse) -> bool:
    return (one.base, one.keep_from, one.checkpoints) == (
        other.base,
        other.keep_from,
        other.checkpoints,
    )


def _text(session, answer: AssembleResponse) -> str:
    return "\x1e".join(f"{m['role']}\x1f{m['content']}" for m in as_sent(session, answer))
