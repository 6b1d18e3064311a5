"""The versioned prompt files, without what they say to people."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_PIECES = re.compile(r"\{[^}]*\}|[.;:]")
TOLD_WORDS_MIN = 4
SYSTEM_WORDS_MIN = 6
_VERSION = re.compile(r"<!-- version: (\d+)")


@dataclass(frozen=True)
class Prompts:
    """``version`` is stored with each node; ``digest`` ties it to the text."""

    version: str
    digest: str
    system: str
    findings: dict[str, str]

    @cached_property
    def own_words(self) -> tuple[str, ...]:
        """Pieces of what a model is told, too long for a line to have by chance; lower case."""
        told = [(text, TOLD_WORDS_MIN) for text in self.findings.values()]
        return tuple(
            " ".join(piece.split())
            for text, words_min in [*told, (self.system, SYSTEM_WORDS_MIN)]
            for piece in _PIECES.split(text.lower())
            if len(piece.split()) >= words_min
        )


@cache
def prompts() -> Prompts:
    folder = resources.files("optchat.compactor").joinpath("prompts")
    raw = folder.joinpath("compactor.md").read_text(encoding="utf-8")
    found = _VERSION.search(raw)
    assert found is not None
    system = re.sub(r"\n{3,}", "\n\n", _COMMENT.sub("", raw)).strip() + "\n"
    retry = _COMMENT.sub("", folder.joinpath("retry.md").read_text(encoding="utf-8"))
    pairs = (line.partition(": ") for line in retry.splitlines() if line.strip())
    findings = {name: text for name, _, text in pairs}
    digest = hashlib.sha256((system + retry).encode()).hexdigest()[:12]
    return Prompts(f"compactor-{found[1]}", digest, system, findings)
