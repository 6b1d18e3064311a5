"""References: short readable names of publications, session ranges and records (§4, §5).

Grammar, frozen::

    pub:24        one publication of the caller's scope
    pub:24+8      a node of its tree: publications 24..31
    s12:0:71      one record: session 12 of the scope, generation 0, record 71
    s12:0:64+8    a node of that generation's tree: records 64..71

A ref identifies and never authorises: resolving one always takes a ``Visibility``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import NewType

import msgspec

from optchat.errors import BadInput

SessionId = NewType("SessionId", str)
ScopeId = NewType("ScopeId", str)
ProjectId = NewType("ProjectId", str)
TurnId = NewType("TurnId", str)
FoldId = NewType("FoldId", str)
BlobHash = NewType("BlobHash", str)
Csn = NewType("Csn", int)
"""A commit sequence number: the store's own clock of visible changes."""


def blob_hash(payload: bytes) -> BlobHash:
    """The name of a payload: the sha256 of its bytes."""
    return BlobHash(hashlib.sha256(payload).hexdigest())


_REF = re.compile(
    r"(?:pub:(?P<pub>\d{1,15})|s(?P<session>\d{1,9}):(?P<gen>\d{1,9}):(?P<seq>\d{1,15}))"
    r"(?:\+(?P<count>\d{1,15}))?",
    re.ASCII,
)


class Span(msgspec.Struct, frozen=True, order=True, gc=False):
    """An aligned dyadic range: ``count`` is a power of two and divides ``start`` (§4)."""

    start: int
    count: int

    def __post_init__(self) -> None:
        if self.count < 1 or self.count & (self.count - 1) or self.start < 0:
            raise ValueError(f"not a dyadic range: {self.start}+{self.count}")
        if self.start % self.count:
            raise ValueError(f"not aligned: {self.start}+{self.count}")

    @property
    def end_exclusive(self) -> int:
        return self.start + self.count

    @property
    def parent(self) -> Span:
        count = self.count * 2
        return Span(self.start // count * count, count)

    @property
    def sibling(self) -> Span:
        return Span(self.start ^ self.count, self.count)

    @property
    def children(self) -> tuple[Span, Span]:
        if self.count == 1:
            raise ValueError("a leaf has no children")
        half = self.count // 2
        return Span(self.start, half), Span(self.start + half, half)

    def __str__(self) -> str:
        return f"{self.start}" if self.count == 1 else f"{self.start}+{self.count}"


@dataclass(frozen=True, slots=True)
class PublicationRef:
    """A publication, or a node over several, of the caller's scope."""

    span: Span

    def __str__(self) -> str:
        return f"pub:{self.span}"


@dataclass(frozen=True, slots=True)
class SessionRef:
    """A record, or a node over several, of one session generation in the caller's scope."""

    number: int
    generation: int
    span: Span

    def __str__(self) -> str:
        return f"s{self.number}:{self.generation}:{self.span}"


Ref = PublicationRef | SessionRef


def parse_ref(text: str) -> Ref:
    """Parse a ref as a model or a person wrote it; surrounding space and backticks are forgiven.

    Raises:
        BadInput: if it is not of the grammar, its count not a power of two, or its start unaligned.
    """
    match = _REF.fullmatch(text.strip().strip("`").strip())
    if match is None:
        raise BadInput(
            f"{text[:80]!r} is not a reference; nothing was read.",
            hint="use a ref as it is shown, such as pub:24+8, s12:0:64+8 or s12:0:71",
        )
    try:
        if match["pub"] is not None:
            return PublicationRef(Span(int(match["pub"]), int(match["count"] or 1)))
        span = Span(int(match["seq"]), int(match["count"] or 1))
        return SessionRef(int(match["session"]), int(match["gen"]), span)
    except ValueError as error:
        raise BadInput(
            f"{text[:80]!r} is not a reference: {error}; nothing was read.",
            hint="a range is a power of two long and starts at a multiple of its length",
        ) from None
