"""A setting that cannot be is named with its file, and nothing is silently ignored (§14)."""

from __future__ import annotations

from pathlib import Path

import pytest

from optchat.config import Recall, load
from optchat.errors import BadInput


def read(folder: Path, text: str):
    (folder / "config.toml").write_text(text, encoding="utf-8")
    return load(folder)


def test_recall_is_off_unless_it_is_switched_on(tmp_path):
    off = Recall(aliases=False, automatic="off")
    assert load(tmp_path).recall == read(tmp_path, "[recall]\n").recall == off
    on = read(tmp_path, '[recall]\naliases = true\nautomatic = "always"\nautomatic_bytes = 512\n')
    assert on.recall == Recall(aliases=True, automatic="always", automatic_bytes=512)


@pytest.mark.parametrize(
    "line, named",
    [
        ('automatic = "sometimes"', "automatic"),
        ("automatic = true", "automatic"),
        ("automatic_bytes = 10", "recall.automatic_bytes"),
        ("automatic_bytes = 1000000", "recall.automatic_bytes"),
        ("automatic_ms = 0", "recall.automatic_ms"),
        ("automatic_ms = 600000", "recall.automatic_ms"),
        ('aliases = "yes"', "aliases"),
        ("alias = true", "alias"),
    ],
)
def test_a_value_of_recall_that_cannot_be_is_refused_by_its_name(tmp_path, line, named):
    with pytest.raises(BadInput) as found:
        read(tmp_path, f"[recall]\n{line}\n")
    assert named in found.value.message
    assert "config.toml" in found.value.hint
