"""The words around a hit: one line, cut at characters, marked where cut (§8)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable

from optchat.engine.recall.terms import Form
from optchat.limits import EXCERPT_CHARS
from optchat.storage.words import placed, spaced, unspaced_at, words

READ_CHARS = 256 * 1024
"""How much of a text is looked through word by word for the best place."""

PLACES_PER_STEM_MAX = 64

_JOINERS = re.compile(r"[\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")


def excerpt_of(text: str, forms: Iterable[Form]) -> str:
    """The stretch of ``text`` in which most of the words stand together; at most EXCERPT_CHARS."""
    found = _places(text, {stem for form in forms for stem in form})
    start = max(0, _best(found) - EXCERPT_CHARS // 3) if found else 0
    end = min(len(text), start + EXCERPT_CHARS)
    start, end = _whole(text, start), _whole(text, end)
    cut = re.sub(r"[\s\x00-\x1f]+", " ", text[start:end]).strip()
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


def holds_phrase(text: str, phrase: str) -> bool:
    """Whether the very words of ``phrase`` stand in ``text`` one after another."""
    if phrase.lower() in text.lower():
        return True
    if len(text) > 8 * READ_CHARS:
        return True  # as the index says; to read it word by word would take seconds
    wanted = words(spaced(phrase))
    found = words(spaced(text))
    size = len(wanted)
    at = -1
    try:
        while True:
            at = found.index(wanted[0], at + 1)
            if found[at : at + size] == wanted:
                return True
    except (ValueError, IndexError):
        return False


def _places(text: str, stems: set[str]) -> list[tuple[int, str]]:
    """Where the stems stand, in order: by their letters if a word begins so, else by stemming."""
    lowered = text.lower()
    found: list[tuple[int, str]] = []
    if len(lowered) == len(text):
        for stem in stems:
            letters = stem[:-1] if len(stem) > 3 and stem[-1] == "i" else stem
            at = lowered.find(letters)
            count = 0
            while at >= 0 and count < PLACES_PER_STEM_MAX:
                if not at or not lowered[at - 1].isalnum():
                    found.append((at, stem))
                    count += 1
                at = lowered.find(letters, at + len(letters))
    if not found:
        told = spaced(text[:READ_CHARS])
        raw = told.encode("utf-8", "replace")
        for start, _, stem in placed(told):
            if stem in stems:
                at = len(raw[:start].decode("utf-8", "replace"))
                found.append((unspaced_at(told, at), stem))
                if len(found) >= PLACES_PER_STEM_MAX:
                    break
    return sorted(found)


def _best(found: list[tuple[int, str]]) -> int:
    """Where the stretch begins that holds the most different words; the first of equals."""
    reach = EXCERPT_CHARS * 2 // 3
    starts = [at for at, _ in found]
    best, most = starts[0], 0
    for index, (at, _) in enumerate(found):
        inside = {stem for _, stem in found[index : bisect_left(starts, at + reach)]}
        if len(inside) > most:
            best, most = at, len(inside)
    return best


def _whole(text: str, at: int) -> int:
    """``at``, moved behind marks and joiners that belong to the character before them."""
    while 0 < at < len(text) and (_JOINERS.match(text, at) or text[at - 1] == "\u200d"):
        at += 1
    return at
