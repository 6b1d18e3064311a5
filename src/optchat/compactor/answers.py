"""Reading an answer strictly: which line is for which source, and what cannot be trusted."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_LINE = re.compile(
    r"\s*(?:[-*]\s+)?[\[`*]{0,2}(?P<code>[a-z]{4})(?P<kind>(?: [\w-]+){0,3})[\]`*]{0,2}\s*:\s?"
    r"(?P<text>.*)"
)
"""A line with its code; small models copy the kind of the source behind it."""

_FENCE = re.compile(r"\s*```\w*\s*")
_HEAD = re.compile(r"\s*\[(?P<code>[a-z]{4}) [^\]]*\]\s*")
_FOOT = re.compile(r"\s*\[/(?P<code>[a-z]{4})\]\s*$")


@dataclass(slots=True)
class Parsed:
    """``lines`` by code; ``faults`` by code: missing, double, swapped, broken.

    ``foreign`` counts lines for codes that nobody asked for, ``noise`` other text around the lines.
    """

    lines: dict[str, str] = field(default_factory=dict[str, str])
    faults: dict[str, str] = field(default_factory=dict[str, str])
    foreign: int = 0
    noise: int = 0


def parse(text: str, codes: Sequence[str]) -> Parsed:
    """The lines of an answer. What is good stays good, whatever stands around it.

    A line that goes on in a second one is not taken, because its first half may say something else
    than the whole. A single line without its code is taken where only one was asked for.
    """
    found = Parsed()
    order = {code: position for position, code in enumerate(codes)}
    seen: list[str] = []
    last: str | None = None
    for raw in _lines(text, order):
        match = _LINE.fullmatch(raw)
        code = match["code"] if match is not None else ""
        if match is None or (code not in order and (match["kind"] or not _is_code(code))):
            found.noise += 1
            if last is not None:
                found.faults[last] = "broken"
            continue
        if code not in order:
            found.foreign += 1
            last = None
            continue
        if code in found.lines:
            found.faults[code] = "double"
        found.lines[code] = match["text"].strip()
        seen.append(code)
        last = code
    if len(codes) == 1 and not seen:
        _bare(found, _lines(text, order), codes[0])
    _check_order(found, seen, order)
    for code in codes:
        if code not in found.lines:
            found.faults[code] = "missing"
    return found


def _is_code(word: str) -> bool:
    """Whether four letters are one of our codes rather than a word: they have no vowel."""
    return not set(word) & set("aeiou")


def _lines(text: str, codes: Container[str]) -> list[str]:
    """What holds words of an answer's own: no thoughts, no fences, no copies of a source.

    Small models go on with the source behind its line: its foot, or its head and all of it again.
    """
    found: list[str] = []
    copied: str | None = None
    for raw in _THOUGHT.sub("", text).replace("\r\n", "\n").split("\n"):
        head, foot = _HEAD.fullmatch(raw), _FOOT.search(raw)
        if head is not None and head["code"] in codes:
            copied = head["code"]
        elif copied is not None:
            copied = None if foot is not None and foot["code"] == copied else copied
        else:
            line = raw[: foot.start()] if foot is not None and foot["code"] in codes else raw
            if line.strip() and not _FENCE.fullmatch(line):
                found.append(line)
    return found


def _bare(found: Parsed, lines: Sequence[str], code: str) -> None:
    if [line.strip() for line in lines] == [code]:
        return  # the code and nothing behind it
    if len(lines) == 1 and not found.foreign:
        found.lines[code] = lines[0].strip()
        found.noise = 0
    elif lines:
        found.faults[code] = "broken"


def _check_order(found: Parsed, seen: list[str], order: dict[str, int]) -> None:
    """A line behind one that comes later in the sources has left its place."""
    furthest = -1
    for code in seen:
        if order[code] < furthest:
            found.faults.setdefault(code, "swapped")
        furthest = max(furthest, order[code])
