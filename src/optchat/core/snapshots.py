"""What a reader may see: the one ``Visibility`` that every read takes (§9, §11)."""

from __future__ import annotations

from dataclasses import dataclass

from optchat.core.records import Lineage, Pin
from optchat.core.tree import Node, ScopeTree
from optchat.refs import Csn, ScopeId, SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """A scope at a commit, and the reader's own history up to a boundary.

    Foreign records are visible through publications numbered below ``publication_end`` that the
    commit ``csn`` sees. ``own`` is the reader's lineage already clipped to its boundary; None for a
    reader that is no session, such as a person at the command line.
    """

    scope_id: ScopeId
    csn: Csn
    publication_end: int
    policy_revision: int
    retention_epoch: int
    session_id: SessionId | None = None
    own: Lineage | None = None

    @property
    def served(self) -> str:
        """The snapshot as it is shown, and what a cursor belongs to.

        Without the commit number: that counts all scopes, so it would tell of what others do (I4).
        """
        own = f" own<{self.own.length}" if self.own is not None else ""
        return f"pub<{self.publication_end}{own} epoch {self.retention_epoch}"


def pinned(pin: Pin, session_id: SessionId, lineage: Lineage, folded_end: int = 0) -> Visibility:
    """The visibility of a turn, from its pin and its session's lineage.

    ``folded_end`` is where the turn's own checkpoints end: what they tell can be opened (I1).
    """
    return Visibility(
        scope_id=pin.scope_id,
        csn=Csn(pin.csn),
        publication_end=pin.publication_end,
        policy_revision=pin.policy_revision,
        retention_epoch=pin.retention_epoch,
        session_id=session_id,
        own=lineage.clipped(max(pin.own_end, folded_end)),
    )


def sees_scope_node(visibility: Visibility, node: Node) -> bool:
    """Whether a node of the shared tree lies wholly inside the snapshot."""
    return (
        isinstance(node.tree, ScopeTree)
        and node.tree.scope_id == visibility.scope_id
        and node.span.end_exclusive <= visibility.publication_end
        and node.seen_at(visibility.csn)
    )
