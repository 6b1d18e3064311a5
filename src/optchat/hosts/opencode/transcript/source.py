"""A host's history as something to read from, whatever form it is kept in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from optchat.errors import BadInput
from optchat.hosts.opencode.transcript.database import Database
from optchat.hosts.opencode.transcript.forks import find_origin
from optchat.hosts.opencode.transcript.mapping import map_messages
from optchat.hosts.opencode.transcript.messages import GLOBAL, HostMessage, HostSession
from optchat.hosts.opencode.transcript.tables import Tables
from optchat.hosts.opencode.transcript.tables2 import NewTables
from optchat.hosts.opencode.transcript.tree import Tree
from optchat.wire import SessionInfo, SyncRequest

HOST = "opencode"
SETTLED_MS = 3_600_000
"""A session that nothing was written to for so long is nobody's at the moment."""


class Source(Protocol):
    """One store of a host. ``name`` is the plugin's name for the place."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def is_at_rest(self) -> bool:
        """Whether no host was at work in it when it was opened."""
        ...

    def sessions(self) -> list[HostSession]:
        """All of them, oldest first."""
        ...

    def messages(self, session: HostSession) -> list[HostMessage]:
        """Those that are not gone back behind, with their parts, in order."""
        ...

    def ids(self, session: HostSession) -> list[str]:
        """Those of its messages that no one has gone back behind or into, in order."""
        ...

    def times(self, session_id: str, count: int) -> list[tuple[int, str]]:
        """When a session's first messages were made and whose they are."""
        ...

    def close(self) -> None: ...


def open_source(path: Path) -> Source:
    """What lies at ``path``.

    Raises:
        BadInput: there is nothing, or nothing that can be read.
    """
    if path.is_dir():
        inside = path / "storage"
        tree = inside if inside.is_dir() else path
        if (tree / "session").is_dir():
            return Tree(tree)
    if not path.is_file():
        raise BadInput(
            f"there is no store of OpenCode at {path}; nothing was read.",
            hint="optchat import opencode --db PATH (opencode db path names it)",
        )
    database = Database(path)
    forms: list[Tables | NewTables] = []
    if database.tables >= Tables.NEEDED:
        forms.append(Tables(database))
    if database.tables >= NewTables.NEEDED:
        forms.append(NewTables(database))
    if not forms:
        database.close()
        raise BadInput(
            f"{path} holds no conversations of a form that is known; nothing was read.",
            hint="name OpenCode's own store: opencode db path",
        )
    return _Stored(database, forms)


class _Stored:
    """A database with the tables of one version of the host, or of two side by side."""

    def __init__(self, database: Database, forms: Sequence[Tables | NewTables]) -> None:
        self.name, self.path = database.name, database.path
        self.is_at_rest = database.is_at_rest
        self._database = database
        self._forms = forms
        self._of: dict[str, Tables | NewTables] = {}

    def close(self) -> None:
        self._database.close()

    def sessions(self) -> list[HostSession]:
        found: dict[str, HostSession] = {}
        for form in self._forms:  # a session that went over to the newer tables is read from there
            for session in form.sessions():
                found[session.id], self._of[session.id] = session, form
        return sorted(found.values(), key=lambda s: (s.created_ms, s.id))

    def messages(self, session: HostSession) -> list[HostMessage]:
        return self._of[session.id].messages(session)

    def ids(self, session: HostSession) -> list[str]:
        return self._of[session.id].ids(session)

    def times(self, session_id: str, count: int) -> list[tuple[int, str]]:
        return self._of[session_id].times(session_id, count)


def mark_of(source: Source, session: HostSession, now_ms: int) -> str:
    """What tells whether a session has to be read again."""
    return f"{session.mark}:{int(is_settled(source, session, now_ms))}"


def is_settled(source: Source, session: HostSession, now_ms: int) -> bool:
    """Whether nobody is at work in a session, so that what is open in it stays open."""
    return source.is_at_rest or now_ms - session.updated_ms > SETTLED_MS


def read(
    source: Source, session: HostSession, beside: Sequence[HostSession], now_ms: int
) -> SyncRequest:
    """A session as the plugin would tell it, content and all.

    ``beside``: the sessions of its project, one of which it may be a copy of.

    Raises:
        BadInput: something of it cannot be read.
    """
    messages = source.messages(session)
    settled = is_settled(source, session, now_ms)
    origin = session.fork_of or find_origin(session, messages, beside, source.times)
    try:
        told = map_messages(messages, is_settled=settled)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"a call's input does not read as expected: {error}") from None
    return SyncRequest(
        session=info_of(session, source.name, origin),
        messages=told,
        idle=settled,
        observed_ms=now_ms,
    )


def project_key(session: HostSession) -> str:
    """What the plugin identifies a session's project by."""
    is_global = session.project_id == GLOBAL
    return f"dir:{session.directory}" if is_global else session.project_id


def info_of(session: HostSession, store: str, fork_of: str | None) -> SessionInfo:
    is_global = session.project_id == GLOBAL
    return SessionInfo(
        host=HOST,
        id=session.id,
        project_key=project_key(session),
        project_directory=session.directory if is_global else session.project_directory,
        directory=session.directory,
        title=session.title,
        created_ms=session.created_ms,
        updated_ms=session.updated_ms,
        parent_id=session.parent_id,
        fork_of=fork_of,
        archived=session.archived,
        worktree=session.worktree,
        store=store,
    )
