"""The words that a search sees: one rule for every store.

It is the rule of SQLite's ``unicode61 remove_diacritics 2``: a word is a run of letters, numbers
and private-use characters, lower-cased, Latin letters without their diacritics. It differs from it
on what Unicode added or changed after 6.1, and on the few characters with a special fold (µ, the
long s). ASCII agrees wholly, as do Latin-1 and Latin Extended-A but for these two.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache


def searchable(text: str) -> str:
    """``text`` as it can be stored: a lone surrogate, which no UTF-8 holds, becomes ``?``."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def words(text: str) -> tuple[str, ...]:
    """The words of ``text`` in order. Cost O(n)."""
    return tuple("".join(map(_folded, text)).split())


@lru_cache(maxsize=4096)
def _folded(character: str) -> str:
    """A word character lower-cased and bare, "" for a mark inside a word, else a space."""
    category = unicodedata.category(character)
    if "\u0300" <= character <= "\u0331":  # the marks that unicode61 takes as part of a word
        return ""
    if category[0] not in "LN" and category != "Co":
        return " "
    lower = character.lower()
    lower = lower if len(lower) == 1 else character
    base = unicodedata.normalize("NFD", lower)[0]
    return base if base.isascii() else lower


def holds(text_words: Sequence[str], phrase: Sequence[str]) -> bool:
    """Whether ``phrase`` stands in ``text_words`` as consecutive words; an empty one never does."""
    length = len(phrase)
    return length > 0 and any(
        tuple(text_words[at : at + length]) == tuple(phrase)
        for at in range(len(text_words) - length + 1)
    )
