"""The peer's set and its distractors, where the shared data is there; our own set is always run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench._corpus import noisy, shared
from optchat.evaluation import retrieval


@pytest.fixture
def data() -> Path:
    try:
        return shared()
    except SystemExit as error:
        pytest.skip(str(error))


def test_the_peer_s_set_is_answered_wholly_with_its_constraints(data):
    figures = retrieval.evaluate(data / "data" / "retrieval" / "eval_v2.json")
    assert (figures["cases"], figures["mrr"], figures["exclusions_broken"]) == (16, 1.0, 0)
    assert figures["constraints"]["broken"] == []
    assert figures["constraints"]["checked"] == 6
    assert figures["reasoning"] == {"cases": 1, "found": {}, "nearly": {}}
    assert [one["rank"] for one in figures["extra"]] == [1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_hundred_distractors_move_little(data, tmp_path):
    figures = retrieval.evaluate(noisy(tmp_path / "set.json", 200))
    assert figures["mrr"] >= 0.97, figures["missed"]
    assert figures["exclusions_broken"] == 0
