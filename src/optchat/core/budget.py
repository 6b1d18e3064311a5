"""Tokens from sizes, and the division of a window (§7).

Only "tokens ≤ UTF-8 bytes" is a true bound. By class of character the worst under-count seen is
1.6 times, where bytes/4 is off by 4, so sizes are counted by class and then scaled by what the
provider reported for earlier requests.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

import msgspec

_LETTERS = string.ascii_letters.encode()
_SPACES = b" \t\n\r"
_ASCII = bytes(range(128))

MEDIA_TOKENS = 1_600
"""A conservative price for one image or document that is passed as media."""

MESSAGE_TOKENS = 8
"""Framing that a provider adds to one message."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """A text's size by class of character: what the plugin measures and tokens are made from."""

    letters: int = 0
    spaces: int = 0
    symbols: int = 0  # other ASCII: digits, punctuation, controls
    other_bytes: int = 0  # UTF-8 bytes of everything else
    media: int = 0

    def __add__(self, other: Sizes) -> Sizes:
        return Sizes(
            letters=self.letters + other.letters,
            spaces=self.spaces + other.spaces,
            symbols=self.symbols + other.symbols,
            other_bytes=self.other_bytes + other.other_bytes,
            media=self.media + other.media,
        )


def measure(text: str) -> Sizes:
    """The sizes of ``text`` by class. Cost O(n)."""
    data = text.encode("utf-8", "surrogatepass")
    no_letters = data.translate(None, _LETTERS)
    symbols_and_others = no_letters.translate(None, _SPACES)
    others = symbols_and_others.translate(None, _ASCII)
    return Sizes(
        letters=len(data) - len(no_letters),
        spaces=len(no_letters) - len(symbols_and_others),
        symbols=len(symbols_and_others) - len(others),
        other_bytes=len(others),
    )


def tokens(sizes: Sizes, factor: float = 1.0) -> int:
    """A conservative token count, scaled by a model's calibration ``factor``."""
    weighted = (
        sizes.letters * 0.28
        + sizes.spaces * 0.15
        + sizes.symbols * 1.0
        + sizes.other_bytes * 0.6
        + sizes.media * MEDIA_TOKENS
    )
    return int(weighted * factor) + 1


def text_tokens(text: str) -> int:
    """The uncalibrated tokens of a text."""
    return tokens(measure(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A model's limits as the host states them, in tokens."""

    context_tokens: int
    output_tokens: int
    input_tokens: int | None = None

    @property
    def key(self) -> str:
        return f"{self.context_tokens}/{self.input_tokens or '-'}/{self.output_tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What is left for memory after everything else in the request, in tokens (§7)."""

    available: int
    shared: int
    own: int


RESERVE_FRACTION = 0.05
"""The safety reserve R as a part of the window."""

OUTPUT_TOKENS_MAX = 32_000
"""The host asks for at most this much output, whatever the model allows."""

ANSWER_TOKENS_MAX = 8_192
"""How long an answer may be without making the host compact its own transcript."""


def usable_tokens(window: Window) -> int:
    """W − O − R: what instructions, tools, the live turn and memory may fill together.

    An input limit of its own binds as well, less what the host reserves before it compacts. The
    host compacts once request and answer reach W − O, and it would compact everything that memory
    has left out, so that room for an answer is kept below that mark too.
    """
    output = min(window.output_tokens, OUTPUT_TOKENS_MAX)
    usable = window.context_tokens - output
    if window.input_tokens is not None:
        usable = min(usable, window.input_tokens - min(20_000, output))
    answer = min(output, ANSWER_TOKENS_MAX, max(0, usable) // 8)
    return max(0, min(int(usable * (1 - RESERVE_FRACTION)), usable - answer))


def divide(
    available: int,
    *,
    shared_need: int,
    own_need: int,
    shared_part: float,
    shared_least: int = 0,
    own_least: int = 0,
) -> Budget:
    """Share ``available`` tokens; what one side does not need moves to the other (§7).

    Each need is what that side would take if it could have everything, and each ``least`` what its
    coarsest cover takes: the initial parts give way to it as long as there is room for both.
    """
    shared_initial = int(available * shared_part)
    own_initial = available - shared_initial
    shared = min(shared_need, max(shared_initial, available - min(own_need, own_initial)))
    shared = min(max(shared, shared_least), max(shared_initial, available - own_least))
    own = min(own_need, available - shared)
    return Budget(available=available, shared=shared, own=own)


def calibrate(factor: float, *, estimated: int, reported: int) -> float:
    """The next calibration factor from one request's estimated and reported input tokens.

    An under-count is believed at once, an over-count slowly; the factor stays in [0.5, 4].
    """
    if estimated <= 0 or reported <= 0:
        return factor
    seen = reported / estimated * factor
    moved = seen if seen > factor else factor + (seen - factor) * 0.2
    return min(4.0, max(0.5, moved))
