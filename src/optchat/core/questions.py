"""What a query asks for: concepts, each with the forms of it that count as found (§8).

A concept is a word with its stems, an identifier whole, split and joined, or a quoted phrase. Pure:
which forms a store really holds is found out by the caller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from optchat.core.stems import stem

_TOKEN = re.compile(r'(-?)"([^"]*)"|(\S+)')
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+|[0-9]+")

STOP_WORDS = frozenset(
    """
    a about after all also am an and any are as at be because been before being both but by can
    could did do does doing don for from had has have having he her here him his how i if in
    into is it its just ll me might more most my no nor not of on or our out over re s she
    should so some such t than that the their them then there these they this to too up us ve
    very was we were what when where which while who whom why will with would you your
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Concept:
    """``name`` as it was typed; ``words`` in the index's form; ``boost`` its weight."""

    name: str
    words: tuple[str, ...]
    phrase: bool = False
    boost: float = 1.0
    split: tuple[str, ...] = ()  # the pieces of a camel-case word

    @property
    def joined(self) -> str:
        """The pieces as one word, as another naming style writes them."""
        return "".join(self.words)


def tokens(text: str) -> list[tuple[str, bool, bool]]:
    """(value, whether quoted, whether excluded) of each token, case kept."""
    found: list[tuple[str, bool, bool]] = []
    for minus, phrase, word in _TOKEN.findall(text):
        if not word:
            found.append((phrase, True, bool(minus)))
            continue
        bare = word.lstrip("-")
        found.append((bare, False, word.startswith("-") and bool(bare)))
    return found


def camel_pieces(word: str) -> tuple[str, ...]:
    """The pieces of a camel-case word, lower-cased; none for any other word."""
    if not (word.isascii() and word.isalnum()) or word.islower() or word.isupper():
        return ()
    pieces = _CAMEL.findall(word)
    return (
        tuple(p.lower() for p in pieces) if len(pieces) > 1 and word[1:] != word[1:].lower() else ()
    )


def stem_range(word: str) -> tuple[str, str]:
    """Where in a sorted vocabulary the words with the same stem lie."""
    base = stem(word)
    if len(base) > 3 and base[-1] in "ei":
        base = base[:-1]
    return base, base + "\U0010ffff"


def is_wide(word: str) -> bool:
    """Whether a word has characters of a script that is written without spaces."""
    return any("\u0e00" <= c <= "\u0eff" or "\u2e80" <= c <= "\ud7ff" for c in word)


def edits(word: str) -> list[str]:
    """All words one slip of the finger away: a letter lost, added, changed, or two swapped."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    found = [a + b[1:] for a, b in cuts if b]
    found += [a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1]
    found += [a + c + b[1:] for a, b in cuts if b for c in letters]
    found += [a + c + b for a, b in cuts for c in letters]
    return sorted(set(found) - {word})
