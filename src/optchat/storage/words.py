"""The words that a search sees: one rule for every store, and for the questions.

It is FTS5's own tokenizer (``porter unicode61 remove_diacritics 2``) over a prepared text: each
character of a script without spaces is a word of its own, and the parts of ``camelCase`` words
stand once more at the end, so that they are found however they are written.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import apsw

_STEMMER = "porter"
_WORDS = ["unicode61", "remove_diacritics", "2"]
# Together they are the ``tokenize`` of the indexes in m0001_initial.sql.

CJK = (
    "\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Scripts without spaces, or whose words are glued together, as ranges of characters."""

_CJK = re.compile(f"[{CJK}]")
_OF_CJK = {
    byte
    for first, last in re.findall("(.)-(.)", CJK)
    for byte in range(first.encode()[0], last.encode()[0] + 1)
}
_NOT_CJK = bytes(set(range(256)) - _OF_CJK)
"""Bytes of UTF-8 that none of these characters begins with."""
# What a text's characters are, a byte each: a regular expression over the text itself costs more
# than all the rest of indexing it.
_SHAPES = bytes(
    97 if chr(n).islower() or chr(n).isdigit() else 65 if chr(n).isupper() else 32
    for n in range(128)
) + bytes(32 for _ in range(128))
_HUMPS = (b"aA", b"AAa")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", re.ASCII)
PARTS_MAX = 8
CAMEL_CHARS_MAX = 64
"""A longer run of letters is no name but data."""

_local = threading.local()


def searchable(text: str) -> str:
    """``text`` as it can be stored: a lone surrogate, which no UTF-8 holds, becomes ``?``."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def indexed(text: str) -> str:
    """What FTS5 is given for ``text``: ``spaced``, with the parts of its camelCase words behind."""
    told = spaced(searchable(text))
    parts = dict.fromkeys([parted for word in _camel(told) if (parted := _parted(word))])
    return f"{told}\n{' . '.join(parts)}" if parts else told


def spaced(text: str) -> str:
    """``text`` with a space on both sides of each character of a script without spaces."""
    # Most texts hold no such character, which their bytes tell in a tenth of the time.
    if text.isascii() or not _utf8(text).translate(None, _NOT_CJK):
        return text
    return _CJK.sub(r" \g<0> ", text)


def unspaced_at(text: str, at: int) -> int:
    """Where the character at ``at`` of ``spaced(text)``, given as ``text``, stands in the text."""
    return (
        at
        if text.isascii()
        else max(0, at - 2 * len(_CJK.findall(text, 0, at)) - _inside(text, at))
    )


def _inside(text: str, at: int) -> int:
    """1 when the character itself is one that has a space put before it."""
    return int(at < len(text) and _CJK.match(text, at) is not None)


def parts(word: str) -> tuple[str, ...]:
    """The parts of a camelCase word, in order; nothing for another."""
    return tuple(next((p for p in map(_parted, _camel(word)) if p), "").split())


def _camel(text: str) -> Iterable[str]:
    """The words of a text in which a part begins with a capital, in order, each once."""
    shapes = text.encode("ascii", "replace").translate(_SHAPES)
    found: dict[int, int] = {}
    for hump in _HUMPS:
        at = shapes.find(hump)
        while at >= 0:
            start = shapes.rfind(b" ", 0, at) + 1
            end = shapes.find(b" ", at)
            end = end if end >= 0 else len(shapes)
            if end - start <= CAMEL_CHARS_MAX:
                found[start] = end
            at = shapes.find(hump, end)
    if not found:  # as in most texts
        return ()
    return dict.fromkeys([text[start:end] for start, end in sorted(found.items())])


@lru_cache(maxsize=1 << 15)  # names come again
def _parted(word: str) -> str:
    """A word's parts with spaces between; "" if there is one, or more than a name has."""
    pieces = _PART.findall(word)
    return " ".join(pieces) if 1 < len(pieces) <= PARTS_MAX else ""


def stems(text: str) -> tuple[str, ...]:
    """The stems of ``text`` in order, as an index holds them. Cost O(n)."""
    return tuple(_tokenizers()[0](_utf8(text), apsw.FTS5_TOKENIZE_QUERY, None, **_PLAIN))


def placed(text: str) -> list[tuple[int, int, str]]:
    """``stems`` with the bytes of UTF-8 where each begins and ends."""
    return _tokenizers()[0](_utf8(text), apsw.FTS5_TOKENIZE_QUERY, None, include_colocated=False)


def words(text: str) -> tuple[str, ...]:
    """The words of ``text``, lower-cased and without diacritics but not stemmed."""
    return tuple(_tokenizers()[1](_utf8(text), apsw.FTS5_TOKENIZE_QUERY, None, **_PLAIN))


_PLAIN = {"include_offsets": False, "include_colocated": False}


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _tokenizers() -> tuple[Any, Any]:
    """A pair for each thread: apsw lets one thread at a time use a connection."""
    try:
        return _local.tokenizers
    except AttributeError:
        connection = apsw.Connection(":memory:")
        _local.tokenizers = (
            connection.fts5_tokenizer(_STEMMER, _WORDS),
            connection.fts5_tokenizer(_WORDS[0], _WORDS[1:]),
        )
        return _local.tokenizers
