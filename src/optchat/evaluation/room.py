"""An evaluation's own data directory, never a person's, with a clock that stands still."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from optchat.config import Compactor, Config, Memory, Sharing
from optchat.coordinator.ids import CountedIds
from optchat.coordinator.readers import newest
from optchat.coordinator.service import Service
from optchat.coordinator.taking import Run
from optchat.coordinator.tools import call_tool
from optchat.core.scopes import profile_scope
from optchat.core.snapshots import Visibility
from optchat.core.tree import SessionTree
from optchat.engine.deps import Deps
from optchat.engine.sessions import own_lineage, require_scope
from optchat.engine.visible import Reader
from optchat.errors import IntegrityError
from optchat.evaluation import hoststore
from optchat.evaluation.files import NOW_MS, Session
from optchat.hosts.opencode.transcript.source import HOST, SETTLED_MS
from optchat.refs import Ref, SessionRef, parse_ref
from optchat.storage.ports import Tx
from optchat.storage.sqlite import SqliteStore
from optchat.wire import ImportRequest, ImportStatus

EVERYTHING = "everything"
SCOPE = profile_scope(EVERYTHING)
CONFIG = Config(
    sharing=Sharing(default=EVERYTHING, profiles={EVERYTHING: []}, subagents=True),
    memory=Memory(readiness_timeout_ms=0),
    compactor=Compactor(workers=0, model="deterministic"),
)
"""All sessions share one scope, subagents too, and nobody is asked for a summary."""


class Still:
    """The evaluation's now."""

    time_ms = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


class Room:
    """A service over an empty store; ``times`` are what its answers took, in seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Still()
        self.store = SqliteStore(folder / "memory.db", self.clock)
        deps = Deps(
            CONFIG, self.clock, CountedIds(self.store.write(lambda tx: tx.meta.raise_epoch()))
        )
        self.service = Service(self.store, deps, folder)
        self.times: list[float] = []
        self._asking: dict[str | None, Visibility] = {}

    def take_in(self, sessions: Iterable[Session]) -> None:
        """Write sessions as a host's store and import it, once the host has come to rest.

        Raises:
            IntegrityError: the import left one of them out.
        """
        path = self.folder / "opencode.db"
        hoststore.write(path, sessions)
        request = ImportRequest(path=str(path))
        run = Run(ImportStatus(id=1, path=request.path, running=True), request)
        self.clock.time_ms = NOW_MS + 2 * SETTLED_MS
        self.service.importing.run(run)
        self.clock.time_ms = NOW_MS
        left_out = {**run.skipped, "empty": 0}
        if run.status.error is not None or any(left_out.values()):
            told = run.status.error.message if run.status.error is not None else f"{left_out}"
            raise IntegrityError(f"the sessions were not imported: {told}")

    def warm(self) -> None:
        """Read what every query needs, so that ``times`` begin with a warm one."""
        self.ask({"query": "warm"})
        self.times.clear()

    def host_sessions(self) -> dict[str, str]:
        """The host's id of each session, by its name in answers."""
        scopes = self.service.status().scopes
        return {counts.ref: counts.host_session for scope in scopes for counts in scope.sessions}

    def messages(self, refs: list[str]) -> list[str]:
        """The host's message that each ref is a record of; other refs as they are."""

        def work(tx: Tx) -> list[str]:
            return [self._message(tx, parse_ref(ref)) or ref for ref in refs]

        return self.store.read(work)

    def _message(self, tx: Tx, ref: Ref) -> str | None:
        if not isinstance(ref, SessionRef) or ref.span.count != 1:
            return None
        session = tx.sessions.session_numbered(SCOPE, ref.number)
        if session is None:
            return None
        record = tx.records.record(SessionTree(session.session_id, ref.generation), ref.span.start)
        return record.message_id if record is not None else None

    def close(self) -> None:
        self.store.close()

    def ask(self, args: dict[str, Any], *, session: str | None = None) -> dict[str, Any]:
        """The data that memory_search answers, to a person or to a host's session.

        A session asks as at the start of a turn: under the newest snapshot, with its own history.
        """
        visibility = self._asking.get(session) or self._asking.setdefault(
            session, self.store.read(lambda tx: self._visibility(tx, session))
        )
        started = time.perf_counter()
        answer = self.store.read(
            lambda tx: call_tool(
                Reader(tx, visibility), "memory_search", args, now_ms=self.clock.now_ms()
            )
        )
        self.times.append(time.perf_counter() - started)
        return answer.data

    def _visibility(self, tx: Tx, session: str | None) -> Visibility:
        visibility = newest(tx, require_scope(tx, SCOPE))
        asking = tx.sessions.session_of_host(HOST, session) if session is not None else None
        if asking is None:
            return visibility
        return replace(visibility, session_id=asking.session_id, own=own_lineage(tx, asking))


@contextmanager
def room() -> Generator[Room]:
    """An empty room in a temporary folder, which goes when it is left."""
    with tempfile.TemporaryDirectory(prefix="optchat-eval-") as folder:
        made = Room(Path(folder))
        try:
            yield made
        finally:
            made.close()
