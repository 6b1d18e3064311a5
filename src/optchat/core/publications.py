"""Completed turns as leaves of the shared tree (§5)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from optchat.core.records import Outcome
from optchat.core.tree import SessionTree
from optchat.refs import Csn, ScopeId, SessionId, Span, TurnId


class CoverPart(msgspec.Struct, frozen=True, gc=False):
    """One session node of a publication's source cover, in the tree that owns it."""

    tree: SessionTree
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A finished turn as the scope sees it; unique on (scope, session, generation, turn) (§5).

    ``cover`` is an ordered, disjoint set of session nodes over exactly
    ``[start_seq, end_seq_exclusive)``. ``died`` is set when the publication is retired: its number
    stays taken and its leaf becomes a contentless tombstone, so that ranges stay whole.
    ``title`` is the session's at the time, so that a snapshot does not see a later one.
    """

    scope_id: ScopeId
    seq: int
    session_id: SessionId
    generation: int
    turn_id: TurnId
    start_seq: int
    end_seq_exclusive: int
    outcome: Outcome
    opened_ms: int
    completed_ms: int
    published_ms: int
    cover: tuple[CoverPart, ...]
    born: Csn
    died: Csn | None = None
    title: str = ""

    def seen_at(self, csn: Csn) -> bool:
        return self.born <= csn and (self.died is None or csn < self.died)
