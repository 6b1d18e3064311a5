"""Comparing what is held with the hosts' stores at each start, before anything is served (§12).

What nobody may see any more comes first, of all sessions, and is told without reading what was
said: sessions and messages that are gone, and sessions that lie elsewhere. Then what has changed is
read again, for as long as a start may take; what is left is read behind it, and answers say so.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import structlog

from optchat.coordinator.importing import Importing, alive_stores
from optchat.core.records import Session
from optchat.engine.deps import Deps
from optchat.engine.forget import forget_sessions
from optchat.engine.lifecycle import cut
from optchat.engine.sessions import follow, scope_for
from optchat.errors import OptChatError
from optchat.hosts.opencode.transcript import place
from optchat.hosts.opencode.transcript.messages import HostSession
from optchat.hosts.opencode.transcript.source import (
    HOST,
    Source,
    info_of,
    is_settled,
    mark_of,
    open_source,
    project_key,
)
from optchat.refs import ScopeId
from optchat.storage.ports import Store, Tx
from optchat.wire import SessionInfo

log = structlog.get_logger()

START_MS = 2_000
"""How long a start may read what has changed; a plugin waits twice that for its first answer."""


@dataclass(slots=True)
class Reconciling:
    """The comparison, and what it has left for later."""

    store: Store
    deps: Deps
    importing: Importing
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Bring what is known up to the stores that it is from.

        What such a store has no more goes, what is called or lies otherwise in it follows, what has
        changed is read again, and what began in it since it was last looked at is taken in. A store
        that is not there, cannot be read, or is another file by now, says nothing.
        """
        until_ms = self.deps.clock.now_ms() + START_MS
        known = self.importing.known()
        for name in sorted(alive_stores(known)):
            path = place.path_of(name)
            assert path is not None
            try:
                with closing(open_source(path)) as source:
                    self._compare(source, [s for s in known if s.host_store == name], until_ms)
            except OptChatError as error:
                log.warning("not compared", code=error.code)

    def meet(self, info: SessionInfo) -> None:
        """Look whether a project that is not known by its key is one that is known by another.

        The session that is spoken of may be new, but the host's store has the others as well.
        """
        path = place.path_of(info.store)
        if info.host != HOST or path is None or self._is_known(info.project_key):
            return
        with self._lock:  # nobody may make the project anew meanwhile
            known = [s for s in self.importing.known() if s.host_store == info.store]
            if not known or self._is_known(info.project_key):
                return
            try:
                with closing(open_source(path)) as source:
                    if source.name == info.store:
                        self._settle(source, known, source.sessions())
            except OptChatError as error:
                log.warning("not compared", code=error.code)

    def _is_known(self, project_key: str) -> bool:
        return self.store.read(lambda tx: tx.sessions.project(HOST, project_key)) is not None

    def unread(self, tx: Tx, scope_id: ScopeId) -> int:
        """How many sessions that share in a scope have changed and are not read again yet."""
        waiting = self.importing.unread()
        if not waiting:
            return 0
        changed = [s for s in tx.sessions.sessions(scope_id) if s.host_session in waiting]
        return sum(scope_for(tx, self.deps, session) == scope_id for session in changed)

    def _compare(self, source: Source, known: Sequence[Session], until_ms: int) -> None:
        sessions = source.sessions()
        if not place.is_there(source.name):
            return
        self._settle(source, known, sessions)
        changed = self._changed(source, known, sessions)
        there = {s.id: source.ids(s) for s in changed}
        self.store.write(lambda tx: _cut(tx, self.deps, there))
        self.importing.read_again(source, changed, sessions, until_ms)

    def _settle(
        self, source: Source, known: Sequence[Session], sessions: Sequence[HostSession]
    ) -> None:
        listed = {s.id: info_of(s, source.name, None) for s in sessions}
        self.store.write(lambda tx: _settle(tx, self.deps, known, listed))

    def _changed(
        self, source: Source, known: Sequence[Session], sessions: Sequence[HostSession]
    ) -> list[HostSession]:
        """What has changed, and what began since, in the store's order."""
        now_ms = self.deps.clock.now_ms()
        marks = {s.host_session: s.host_mark for s in known if s.disabled is None}
        held = {s.host_session for s in known}
        looked_ms = max((s.observed_ms for s in known), default=0)
        keys = self.store.read(
            lambda tx: {p.host_key for p in tx.sessions.projects() if p.host == HOST}
        )

        def is_due(session: HostSession) -> bool:
            if session.id in held:
                mark = mark_of(source, session, now_ms)
                return session.id in marks and marks[session.id] != mark
            return (
                self.deps.config.import_.auto
                and session.created_ms > looked_ms
                and project_key(session) in keys
                and is_settled(source, session, now_ms)
                and not self.importing.never(session)
            )

        return [s for s in sessions if is_due(s)]


def _settle(
    tx: Tx, deps: Deps, known: Sequence[Session], listed: Mapping[str, SessionInfo]
) -> None:
    """Forget the sessions that a store has no more, and let the others follow it."""
    for session in known:
        if session.host_session in listed:
            continue
        if tx.sessions.session(session.session_id) is not None:  # not gone with its parent
            forget_sessions(tx, deps, [session], f"session s{session.number}, gone from the host")
    there = [(s, listed[s.host_session]) for s in known if s.host_session in listed]
    # Those that have stayed where they were tell first what their project is called now.
    there.sort(key=lambda pair: pair[0].directory != pair[1].directory)
    for session, told in there:
        current = tx.sessions.session(session.session_id)
        if current is not None:
            follow(tx, deps, current, told)


def _cut(tx: Tx, deps: Deps, there: Mapping[str, Sequence[str]]) -> None:
    """Take back the messages that sessions have no more, by the ids of those that they have."""
    for name, ids in there.items():
        session = tx.sessions.session_of_host(HOST, name)
        if session is not None:
            cut(tx, deps, session, ids)
