"""Where a running process takes its ids from."""

from __future__ import annotations

import itertools
from string import ascii_lowercase, digits

_DIGITS = digits + ascii_lowercase


class CountedIds:
    """An epoch of the store and a count: short, and in order of their making.

    No two are alike in a store as long as each process has raised the epoch for itself. A number is
    written in base 36 behind the count of its digits, so that nothing need part the two: `1528c`.
    """

    def __init__(self, epoch: int) -> None:
        self._prefix = _counted(epoch)
        self._numbers = itertools.count()

    def new_id(self) -> str:
        return self._prefix + _counted(next(self._numbers))


def _counted(number: int) -> str:
    written = ""
    while number or not written:
        number, digit = divmod(number, 36)
        written = _DIGITS[digit] + written
    return _DIGITS[len(written)] + written
