"""Finding or making the session, project and scope that a host speaks of (§3, §11)."""

from __future__ import annotations

from dataclasses import replace

from optchat.core.records import Generation, Lineage, Session, Turn, extend
from optchat.core.scopes import Project, Scope, isolated_scope, scope_of
from optchat.core.tree import SessionTree
from optchat.engine.deps import Deps
from optchat.engine.originals import without_secrets
from optchat.errors import IntegrityError, NotFound
from optchat.refs import ProjectId, ScopeId, SessionId
from optchat.storage.ports import Tx
from optchat.wire import SessionInfo


def begin_session(
    tx: Tx, deps: Deps, info: SessionInfo, *, observed_ms: int, mark: str, as_history: bool
) -> Session:
    """A session for what the host says, made with its project, scope and generation 0.

    ``mark``: how far its host's store was read; ``as_history``: its nodes are left unmade.
    """
    project = _ensure_project(tx, deps, info)
    session_id = SessionId(deps.ids.new_id())
    new = Session(
        session_id=session_id,
        host=info.host,
        host_session=info.id,
        scope_id=isolated_scope(session_id),
        number=0,
        project_id=project.project_id,
        generation=0,
        title=without_secrets(info.title, mask=deps.config.privacy.mask),
        directory=info.directory,
        created_ms=info.created_ms or deps.clock.now_ms(),
        updated_ms=info.updated_ms or deps.clock.now_ms(),
        parent_host_session=info.parent_id,
        archive_changes=(tx.meta.next_csn(),) if info.archived else (),
        observed_ms=observed_ms,
        host_store=info.store,
        host_mark=mark,
    )
    session = _enter_new(tx, new, scope_for(tx, deps, new))
    unmade_from = 0 if as_history else None
    tx.sessions.put_generation(Generation(session_id=session_id, number=0, unmade_from=unmade_from))
    return session


def follow(tx: Tx, deps: Deps, known: Session, info: SessionInfo) -> Session:
    """The session with the host's title, directory, project and archive state.

    Its scope follows at its next turn.
    """
    changes = known.archive_changes
    if info.archived != known.archived:
        changes = (*changes, tx.meta.next_csn())
    current = replace(
        known,
        project_id=_followed_project(tx, deps, known, info).project_id,
        title=without_secrets(info.title, mask=deps.config.privacy.mask) or known.title,
        directory=info.directory,
        archive_changes=changes,
        updated_ms=max(known.updated_ms, info.updated_ms),
        host_store=info.store or known.host_store,
    )
    if current != known:
        tx.sessions.put_session(current)
    return current


def scope_for(tx: Tx, deps: Deps, session: Session) -> ScopeId:
    """Where a session belongs: by its own choice, else by the rules; a subagent with its parent."""
    if session.parent_host_session is not None:
        parent = tx.sessions.session_of_host(session.host, session.parent_host_session)
        shared = parent is not None and not parent.isolated and parent.sharing != "isolated"
        return parent.scope_id if parent and shared else isolated_scope(session.session_id)
    return scope_of(
        deps.config.sharing.rules(),
        session_id=session.session_id,
        project_id=session.project_id,
        directory=session.directory,
        chosen=session.sharing,
    )


def enter(tx: Tx, session: Session, scope_id: ScopeId) -> Session:
    """The session in a scope, under the number that it has there, or else the next one."""
    known = tx.sessions.session_in(scope_id, session.session_id)
    if known is None:
        return _enter_new(tx, session, scope_id)
    moved = replace(session, scope_id=scope_id, number=known.number)
    tx.sessions.put_session(moved)
    return moved


def _enter_new(tx: Tx, session: Session, scope_id: ScopeId) -> Session:
    """The session in a scope that has not known it yet."""
    scope = _ensure_scope(tx, scope_id, session.project_id)
    number = scope.sessions + 1
    tx.sessions.put_scope(replace(scope, sessions=number))
    moved = replace(session, scope_id=scope_id, number=number)
    tx.sessions.put_session(moved)
    return moved


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


def _followed_project(tx: Tx, deps: Deps, known: Session, info: SessionInfo) -> Project:
    """The project that a session is in now.

    When its host calls the same folder by a key that is new, the project has been renamed (it has
    become a repository, or its repository has another origin): it keeps its id, and so its memory.
    """
    is_new = tx.sessions.project(info.host, info.project_key) is None
    if is_new and known.directory == info.directory:
        before = next(p for p in tx.sessions.projects() if p.project_id == known.project_id)
        renamed = replace(before, host_key=info.project_key, directory=info.project_directory)
        tx.sessions.put_project(renamed)
        return renamed
    return _ensure_project(tx, deps, info)


def _ensure_scope(tx: Tx, scope_id: ScopeId, project_id: ProjectId) -> Scope:
    known = tx.sessions.scope(scope_id)
    if known is not None:
        return known
    kind, _, shown = scope_id.partition(":")
    if kind == "project":
        shown = next(p.directory for p in tx.sessions.projects() if p.project_id == project_id)
    scope = Scope(scope_id=scope_id, name="isolated" if kind == "isolated" else shown)
    tx.sessions.put_scope(scope)
    return scope


def session_of(tx: Tx, name: str) -> Session:
    """The one session of that host id, whatever its host.

    Raises:
        NotFound: there is none, or more than one.
    """
    found = [
        session
        for scope in tx.sessions.scopes()
        for session in tx.sessions.sessions(scope.scope_id)
        if session.host_session == name
    ]
    if len(found) != 1:
        raise NotFound(f"there is no session {name[:80]!r}; nothing was changed.")
    return found[0]


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


def open_turn(tx: Tx, session: Session) -> Turn | None:
    """The turn that is going on in the session's current generation, if any."""
    return tx.turns.open(session.session_id, session.generation)
