"""Projects, scopes, sessions and generations as rows."""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

import msgspec

from optchat.core.records import Generation, Session
from optchat.core.scopes import Project, Scope
from optchat.core.tree import SessionTree
from optchat.refs import Csn, ProjectId, ScopeId, SessionId
from optchat.storage.sqlite.connection import Row, Sql

_PROJECT = "project_id, host, host_key, directory"
_SCOPE = "scope_id, name, policy_revision, retention_epoch, publications, sessions"
_GENERATION = (
    "session_id, number, base_session_id, base_generation, inherited, length, adopted, unmade_from"
)
SESSION_COLUMNS = (
    "s.session_id, s.host, s.host_session, m.scope_id, m.number, s.project_id, s.generation, "
    "s.title, s.directory, s.created_ms, s.updated_ms, s.parent_host_session, s.archive_changes, "
    "s.sharing, s.disabled, s.observed_ms, s.host_store, s.host_mark"
)
"""A session ``s`` under the number that its row ``m`` of member gives it."""

_IN_ITS_SCOPE = (
    f"select {SESSION_COLUMNS} from session as s "
    "join member as m on m.session_id = s.session_id and m.scope_id = s.scope_id"
)
_IN_A_SCOPE = (
    f"select {SESSION_COLUMNS} from member as m join session as s on s.session_id = m.session_id"
)
_decode_changes = msgspec.json.Decoder(tuple[int, ...]).decode


class SqliteSessions:
    """Uniqueness of host keys and numbers is the tables' own."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def project(self, host: str, host_key: str) -> Project | None:
        row = self._sql.one(
            f"select {_PROJECT} from project where host = ? and host_key = ?", (host, host_key)
        )
        return None if row is None else _project(row)

    def projects(self) -> tuple[Project, ...]:
        rows = self._sql.all(f"select {_PROJECT} from project order by project_id")
        return tuple(map(_project, rows))

    def put_project(self, project: Project) -> None:
        self._sql.run(
            f"insert into project ({_PROJECT}) values (?, ?, ?, ?) "
            "on conflict (project_id) do update set "
            "host = excluded.host, host_key = excluded.host_key, directory = excluded.directory",
            (project.project_id, project.host, project.host_key, project.directory),
        )

    def scope(self, scope_id: ScopeId) -> Scope | None:
        row = self._sql.one(f"select {_SCOPE} from scope where scope_id = ?", (scope_id,))
        return None if row is None else _scope(row)

    def scopes(self) -> tuple[Scope, ...]:
        rows = self._sql.all(f"select {_SCOPE} from scope order by scope_id")
        return tuple(map(_scope, rows))

    def put_scope(self, scope: Scope) -> None:
        self._sql.run(
            f"insert into scope ({_SCOPE}) values (?, ?, ?, ?, ?, ?) "
            "on conflict (scope_id) do update set name = excluded.name, "
            "policy_revision = excluded.policy_revision, "
            "retention_epoch = excluded.retention_epoch, "
            "publications = max(publications, excluded.publications), "
            "sessions = max(sessions, excluded.sessions)",
            (
                scope.scope_id,
                scope.name,
                scope.policy_revision,
                scope.retention_epoch,
                scope.publications,
                scope.sessions,
            ),
        )

    def session(self, session_id: SessionId) -> Session | None:
        return self._session(f"{_IN_ITS_SCOPE} where s.session_id = ?", (session_id,))

    def session_of_host(self, host: str, host_session: str) -> Session | None:
        return self._session(
            f"{_IN_ITS_SCOPE} where s.host = ? and s.host_session = ?", (host, host_session)
        )

    def session_numbered(self, scope_id: ScopeId, number: int) -> Session | None:
        return self._session(
            f"{_IN_A_SCOPE} where m.scope_id = ? and m.number = ?", (scope_id, number)
        )

    def session_in(self, scope_id: ScopeId, session_id: SessionId) -> Session | None:
        return self._session(
            f"{_IN_A_SCOPE} where m.session_id = ? and m.scope_id = ?", (session_id, scope_id)
        )

    def session_called(self, scope_id: ScopeId, host_session: str) -> Session | None:
        return self._session(
            f"{_IN_A_SCOPE} where m.scope_id = ? and s.host_session = ? order by m.number limit 1",
            (scope_id, host_session),
        )

    def sessions(self, scope_id: ScopeId) -> tuple[Session, ...]:
        rows = self._sql.all(
            f"{_IN_A_SCOPE} where m.scope_id = ?1 and s.scope_id = ?1 order by m.number",
            (scope_id,),
        )
        return tuple(map(session_of_row, rows))

    def children(self, host: str, host_session: str) -> tuple[Session, ...]:
        rows = self._sql.all(
            f"{_IN_ITS_SCOPE} where s.host = ? and s.parent_host_session = ? "
            "order by s.created_ms, s.session_id",
            (host, host_session),
        )
        return tuple(map(session_of_row, rows))

    def scopes_of(self, session_id: SessionId) -> tuple[ScopeId, ...]:
        rows = self._sql.all(
            "select scope_id from member where session_id = ? order by scope_id", (session_id,)
        )
        return tuple(ScopeId(row[0]) for row in rows)

    def put_session(self, session: Session) -> None:
        self._sql.run(
            "insert into session (session_id, host, host_session, scope_id, project_id, "
            "generation, title, directory, created_ms, updated_ms, parent_host_session, "
            "archive_changes, sharing, disabled, observed_ms, host_store, host_mark) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "on conflict (session_id) do update set host = excluded.host, "
            "host_session = excluded.host_session, scope_id = excluded.scope_id, "
            "project_id = excluded.project_id, "
            "generation = excluded.generation, title = excluded.title, "
            "directory = excluded.directory, created_ms = excluded.created_ms, "
            "updated_ms = excluded.updated_ms, "
            "parent_host_session = excluded.parent_host_session, "
            "archive_changes = excluded.archive_changes, sharing = excluded.sharing, "
            "disabled = excluded.disabled, observed_ms = excluded.observed_ms, "
            "host_store = excluded.host_store, host_mark = excluded.host_mark",
            (
                session.session_id,
                session.host,
                session.host_session,
                session.scope_id,
                session.project_id,
                session.generation,
                session.title,
                session.directory,
                session.created_ms,
                session.updated_ms,
                session.parent_host_session,
                msgspec.json.encode(session.archive_changes).decode(),
                session.sharing,
                session.disabled,
                session.observed_ms,
                session.host_store,
                session.host_mark,
            ),
        )
        self._sql.run(
            "insert into member (scope_id, number, session_id) values (?, ?, ?) "
            "on conflict (session_id, scope_id) do update set number = excluded.number",
            (session.scope_id, session.number, session.session_id),
        )

    def leave_scope(self, scope_id: ScopeId, session_id: SessionId) -> None:
        self._sql.run(
            "delete from member where scope_id = ? and session_id = ?", (scope_id, session_id)
        )

    def generation(self, session_id: SessionId, number: int) -> Generation | None:
        found = self._generations("session_id = ? and number = ?", (session_id, number))
        return found[0] if found else None

    def generations(self, session_id: SessionId) -> tuple[Generation, ...]:
        return self._generations("session_id = ?", (session_id,))

    def derived(self, tree: SessionTree) -> tuple[Generation, ...]:
        return self._generations(
            "base_session_id = ? and base_generation = ?", (tree.session_id, tree.generation)
        )

    def of_project(self, project_id: ProjectId) -> tuple[Session, ...]:
        rows = self._sql.all(
            f"{_IN_ITS_SCOPE} where s.project_id = ? order by s.session_id", (project_id,)
        )
        return tuple(map(session_of_row, rows))

    def of_host(self, host: str) -> tuple[Session, ...]:
        rows = self._sql.all(f"{_IN_ITS_SCOPE} where s.host = ? order by s.session_id", (host,))
        return tuple(map(session_of_row, rows))

    def remove_session(self, session_id: SessionId) -> None:
        self._sql.run(
            "delete from place where generation_id in "
            "(select id from generation where session_id = ?)",
            (session_id,),
        )
        self._sql.run("delete from generation where session_id = ?", (session_id,))
        self._sql.run("delete from session where session_id = ?", (session_id,))

    def remove_project(self, project_id: ProjectId) -> None:
        self._sql.run("delete from project where project_id = ?", (project_id,))

    def remove_scope(self, scope_id: ScopeId) -> None:
        self._sql.run("delete from scope where scope_id = ?", (scope_id,))

    def put_generation(self, generation: Generation) -> None:
        base = generation.base
        self._sql.run(
            f"insert into generation ({_GENERATION}) "
            "values (?, ?, ?, ?, ?, ?, ?, ?) "
            "on conflict (session_id, number) do update set "
            "base_session_id = excluded.base_session_id, "
            "base_generation = excluded.base_generation, inherited = excluded.inherited, "
            "length = max(length, excluded.length), unmade_from = excluded.unmade_from",
            (
                generation.session_id,
                generation.number,
                None if base is None else base.session_id,
                None if base is None else base.generation,
                generation.inherited,
                generation.length,
                int(generation.adopted),
                generation.unmade_from,
            ),
        )

    def _generations(self, condition: str, args: tuple[str | int, ...]) -> tuple[Generation, ...]:
        rows = self._sql.all(
            f"select {_GENERATION} from generation where {condition} order by session_id, number",
            args,
        )
        return tuple(map(_generation, rows))

    def _session(self, statement: str, args: tuple[str | int, ...]) -> Session | None:
        row = self._sql.one(statement, args)
        return None if row is None else session_of_row(row)


def session_of_row(row: Row) -> Session:
    """A session from the columns ``SESSION_COLUMNS``."""
    return Session(
        session_id=row[0],
        host=row[1],
        host_session=row[2],
        scope_id=row[3],
        number=row[4],
        project_id=row[5],
        generation=row[6],
        title=row[7],
        directory=row[8],
        created_ms=row[9],
        updated_ms=row[10],
        parent_host_session=row[11],
        archive_changes=tuple(map(Csn, _decode_changes(row[12]))),
        sharing=row[13],
        disabled=row[14],
        observed_ms=row[15],
        host_store=row[16],
        host_mark=row[17],
    )


def _generation(row: Row) -> Generation:
    return Generation(
        session_id=SessionId(row[0]),
        number=row[1],
        base=None if row[2] is None else SessionTree(SessionId(row[2]), row[3]),
        inherited=row[4],
        length=row[5],
        adopted=bool(row[6]),
        unmade_from=row[7],
    )


def _project(row: Row) -> Project:
    return Project(project_id=row[0], host=row[1], host_key=row[2], directory=row[3])


def _scope(row: Row) -> Scope:
    return Scope(
        scope_id=row[0],
        name=row[1],
        policy_revision=row[2],
        retention_epoch=row[3],
        publications=row[4],
        sessions=row[5],
    )
