"""An evaluation's own data directory, never a person's, with a clock that stands still."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from optchat.compactor.models import DeterministicModel
from optchat.compactor.worker import Worker
from optchat.config import Compactor, Config, Memory, Sharing
from optchat.coordinator.ids import RandomIds
from optchat.coordinator.readers import newest
from optchat.coordinator.service import Service
from optchat.coordinator.tools import call_tool
from optchat.core.scopes import profile_scope
from optchat.core.snapshots import Visibility
from optchat.core.tree import SessionTree
from optchat.engine.deps import Deps
from optchat.engine.sessions import own_lineage, require_scope
from optchat.engine.visible import Reader
from optchat.evaluation.files import NOW_MS, Message, Reasoning, Session, Text, Tool
from optchat.refs import Ref, SessionRef, parse_ref
from optchat.storage.ports import Tx
from optchat.storage.sqlite import SqliteStore
from optchat.wire import MessageInfo, SessionInfo, SyncRequest, TextPart, ToolPart

HOST = "opencode"
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

    def now_ms(self) -> int:
        return NOW_MS


class Room:
    """A service over an empty store; ``seconds`` is what taking sessions in took so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        clock = Still()
        self.deps = Deps(CONFIG, clock, RandomIds())
        self.store = SqliteStore(folder / "memory.db", clock)
        self.service = Service(self.store, self.deps, folder)
        self.seconds = 0.0
        self.times: list[float] = []
        self._asking: dict[str | None, Visibility] = {}

    def take_in(self, sessions: Iterable[Session]) -> None:
        """Bring sessions in as a host would send them, and publish their turns."""
        started = time.perf_counter()
        for session in sessions:
            self.service.sync(_request(session))
        worker = Worker(self.store, self.deps, DeterministicModel(), "evaluation")
        while worker.run_one():
            pass
        self.seconds += time.perf_counter() - started
        self._asking.clear()

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
            lambda tx: call_tool(Reader(tx, visibility), "memory_search", args)
        )
        self.times.append(time.perf_counter() - started)
        return answer.data

    def _visibility(self, tx: Tx, session: str | None) -> Visibility:
        visibility = newest(tx, require_scope(tx, SCOPE))
        asking = tx.sessions.session_of_host(HOST, session) if session is not None else None
        if asking is None:
            return visibility
        return replace(visibility, session_id=asking.session_id, own=own_lineage(tx, asking))


def _request(session: Session) -> SyncRequest:
    messages = [
        MessageInfo(
            id=message.id,
            role=message.role,
            digest=message.id,
            final=True,
            created_ms=message.created,
            opens=message.role == "user",
            terminal="completed" if message.role == "assistant" and ends else None,
            parts=[_part(part) for part in message.parts if not isinstance(part, Reasoning)],
        )
        for message, ends in _with_ends(session.messages)
    ]
    info = SessionInfo(
        host=HOST,
        id=session.id,
        project_key=session.directory,
        project_directory=session.directory,
        directory=session.directory,
        title=session.title,
        created_ms=session.created,
        updated_ms=session.updated,
        parent_id=session.parent_id,
        store="evaluation",
    )
    return SyncRequest(session=info, messages=messages, idle=True, observed_ms=NOW_MS)


def _with_ends(messages: list[Message]) -> Iterator[tuple[Message, bool]]:
    for index, message in enumerate(messages):
        following = messages[index + 1 : index + 2]
        yield message, not following or following[0].role == "user"


def _part(part: Text | Tool) -> TextPart | ToolPart:
    if isinstance(part, Text):
        return TextPart(id=part.id, text=part.text)
    return ToolPart(
        id=part.id,
        tool=part.tool,
        input_json=msgspec.json.encode(part.input or {}).decode(),
        status=part.status,
        output=part.output,
        error=part.error,
        title=part.title or "",
    )


@contextmanager
def room() -> Generator[Room]:
    """An empty room in a temporary folder, which goes when it is left."""
    with tempfile.TemporaryDirectory(prefix="optchat-eval-") as folder:
        made = Room(Path(folder))
        try:
            yield made
        finally:
            made.close()
