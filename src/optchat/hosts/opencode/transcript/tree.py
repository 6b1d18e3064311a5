"""The files of earlier versions of OpenCode: one JSON file for each session, message and part.

    storage/project/<project>.json
    storage/session/<project>/<session>.json
    storage/message/<session>/<message>.json
    storage/part/<message>/<part>.json

A file is replaced whole by its host, so that each is read as one of its states.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from optchat.errors import BadInput
from optchat.hosts.opencode.transcript import place
from optchat.hosts.opencode.transcript.live import live, untouched
from optchat.hosts.opencode.transcript.messages import (
    GLOBAL,
    HostMessage,
    HostPart,
    HostSession,
    Info,
    Revert,
    Row,
    decode,
)

T = TypeVar("T")


class _Project(Row):
    id: str
    worktree: str = "/"


class _Times(Row):
    created: int
    updated: int
    archived: int | None = None


class _Ours(Row):
    internal: bool = False


class _Metadata(Row):
    optchat: _Ours | None = None


class _Session(Row):
    id: str
    time: _Times
    project_id: str = msgspec.field(name="projectID", default=GLOBAL)
    directory: str = ""
    title: str = ""
    parent_id: str | None = msgspec.field(name="parentID", default=None)
    revert: Revert | None = None
    metadata: _Metadata | None = None


class Tree:
    """One store of that form; ``is_at_rest`` is not known of it."""

    is_at_rest = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = place.identity(path)

    def close(self) -> None:
        """There is nothing to close."""

    def sessions(self) -> list[HostSession]:
        """All of them, oldest first.

        Raises:
            BadInput: a file cannot be read.
        """
        projects = {p.id: p.worktree for _, p in self._read("project", _Project)}
        found = [
            self._session(session, projects) for _, session in self._read("session/*", _Session)
        ]
        return sorted(found, key=lambda s: (s.created_ms, s.id))

    def messages(self, session: HostSession) -> list[HostMessage]:
        """A session's messages with their parts, in the host's order.

        Raises:
            BadInput: a file cannot be read.
        """
        messages = [
            HostMessage(
                id=name,
                info=info,
                parts=[part for _, part in self._read(f"part/{name}", HostPart)],
            )
            for name, info in self._infos(session.id)
        ]
        return live(messages, session.revert)

    def ids(self, session: HostSession) -> list[str]:
        """Those of its messages that are as they were written."""
        return untouched((name for name, _ in self._infos(session.id)), session.revert)

    def times(self, session_id: str, count: int) -> list[tuple[int, str]]:
        """When the first messages were made and whose they are."""
        return [(info.time.created, info.role) for _, info in self._infos(session_id)[:count]]

    def _infos(self, session_id: str) -> list[tuple[str, Info]]:
        found = self._read(f"message/{session_id}", Info)
        return sorted(found, key=lambda one: (one[1].time.created, one[0]))

    def _session(self, session: _Session, projects: dict[str, str]) -> HostSession:
        count = sum(1 for _ in self._files(f"message/{session.id}"))
        is_global = session.project_id == GLOBAL
        worktree = projects.get(session.project_id, session.directory)
        ours = session.metadata.optchat if session.metadata else None
        return HostSession(
            id=session.id,
            project_id=session.project_id,
            directory=session.directory or worktree,
            title=session.title,
            created_ms=session.time.created,
            updated_ms=session.time.updated,
            project_directory=worktree,
            worktree=None if is_global else worktree,
            parent_id=session.parent_id,
            archived=session.time.archived is not None,
            internal=ours is not None and ours.internal,
            revert=session.revert,
            messages=count,
            mark=f"{session.time.updated}:{count}:files",
        )

    def _files(self, pattern: str) -> Iterator[Path]:
        # An id is a file's name, and comes from the host's own files.
        return iter(sorted(self.path.glob(f"{pattern}/*.json")))

    def _read(self, pattern: str, kind: type[T]) -> list[tuple[str, T]]:
        found: list[tuple[str, T]] = []
        for file in self._files(pattern):
            try:
                found.append((file.stem, decode(file.read_bytes(), kind)))
            except FileNotFoundError:
                continue  # removed by the host since it was listed
            except OSError as error:
                raise BadInput(
                    f"{file} cannot be read ({error}); nothing was taken in or taken back for it.",
                    hint="look whether the file is yours, then run the command again",
                ) from None
        return found
