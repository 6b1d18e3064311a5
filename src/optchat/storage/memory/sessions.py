"""Projects, scopes, sessions and generations in dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from optchat.core.records import Generation, Session
from optchat.core.scopes import Project, Scope
from optchat.core.tree import SessionTree
from optchat.errors import Conflict
from optchat.refs import ProjectId, ScopeId, SessionId
from optchat.storage.memory.state import Changes


class MemorySessions:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def project(self, host: str, host_key: str) -> Project | None:
        return next(
            (p for p in self._tables.projects.values() if (p.host, p.host_key) == (host, host_key)),
            None,
        )

    def projects(self) -> tuple[Project, ...]:
        return tuple(sorted(self._tables.projects.values(), key=lambda p: p.project_id))

    def put_project(self, project: Project) -> None:
        other = self.project(project.host, project.host_key)
        if other is not None and other.project_id != project.project_id:
            raise Conflict("another project has that host key; the stored one stands.")
        self._changes.put(self._tables.projects, project.project_id, project)

    def scope(self, scope_id: ScopeId) -> Scope | None:
        return self._tables.scopes.get(scope_id)

    def scopes(self) -> tuple[Scope, ...]:
        return tuple(sorted(self._tables.scopes.values(), key=lambda s: s.scope_id))

    def put_scope(self, scope: Scope) -> None:
        known = self._tables.scopes.get(scope.scope_id, scope)
        grown = replace(
            scope,
            publications=max(known.publications, scope.publications),
            sessions=max(known.sessions, scope.sessions),
        )
        self._changes.put(self._tables.scopes, scope.scope_id, grown)

    def session(self, session_id: SessionId) -> Session | None:
        return self._tables.sessions.get(session_id)

    def session_of_host(self, host: str, host_session: str) -> Session | None:
        return next(
            (
                s
                for s in self._tables.sessions.values()
                if (s.host, s.host_session) == (host, host_session)
            ),
            None,
        )

    def session_numbered(self, scope_id: ScopeId, number: int) -> Session | None:
        named = (
            session_id
            for (of, session_id), given in self._tables.members.items()
            if (of, given) == (scope_id, number)
        )
        session_id = next(named, None)
        return None if session_id is None else self.session_in(scope_id, session_id)

    def session_called(self, scope_id: ScopeId, host_session: str) -> Session | None:
        named = (
            (number, session_id)
            for (of, session_id), number in self._tables.members.items()
            if of == scope_id and self._tables.sessions[session_id].host_session == host_session
        )
        found = min(named, default=None)
        return None if found is None else self.session_in(scope_id, found[1])

    def session_in(self, scope_id: ScopeId, session_id: SessionId) -> Session | None:
        session = self._tables.sessions.get(session_id)
        number = self._tables.members.get((scope_id, session_id))
        if session is None or number is None:
            return None
        return replace(session, scope_id=scope_id, number=number)

    def sessions(self, scope_id: ScopeId) -> tuple[Session, ...]:
        found = (s for s in self._tables.sessions.values() if s.scope_id == scope_id)
        return tuple(sorted(found, key=lambda s: s.number))

    def children(self, host: str, host_session: str) -> tuple[Session, ...]:
        found = (
            s
            for s in self._tables.sessions.values()
            if (s.host, s.parent_host_session) == (host, host_session)
        )
        return tuple(sorted(found, key=lambda s: (s.created_ms, s.session_id)))

    def scopes_of(self, session_id: SessionId) -> tuple[ScopeId, ...]:
        return tuple(sorted(of for of, member in self._tables.members if member == session_id))

    def put_session(self, session: Session) -> None:
        for other in (
            self.session_of_host(session.host, session.host_session),
            self.session_numbered(session.scope_id, session.number),
        ):
            if other is not None and other.session_id != session.session_id:
                raise Conflict("another session has that host id or number; it stands.")
        self._changes.put(self._tables.sessions, session.session_id, session)
        self._changes.put(
            self._tables.members, (session.scope_id, session.session_id), session.number
        )

    def leave_scope(self, scope_id: ScopeId, session_id: SessionId) -> None:
        self._changes.drop(self._tables.members, (scope_id, session_id))

    def generation(self, session_id: SessionId, number: int) -> Generation | None:
        return self._tables.generations.get(SessionTree(session_id, number))

    def put_generation(self, generation: Generation) -> None:
        known = self._tables.generations.get(generation.tree, generation)
        grown = replace(generation, length=max(known.length, generation.length))
        self._changes.put(self._tables.generations, generation.tree, grown)

    def generations(self, session_id: SessionId) -> tuple[Generation, ...]:
        return self._generations(lambda g: g.session_id == session_id)

    def derived(self, tree: SessionTree) -> tuple[Generation, ...]:
        return self._generations(lambda g: g.base == tree)

    def of_project(self, project_id: ProjectId) -> tuple[Session, ...]:
        found = (s for s in self._tables.sessions.values() if s.project_id == project_id)
        return tuple(sorted(found, key=lambda s: s.session_id))

    def of_host(self, host: str) -> tuple[Session, ...]:
        found = (s for s in self._tables.sessions.values() if s.host == host)
        return tuple(sorted(found, key=lambda s: s.session_id))

    def remove_session(self, session_id: SessionId) -> None:
        for generation in self.generations(session_id):
            self._changes.drop(self._tables.generations, generation.tree)
        for scope_id in self.scopes_of(session_id):
            self._changes.drop(self._tables.members, (scope_id, session_id))
        self._changes.drop(self._tables.sessions, session_id)

    def remove_project(self, project_id: ProjectId) -> None:
        self._changes.drop(self._tables.projects, project_id)

    def remove_scope(self, scope_id: ScopeId) -> None:
        self._changes.drop(self._tables.scopes, scope_id)

    def _generations(self, is_wanted: Callable[[Generation], bool]) -> tuple[Generation, ...]:
        found = (g for g in self._tables.generations.values() if is_wanted(g))
        return tuple(sorted(found, key=lambda g: (g.session_id, g.number)))
