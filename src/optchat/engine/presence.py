"""Sessions that a host no longer has: found by comparing, never learnt from events (§12).

Nothing is forgotten for being absent from a list, which may be partial, failed or of another place:
absence only raises the question, and the host's own word about each session answers it.
"""

from __future__ import annotations

from optchat.core.records import Session
from optchat.engine.deps import Deps
from optchat.engine.forget import forget_sessions
from optchat.storage.ports import Tx
from optchat.wire import PresentRequest


def absent(tx: Tx, request: PresentRequest) -> list[Session]:
    """The sessions of that host, store and project that the request does not list."""
    project = tx.sessions.project(request.host, request.project_key)
    if project is None or not request.store:
        return []
    listed = set(request.ids)
    return [
        session
        for session in tx.sessions.of_project(project.project_id)
        if (session.host, session.host_store) == (request.host, request.store)
        and session.host_session not in listed
    ]


def forget_gone(tx: Tx, deps: Deps, request: PresentRequest) -> int:
    """Forget those of the absent sessions that the host says it has not; how many that were."""
    said = set(request.gone)
    gone = [session for session in absent(tx, request) if session.host_session in said]
    for session in gone:
        if tx.sessions.session(session.session_id) is not None:  # not gone with its parent
            forget_sessions(tx, deps, [session], f"session s{session.number}, gone from the host")
    return len(gone)
