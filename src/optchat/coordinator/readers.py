"""Who reads: an asking turn by its snapshot, a person by the scope or session named (§8, §11)."""

from __future__ import annotations

import re

from optchat.core.records import Session
from optchat.core.scopes import Scope, scope_of
from optchat.core.snapshots import Visibility, pinned
from optchat.engine.deps import Deps
from optchat.engine.sessions import own_lineage, session_of
from optchat.errors import NotFound, SnapshotExpired
from optchat.refs import Csn, ScopeId, SessionId
from optchat.storage.ports import Tx
from optchat.wire import ShareRequest, ToolRequest


def visibility(tx: Tx, deps: Deps, request: ToolRequest) -> Visibility:
    """The pinned snapshot of the asking turn, or the newest one for a person."""
    if request.session is not None:
        session = tx.sessions.session_of_host(request.host or "", request.session)
        if session is None:
            raise NotFound(
                "this conversation is not known to optchat yet; nothing was read.",
                hint="ask again in the next turn",
            )
        turn = tx.turns.last_pinned(session.session_id, session.generation)
        if turn is None or turn.pin is None or turn.pin.scope_id != session.scope_id:
            raise SnapshotExpired(
                "this turn has no memory snapshot; nothing was read.",
                hint="the next request of this conversation takes one",
            )
        own = own_lineage(tx, session)
        return pinned(turn.pin, session.session_id, own, turn.folded_end)
    return newest(tx, chosen_scope(tx, deps, request.scope, request.directory))


def newest(tx: Tx, scope: Scope) -> Visibility:
    """The newest state of a scope, for a reader that is no session."""
    return Visibility(
        scope_id=ScopeId(scope.scope_id),
        csn=Csn(tx.meta.csn()),
        publication_end=scope.publications,
        policy_revision=scope.policy_revision,
        retention_epoch=scope.retention_epoch,
    )


def chosen_scope(tx: Tx, deps: Deps, scope: str | None, directory: str | None) -> Scope:
    """The scope that a person names, by id, name or a directory inside it."""
    if scope is not None:
        for found in tx.sessions.scopes():
            if scope in (found.scope_id, found.name):
                return found
        raise NotFound(f"there is no scope {scope[:80]!r}.", hint="optchat status")
    where = directory or ""
    rules = deps.config.sharing.rules()
    inside = [
        p
        for p in tx.sessions.projects()
        if where == p.directory or where.startswith(p.directory.rstrip("/") + "/")
    ]
    for project in sorted(inside, key=lambda p: -len(p.directory)):
        scope_id = scope_of(
            rules, session_id=SessionId(""), project_id=project.project_id, directory=where
        )
        found = tx.sessions.scope(scope_id)
        if found is not None:
            return found
    raise NotFound(
        f"no conversation of {where[:200]!r} is in the memory yet.",
        hint="start one there, or name a scope from: optchat status",
    )


def named_session(tx: Tx, deps: Deps, request: ShareRequest) -> Session:
    """A session by the host's id, or as s12 of the scope that is in question."""
    numbered = re.fullmatch(r"s(\d{1,9})", request.session, re.ASCII)
    if numbered is None:
        return session_of(tx, request.session)
    scope = chosen_scope(tx, deps, request.scope, request.directory)
    found = tx.sessions.session_numbered(scope.scope_id, int(numbered[1]))
    session = tx.sessions.session(found.session_id) if found is not None else None
    if session is None:
        raise NotFound(
            f"there is no session {request.session} in {scope.name}; nothing was changed.",
            hint="optchat status",
        )
    return session
