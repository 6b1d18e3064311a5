"""Dyadic summary trees over an append-only sequence (§4, §5).

A session generation and a scope's publications are both such a sequence, so ranges, covers and
nodes are written once, here.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from optchat.refs import Csn, ScopeId, SessionId, Span


class NodeKind(StrEnum):
    """How the text of a node came to be."""

    VERBATIM = "verbatim"  # the source itself, which fitted
    SUMMARY = "summary"  # made by a summary model
    FALLBACK = "fallback"  # says only that the range needs inspection; never counts as a summary


class SessionTree(msgspec.Struct, frozen=True, gc=False):
    """The tree over one session generation's own records."""

    session_id: SessionId
    generation: int

    def __str__(self) -> str:
        return f"g:{self.session_id}:{self.generation}"


class ScopeTree(msgspec.Struct, frozen=True, gc=False):
    """The tree over one scope's publications."""

    scope_id: ScopeId

    def __str__(self) -> str:
        return f"p:{self.scope_id}"


Tree = SessionTree | ScopeTree


def parse_tree(key: str) -> Tree:
    """The inverse of ``str(tree)``, for stored keys only."""
    kind, _, rest = key.partition(":")
    if kind == "p":
        return ScopeTree(ScopeId(rest))
    session_id, _, generation = rest.rpartition(":")
    return SessionTree(SessionId(session_id), int(generation))


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One immutable node revision: a line of text that stands for ``span`` of ``tree``.

    ``label`` is the structured part of the line (kind, outcome, session, time), rendered
    mechanically and never left to prose. ``input_hash`` identifies what the text was made from.
    ``born`` and ``died`` are the commits between which a snapshot sees it. ``evidence`` names the
    records whose originals or lines the model had before it, as ``start..end_exclusive``; empty for
    what no model made.
    """

    tree: Tree
    span: Span
    revision: int
    kind: NodeKind
    label: str
    text: str
    input_hash: str
    model: str
    prompt_version: str
    born: Csn
    died: Csn | None = None
    evidence: str = ""

    @property
    def text_bytes(self) -> int:
        return len(self.text.encode())

    def seen_at(self, csn: Csn) -> bool:
        """Whether a snapshot at ``csn`` sees this revision."""
        return self.born <= csn and (self.died is None or csn < self.died)


def cover(start: int, end_exclusive: int) -> tuple[Span, ...]:
    """Split a half-open range into aligned power-of-two spans, in order.

    The spans are disjoint and their union is exactly ``[start, end_exclusive)``; there are at most
    ``2*log2(n)`` of them.

    Raises:
        ValueError: if ``start < 0`` or ``end_exclusive < start``.

    §5 (source covers).
    """
    if start < 0 or end_exclusive < start:
        raise ValueError(f"not a range: {start}..{end_exclusive}")
    spans: list[Span] = []
    while start < end_exclusive:
        aligned = start & -start or 1 << end_exclusive.bit_length()
        room = 1 << ((end_exclusive - start).bit_length() - 1)
        count = min(aligned, room)
        spans.append(Span(start, count))
        start += count
    return tuple(spans)


def ancestors(span: Span, length: int) -> tuple[Span, ...]:
    """The complete spans above ``span`` in a sequence of ``length``, nearest first."""
    found: list[Span] = []
    above = span.parent
    while above.end_exclusive <= length:
        found.append(above)
        above = above.parent
    return tuple(found)
