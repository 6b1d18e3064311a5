"""Tables of documents that are made from results, each between its two marks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

PERFORMANCE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def replace_section(name: str, lines: Sequence[str], path: Path = PERFORMANCE) -> None:
    """Put ``lines`` between the marks of ``name``.

    Raises:
        ValueError: the document has no such marks.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{path.name} has no section {name!r}")
    whole = "\n".join((begin, *lines, end))
    path.write_text(pattern.sub(lambda _: whole, text), encoding="utf-8")
