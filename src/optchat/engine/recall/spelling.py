"""Words that are nearly another: one slip away, or two for long ones (§8)."""

from __future__ import annotations

import string

NEAR_CHARS_MIN = 4
FAR_CHARS_MIN = 10
WORD_CHARS_MAX = 32
"""What is longer is data; its neighbours would be thousands."""


def is_spelt(word: str) -> bool:
    """Whether a word is one that a person spells: letters alone, and neither short nor endless.

    Numbers and codes are not corrected: another one is another thing.
    """
    return word.isalpha() and NEAR_CHARS_MIN <= len(word) <= WORD_CHARS_MAX


def near(word: str) -> tuple[str, ...]:
    """All that one slip makes of ``word``: a letter lost, doubled, changed, or two exchanged."""
    letters = sorted({*string.ascii_lowercase, *word})
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    found = {
        *(a + b[1:] for a, b in cuts if b),
        *(a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1),
        *(a + letter + b[1:] for a, b in cuts if b for letter in letters),
        *(a + letter + b for a, b in cuts for letter in letters),
    }
    return tuple(sorted(found - {word}))


def pieces(word: str) -> tuple[str, ...]:
    """Three parts of a word, of which two slips leave at least one as it is."""
    size = len(word) // 3
    return (word[:size], word[size : 2 * size], word[2 * size :])


def is_far(word: str, other: str) -> bool:
    """Whether two slips at most make ``other`` of ``word``; two exchanged letters are one."""
    if abs(len(word) - len(other)) > 2:
        return False
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(word, 1):
        older, before = before, row
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and word[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > 2:
            return False
    return row[-1] <= 2
