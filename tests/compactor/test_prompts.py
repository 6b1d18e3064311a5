"""The prompts are versioned: text that changes without its version is found here."""

from __future__ import annotations

from pathlib import Path

from optchat.compactor import admission, answers, facts
from optchat.compactor.prompts import prompts

DIGESTS = {"compactor-1": "e0e3a223707f"}


def test_the_version_stands_for_the_text():
    """After a change: raise the version in compactor.md, and name its digest here."""
    assert DIGESTS[prompts().version] == prompts().digest


def test_what_is_for_people_is_not_sent():
    assert "<!--" not in prompts().system
    assert "why:" not in prompts().system
    assert len(prompts().system.encode()) < 5_500


def test_the_ruler_is_as_long_as_the_bound():
    assert max(len(line) for line in prompts().system.split("\n") if set(line) == {"-"}) == 512


def test_every_finding_can_be_told():
    modules = (admission, answers, facts)
    source = "".join(Path(m.__file__).read_text(encoding="utf-8") for m in modules)
    for name in prompts().findings:
        assert f'"{name}"' in source, name
