"""Between folds a conversation's requests only grow, so that a provider reads them from its cache.

§7 (architecture, idea 4: fold and append). Two sessions take turns on the real host, forty turns
each, in a window so small that each folds several times.
"""

from __future__ import annotations

import sys

import pytest

from bench.prefix import TURN_BYTES, Figures, measure
from tests.e2e.support import check_requests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SHARE_MIN = 0.92
FOLDS_MIN = 3  # the first base included


@pytest.mark.parametrize("calls_per_turn", sorted(TURN_BYTES))
def test_requests_repeat_the_one_before_with_folds_counted_in(
    calls_per_turn: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """§7: the share is at least 0.92. ``make bench NAME=prefix`` has it for both layouts."""
    folded = measure(calls_per_turn=calls_per_turn, inspect=check_requests)
    with capsys.disabled():
        _show(f"{calls_per_turn} calls a turn, fold and append", folded)
    assert min(folded.folds_per_session) >= FOLDS_MIN
    assert folded.share >= SHARE_MIN


def test_when_every_turn_folds_nothing_is_lost_and_less_repeats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """§7: the literal layout covers as much; its requests repeat less than the bound above."""
    every = measure(calls_per_turn=1, layout="every-turn", turns=15, inspect=check_requests)
    with capsys.disabled():
        _show("1 call a turn, every turn folds", every)
    assert every.share < SHARE_MIN


def _show(name: str, figures: Figures) -> None:
    line = (
        f"\n  {name}: {figures.share:.3f} of {figures.requests} requests of "
        f"{figures.request_bytes_mean} bytes repeat; folds {list(figures.folds_per_session)}"
    )
    sys.stdout.write(line)
