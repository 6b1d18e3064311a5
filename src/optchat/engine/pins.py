"""The snapshot that a turn pins, and whether it still stands (§9, §12)."""

from __future__ import annotations

from optchat.core.records import Pin, Session, Turn
from optchat.core.scopes import Scope
from optchat.engine.sessions import require_scope
from optchat.storage.ports import Tx


def fresh_pin(tx: Tx, session: Session, turn: Turn) -> Pin:
    """The snapshot that a turn takes if it is admitted now."""
    scope = require_scope(tx, session.scope_id)
    return Pin(
        scope_id=scope.scope_id,
        csn=tx.meta.csn(),
        publication_end=0 if session.isolated else scope.publications,
        policy_revision=scope.policy_revision,
        retention_epoch=scope.retention_epoch,
        own_generation=session.generation,
        own_end=turn.start_seq,
    )


def is_valid(pin: Pin, scope: Scope, session: Session) -> bool:
    """Whether a snapshot still stands: same scope, policy, epoch and generation (§12)."""
    return (
        pin.scope_id == session.scope_id == scope.scope_id
        and pin.policy_revision == scope.policy_revision
        and pin.retention_epoch == scope.retention_epoch
        and pin.own_generation == session.generation
    )
