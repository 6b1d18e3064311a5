"""Which of the visible records a query is about, and why the others were left out (§8, §11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optchat.core.records import RecordKind, Session
from optchat.core.tree import SessionTree
from optchat.engine.recall.places import Flags
from optchat.engine.recall.query import Filters
from optchat.engine.recall.terms import Finder
from optchat.engine.visible import Reader
from optchat.refs import ProjectId, SessionId
from optchat.storage.ports import Frame
from optchat.storage.ports.frame import EVIDENCE, OUTCOMES, kind_code
from optchat.storage.words import spaced, stems

OWN = "own session"
FAMILY = "family"
RECORD_FIELDS = ("role", "evidence", "kind", "tool", "file", "outcome", "time")
"""What is asked of a record, and not of its session."""


@dataclass(frozen=True, slots=True, eq=False)
class Eligible:
    """Masks over a frame's rows by what demands them, in the order in which they are counted.

    ``sessions`` masks the frame's sessions by those that speak of a session alone.
    """

    frame: Frame
    rows: dict[str, Flags]
    sessions: Flags

    def mask(self, *without: str) -> Flags:
        """The rows that pass all of them, but for those named."""
        found = np.ones(self.frame.count, bool)
        for name, rows in self.rows.items():
            if name not in without:
                found &= rows
        return found

    def skipped(self) -> dict[str, int]:
        """How many rows each left out that none before it did."""
        left = np.ones(self.frame.count, bool)
        counts: dict[str, int] = {}
        for name, rows in self.rows.items():
            count = int((left & ~rows).sum())
            if count:
                counts[name] = count
            left &= rows
        return counts


class Directory:
    """The sessions of a frame as its scope knows them, and their projects' directories."""

    def __init__(self, reader: Reader, frame: Frame) -> None:
        self._reader = reader
        self._tx = reader.tx
        self._frame = frame
        self._sessions: dict[SessionId, Session | None] = {}
        self._projects: dict[ProjectId, str] | None = None

    def session(self, session_id: SessionId) -> Session | None:
        if session_id not in self._sessions:
            scope_id = self._reader.visibility.scope_id
            self._sessions[session_id] = self._tx.sessions.session_in(scope_id, session_id)
        return self._sessions[session_id]

    def project(self, project_id: ProjectId) -> str:
        """Where a project lies; "" for one that is not known."""
        return self.projects.get(project_id, "")

    @property
    def projects(self) -> dict[ProjectId, str]:
        if self._projects is None:
            self._projects = {p.project_id: p.directory for p in self._tx.sessions.projects()}
        return self._projects

    def everything(self) -> None:
        """Read all sessions at once, for a filter that has to look at each."""
        for session in self._tx.sessions.sessions(self._reader.visibility.scope_id):
            self._sessions.setdefault(session.session_id, session)


def eligible(
    reader: Reader,
    finder: Finder,
    directory: Directory,
    filters: Filters,
    named: frozenset[SessionId] | None,
) -> Eligible:
    """The masks of a query's filters; ``named`` are the sessions that it asks for."""
    frame = finder.frame
    of_session = dict(_of_session(reader, frame, directory, filters, named))
    of_record = dict(_of_record(finder, filters))
    sessions = np.ones(len(frame.sessions), bool)
    for mask in of_session.values():
        sessions &= mask
    rows = {name: mask[frame.session] for name, mask in of_session.items()}
    return Eligible(frame, rows | of_record, sessions)


def _of_session(
    reader: Reader,
    frame: Frame,
    directory: Directory,
    filters: Filters,
    named: frozenset[SessionId] | None,
) -> Iterator[tuple[str, Flags]]:
    own = reader.visibility.session_id
    if named is not None:
        yield "session", np.array([s in named for s in frame.sessions], bool)
    elif own is not None and not filters.family:
        related = family(reader, own)
        yield OWN, np.array([s != own for s in frame.sessions], bool)
        yield FAMILY, np.array([s == own or s not in related for s in frame.sessions], bool)
    if filters.project is not None:
        wanted = filters.project
        matching = [_is_project(directory.project(p), wanted) for p in frame.projects]
        of = np.zeros(len(frame.sessions), bool)
        of[frame.session] = np.array(matching, bool)[frame.project]
        yield "project", of
    if filters.directory is not None:
        directory.everything()
        found = [directory.session(s) for s in frame.sessions]
        wanted = filters.directory
        inside = [s is not None and _is_inside(s.directory, wanted) for s in found]
        yield "directory", np.array(inside, bool)


def _of_record(finder: Finder, filters: Filters) -> Iterator[tuple[str, Flags]]:
    frame = finder.frame
    for name, classes in (("role", filters.role), ("evidence", filters.evidence)):
        if classes is not None:
            yield name, np.isin(frame.evidence, [EVIDENCE.index(e) for e in classes])
    if filters.kind is not None:
        yield "kind", np.isin(frame.kind, [kind_code(k) for k in filters.kind])
    if filters.tool is not None:
        tools = [at for at, tool in enumerate(frame.tools) if tool.lower() == filters.tool]
        yield "tool", np.isin(frame.tool, tools)
    if filters.outcome is not None:
        yield "outcome", frame.outcome == OUTCOMES.index(filters.outcome)
    if filters.since_ms is not None or filters.until_ms is not None:
        low = -(2**62) if filters.since_ms is None else filters.since_ms
        high = 2**62 if filters.until_ms is None else filters.until_ms
        yield "time", (frame.time_ms >= low) & (frame.time_ms < high)
    if filters.file is not None:
        yield "file", _with_file(finder, filters.file)


def _with_file(finder: Finder, file: str) -> Flags:
    """The calls whose input names a file, and their results."""
    frame = finder.frame
    form = stems(spaced(file))
    found = np.zeros(frame.count, bool)
    if not form:
        return found
    found[finder.of(form).rows] = True
    found &= frame.kind == kind_code(RecordKind.TOOL_CALL)
    after = np.flatnonzero(found[:-1]) + 1
    results = [kind_code(RecordKind.TOOL_RESULT), kind_code(RecordKind.REPORT)]
    after = after[
        np.isin(frame.kind[after], results) & (frame.tree[after] == frame.tree[after - 1])
    ]
    found[after] = True
    return found


def family(reader: Reader, session_id: SessionId) -> frozenset[SessionId]:
    """The session with its parent, its siblings, its children, and what was forked from them."""
    tx = reader.tx
    found: set[SessionId] = set()
    pending = [session_id]
    while pending:
        session = tx.sessions.session(pending.pop())
        if session is None or session.session_id in found:
            continue
        found.add(session.session_id)
        pending += [s.session_id for s in tx.sessions.children(session.host, session.host_session)]
        if session.parent_host_session is not None:
            parent = tx.sessions.session_of_host(session.host, session.parent_host_session)
            pending += [parent.session_id] if parent is not None else []
        for generation in tx.sessions.generations(session.session_id):
            base = generation.base
            pending += [base.session_id] if base is not None else []
            tree = SessionTree(session.session_id, generation.number)
            pending += [g.session_id for g in tx.sessions.derived(tree)]
    return frozenset(found)


def named_sessions(reader: Reader, filters: Filters) -> frozenset[SessionId] | None:
    """The sessions that are asked for by name, several with commas between; None for no such wish.

    Raises:
        NotFound: one of them is not there, or not to be seen.
    """
    if filters.session is None:
        return None
    names = [name.strip() for name in filters.session.split(",") if name.strip()]
    return frozenset(reader.named(name).session_id for name in names or [filters.session])


def _is_project(directory: str, wanted: str) -> bool:
    """Whether a project is meant: by its directory, or by the last names of it."""
    return _is_inside(directory, wanted) and (
        directory.rstrip("/") == wanted.rstrip("/") or not wanted.startswith("/")
    )


def _is_inside(directory: str, wanted: str) -> bool:
    """Whether a directory is the one that is wanted, lies in it, or has a part of that name."""
    here, there = directory.rstrip("/").lower() + "/", wanted.strip("/").lower() + "/"
    if wanted.startswith("/"):
        return here.startswith("/" + there)
    return f"/{there}" in here
