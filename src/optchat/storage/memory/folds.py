"""Folds and shared bases in dictionaries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from optchat.core.records import Fold
from optchat.refs import FoldId, ScopeId, SessionId
from optchat.storage.memory.state import Changes
from optchat.storage.ports import SharedBase


class MemoryFolds:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def remove_rendered(self, scope_id: ScopeId) -> int:
        members = {s.session_id for s in self._tables.sessions.values() if s.scope_id == scope_id}
        folds = [
            f
            for f in self._tables.folds.values()
            if f.pin.scope_id == scope_id or f.session_id in members
        ]
        turns = [
            t
            for t in self._tables.turns.values()
            if (t.news or t.checkpoints)
            and (t.session_id in members or (t.pin is not None and t.pin.scope_id == scope_id))
        ]
        bases = int(scope_id in self._tables.shared_bases)
        self._changes.drop(self._tables.shared_bases, scope_id)
        for fold in folds:
            self._changes.drop(self._tables.folds, fold.fold_id)
        for turn in turns:
            self._changes.put(
                self._tables.turns, turn.turn_id, replace(turn, news="", checkpoints=())
            )
        return bases + len(folds) + len(turns)

    def put(self, fold: Fold) -> None:
        self._changes.put(self._tables.folds, fold.fold_id, fold)

    def fold(self, fold_id: FoldId) -> Fold | None:
        return self._tables.folds.get(fold_id)

    def prune(self, session_id: SessionId, kept: Collection[FoldId]) -> int:
        gone = [
            fold_id
            for fold_id, fold in self._tables.folds.items()
            if fold.session_id == session_id and fold_id not in kept
        ]
        for fold_id in gone:
            self._changes.drop(self._tables.folds, fold_id)
        return len(gone)

    def put_shared_base(self, base: SharedBase) -> None:
        self._changes.put(self._tables.shared_bases, base.scope_id, base)

    def shared_base(self, scope_id: ScopeId) -> SharedBase | None:
        return self._tables.shared_bases.get(scope_id)
