"""What keeps a forgotten session or message from coming back with a late event (§12, I8).

A host may still have what was forgotten here, and tell of it again at any time. A tombstone is the
hash of the host's id, which names it and holds no word of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from optchat.engine.nodes import digest
from optchat.storage.ports import Tx
from optchat.wire import SessionInfo

NO_DIGEST = ""
"""The digest of a forgotten message: no hash of its content is kept, so every content fits."""

FORGOTTEN = "this conversation was forgotten at a person's request and is not remembered"


def session_key(host: str, host_session: str) -> str:
    return digest("session", host, host_session)


def message_key(host: str, host_session: str, message_id: str) -> str:
    return digest("message", host, host_session, message_id)


def forgotten_messages(tx: Tx, info: SessionInfo, message_ids: Iterable[str]) -> frozenset[str]:
    """Those of a session's messages that were forgotten."""
    if not tx.removals.has_buried():
        return frozenset()
    keys = {message_key(info.host, info.id, message_id): message_id for message_id in message_ids}
    return frozenset(keys[key] for key in tx.removals.buried(keys))


def is_forgotten(tx: Tx, info: SessionInfo) -> bool:
    """Whether the host speaks of a session that was forgotten as a whole."""
    if not tx.removals.has_buried():
        return False
    if tx.sessions.session_of_host(info.host, info.id) is not None:
        return False
    return bool(tx.removals.buried((session_key(info.host, info.id),)))
