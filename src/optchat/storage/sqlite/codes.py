"""Short forms of what many rows repeat: numbers for names, bytes for hashes written as text.

What has no short form is stored as it is, in the same column. A name's number is its place in its
list, so a list only ever grows at its end.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from binascii import a2b_base64
from collections.abc import Sequence


class Names:
    """Names by their numbers, and back."""

    def __init__(self, *listed: str) -> None:
        self.listed = listed
        self.numbers = {name: number for number, name in enumerate(listed)}


RECORD_KINDS = Names("user", "assistant", "tool_call", "tool_result", "report")
NODE_KINDS = Names("verbatim", "summary", "fallback")
MAKERS = Names("verbatim", "import", "none")
"""The model names and prompt versions of what no model made."""
STATUSES = Names("completed", "error", "interrupted")

_STANDARD = str.maketrans("-_", "+/")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_LAST = (frozenset(_ALPHABET), frozenset(_ALPHABET[::4]), frozenset(_ALPHABET[::16]))
"""What the last of whole, three and two characters of four can be, when no bit is left over."""
_BASE64 = re.compile(r"(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2,3})?")


def code(names: Names, name: str) -> int | str:
    """The number of a name that is listed; another one as it is."""
    return names.numbers.get(name, name)


def name_of(names: Names, stored: int | str) -> str:
    """The inverse of ``code``."""
    return names.listed[stored] if isinstance(stored, int) else stored


def hash_bytes(text: str) -> bytes | str:
    """A hash in base64 without padding as its bytes; a text that is none as it is."""
    if not _BASE64.fullmatch(text):
        return text
    found = a2b_base64(text.translate(_STANDARD) + "=" * (-len(text) % 4))
    # Bits behind the last byte would be lost.
    return found if len(text) % 4 == 0 or hash_text(found) == text else text


def hashes_bytes(texts: Sequence[str]) -> list[bytes | str]:
    """``hash_bytes`` of each text, faster where all are keys of one length."""
    chars = len(texts[0]) if texts else 0
    fill = "A" * (-chars % 4)  # nothing but zeros behind the last byte
    whole = fill.join([*texts, ""])
    if (
        len(fill) < 3
        and {*map(len, texts)} == {chars}
        and {text[-1:] for text in texts} <= _LAST[len(fill)]
        and _BASE64.fullmatch(whole)
    ):
        data, step = a2b_base64(whole.translate(_STANDARD)), (chars + 3) // 4 * 3
        size = step - len(fill)
        return [data[at : at + size] for at in range(0, len(data), step)]
    return list(map(hash_bytes, texts))


def hash_text(stored: bytes | str) -> str:
    """The inverse of ``hash_bytes``."""
    if isinstance(stored, str):
        return stored
    return urlsafe_b64encode(stored).decode().rstrip("=")
