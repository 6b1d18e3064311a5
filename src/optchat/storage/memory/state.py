"""The tables of the reference store, and the log that undoes a failed unit of work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from optchat.core.publications import Publication
from optchat.core.records import Fold, Generation, HostMessage, Record, Session, Turn
from optchat.core.scopes import Project, Scope
from optchat.core.tree import Node, SessionTree
from optchat.core.views import View
from optchat.errors import StorageError
from optchat.refs import BlobHash, Csn, FoldId, ProjectId, ScopeId, SessionId, TurnId
from optchat.storage.ports import Chunk, Job, ModelCall, Removal, SharedBase

K = TypeVar("K")
V = TypeVar("V")

NodeKey = tuple[str, int, int]
"""(tree, start, count)"""


@dataclass(slots=True)
class Tables:
    """Plain dictionaries under the keys that the verbs use; every value is immutable."""

    counters: dict[str, int] = field(default_factory=lambda: {"csn": 0, "epoch": 0, "job": 0})
    meta: dict[str, str] = field(default_factory=dict[str, str])
    projects: dict[ProjectId, Project] = field(default_factory=dict[ProjectId, Project])
    scopes: dict[ScopeId, Scope] = field(default_factory=dict[ScopeId, Scope])
    sessions: dict[SessionId, Session] = field(default_factory=dict[SessionId, Session])
    members: dict[tuple[ScopeId, SessionId], int] = field(
        default_factory=dict[tuple[ScopeId, SessionId], int]
    )
    generations: dict[SessionTree, Generation] = field(
        default_factory=dict[SessionTree, Generation]
    )
    records: dict[tuple[SessionTree, int], Record] = field(
        default_factory=dict[tuple[SessionTree, int], Record]
    )
    words: dict[tuple[SessionTree, int], tuple[str, ...]] = field(
        default_factory=dict[tuple[SessionTree, int], tuple[str, ...]]
    )
    messages: dict[tuple[SessionId, int], HostMessage] = field(
        default_factory=dict[tuple[SessionId, int], HostMessage]
    )
    turns: dict[TurnId, Turn] = field(default_factory=dict[TurnId, Turn])
    blobs: dict[BlobHash, bytes] = field(default_factory=dict[BlobHash, bytes])
    nodes: dict[NodeKey, tuple[Node, ...]] = field(default_factory=dict[NodeKey, tuple[Node, ...]])
    views: dict[str, tuple[tuple[Csn, View], ...]] = field(
        default_factory=dict[str, tuple[tuple[Csn, View], ...]]
    )
    publications: dict[tuple[ScopeId, int], Publication] = field(
        default_factory=dict[tuple[ScopeId, int], Publication]
    )
    folds: dict[FoldId, Fold] = field(default_factory=dict[FoldId, Fold])
    shared_bases: dict[ScopeId, SharedBase] = field(default_factory=dict[ScopeId, SharedBase])
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    job_order: dict[str, int] = field(default_factory=dict[str, int])
    job_waits: dict[str, frozenset[NodeKey]] = field(default_factory=dict[str, frozenset[NodeKey]])
    job_queues: dict[str, int] = field(default_factory=dict[str, int])
    calls: dict[str, ModelCall] = field(default_factory=dict[str, ModelCall])
    findings: dict[tuple[str, str, str], int] = field(
        default_factory=dict[tuple[str, str, str], int]
    )
    chunks: dict[tuple[BlobHash, str, int, int], Chunk] = field(
        default_factory=dict[tuple[BlobHash, str, int, int], Chunk]
    )
    tombstones: dict[str, None] = field(default_factory=dict[str, None])
    removals: dict[int, Removal] = field(default_factory=dict[int, Removal])


class Changes:
    """What one transaction may do to the tables, and how to take it back."""

    def __init__(self, tables: Tables, *, writable: bool) -> None:
        self.tables = tables
        self._writable = writable
        self._undo: list[Callable[[], None]] = []

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        self._check()
        if key in table:
            before = table[key]
            self._undo.append(lambda: table.__setitem__(key, before))
        else:
            self._undo.append(lambda: table.__delitem__(key))
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> None:
        self._check()
        if key in table:
            before = table.pop(key)
            self._undo.append(lambda: table.__setitem__(key, before))

    def take_back(self) -> None:
        """Undo every change, the last one first."""
        while self._undo:
            self._undo.pop()()

    def end(self) -> None:
        """No change after this."""
        self._writable = False

    def _check(self) -> None:
        if not self._writable:
            raise StorageError("The transaction is for reading, or over; nothing was written.")


def grouped(pairs: list[tuple[K, V]]) -> dict[K, list[V]]:
    """The values by key, in order."""
    found: dict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found
