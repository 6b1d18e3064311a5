"""Finding or making the session, project and scope that a host speaks of (§3, §11)."""

from __future__ import annotations

from dataclasses import replace

from optchat.core.records import Generation, Lineage, Session, extend
from optchat.core.scopes import Project, Scope, is_isolated, scope_of
from optchat.core.tree import SessionTree
from optchat.engine.deps import Deps
from optchat.errors import IntegrityError
from optchat.refs import ProjectId, ScopeId, SessionId
from optchat.storage.ports import Tx
from optchat.wire import SessionInfo


def ensure_session(tx: Tx, deps: Deps, info: SessionInfo) -> Session:
    """The session for what the host says, made with its project, scope and generation 0 if new.

    Title, directory and archive state follow the host; the identity never does.
    """
    known = tx.sessions.session_of_host(info.host, info.id)
    if known is not None:
        current = replace(
            known,
            title=info.title or known.title,
            directory=info.directory,
            archived=info.archived,
            updated_ms=max(known.updated_ms, info.updated_ms),
            host_store=info.store or known.host_store,
        )
        if current != known:
            tx.sessions.put_session(current)
        return current
    project = _ensure_project(tx, deps, info)
    session_id = SessionId(deps.ids.new_id())
    rules = deps.config.sharing.rules()
    scope_id = scope_of(rules, session_id=session_id, project=project, directory=info.directory)
    scope = _ensure_scope(tx, scope_id, project)
    tx.sessions.put_scope(replace(scope, sessions=scope.sessions + 1))
    session = Session(
        session_id=session_id,
        host=info.host,
        host_session=info.id,
        scope_id=scope_id,
        number=scope.sessions + 1,
        project_id=project.project_id,
        generation=0,
        title=info.title,
        directory=info.directory,
        created_ms=info.created_ms or deps.clock.now_ms(),
        updated_ms=info.updated_ms or deps.clock.now_ms(),
        parent_host_session=info.parent_id,
        archived=info.archived,
        isolated=is_isolated(scope_id),
        host_store=info.store,
    )
    tx.sessions.put_session(session)
    tx.sessions.put_generation(Generation(session_id=session_id, number=0))
    return session


def _ensure_project(tx: Tx, deps: Deps, info: SessionInfo) -> Project:
    known = tx.sessions.project(info.host, info.project_key)
    if known is not None:
        return known
    project = Project(
        project_id=ProjectId(deps.ids.new_id()),
        host=info.host,
        host_key=info.project_key,
        directory=info.project_directory,
    )
    tx.sessions.put_project(project)
    return project


def _ensure_scope(tx: Tx, scope_id: ScopeId, project: Project) -> Scope:
    known = tx.sessions.scope(scope_id)
    if known is not None:
        return known
    kind, _, name = scope_id.partition(":")
    shown = project.directory if kind == "project" else name if kind == "profile" else "isolated"
    scope = Scope(scope_id=scope_id, name=shown)
    tx.sessions.put_scope(scope)
    return scope


def require_scope(tx: Tx, scope_id: ScopeId) -> Scope:
    """The scope row that must be there because something refers to it."""
    scope = tx.sessions.scope(scope_id)
    if scope is None:
        raise IntegrityError(f"the scope {scope_id} is referred to but not there.")
    return scope


def generation_of(tx: Tx, tree: SessionTree) -> Generation:
    """The generation row of a tree that must be there."""
    generation = tx.sessions.generation(tree.session_id, tree.generation)
    if generation is None:
        raise IntegrityError(f"the generation {tree} is referred to but not there.")
    return generation


def lineage(tx: Tx, tree: SessionTree) -> Lineage:
    """The whole history of a generation, its bases included (§12)."""
    generation = generation_of(tx, tree)
    base = lineage(tx, generation.base) if generation.base is not None else None
    return extend(base, generation)


def own_lineage(tx: Tx, session: Session) -> Lineage:
    """The history of a session's current generation."""
    return lineage(tx, SessionTree(session.session_id, session.generation))
