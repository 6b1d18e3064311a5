"""Turns in a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optchat.core.records import Turn
from optchat.errors import Conflict
from optchat.refs import FoldId, SessionId, TurnId
from optchat.storage.memory.state import Changes


class MemoryTurns:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def turn(self, turn_id: TurnId) -> Turn | None:
        return self._tables.turns.get(turn_id)

    def by_key(self, session_id: SessionId, generation: int, key: str) -> Turn | None:
        asked = (session_id, generation, key)
        return next(
            (
                t
                for t in self._tables.turns.values()
                if (t.session_id, t.generation, t.key) == asked
            ),
            None,
        )

    def of_session(self, session_id: SessionId) -> tuple[Turn, ...]:
        found = (t for t in self._tables.turns.values() if t.session_id == session_id)
        return tuple(sorted(found, key=lambda t: (t.start_seq, t.opened_ms, t.turn_id)))

    def open(self, session_id: SessionId, generation: int) -> Turn | None:
        turns = self.of_session(session_id)
        return next((t for t in turns if t.generation == generation and t.outcome is None), None)

    def last_pinned(self, session_id: SessionId, generation: int) -> Turn | None:
        turns = reversed(self.of_session(session_id))
        return next((t for t in turns if t.generation == generation and t.pin is not None), None)

    def of_fold(self, session_id: SessionId, fold_id: FoldId) -> tuple[Turn, ...]:
        return tuple(t for t in self.of_session(session_id) if t.fold_id == fold_id)

    def folded(self, session_id: SessionId, generation: int) -> tuple[Turn, ...]:
        found = (t for t in self.of_session(session_id) if t.generation == generation)
        return tuple(t for t in found if t.checkpoints)

    def put(self, turn: Turn) -> None:
        other = self.by_key(turn.session_id, turn.generation, turn.key)
        if other is not None and other.turn_id != turn.turn_id:
            raise Conflict("another turn was opened by that message; it stands.")
        self._changes.put(self._tables.turns, turn.turn_id, turn)

    def put_many(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            if turn.turn_id in self._tables.turns:
                raise Conflict("a turn of that id is there; it stands.")
            self.put(replace(turn, pin=None, fold_id=None, news=""))

    def remove(self, session_id: SessionId) -> None:
        for turn in self.of_session(session_id):
            self._changes.drop(self._tables.turns, turn.turn_id)
