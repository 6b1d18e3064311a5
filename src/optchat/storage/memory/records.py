"""Sealed records, membership and turns in dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optchat.core.records import HostMessage, Record, RecordKind, Turn
from optchat.core.tree import SessionTree
from optchat.errors import Conflict, IntegrityError
from optchat.refs import BlobHash, FoldId, SessionId, TurnId
from optchat.storage.memory.state import Changes
from optchat.storage.sealing import check_consecutive
from optchat.storage.words import stems


class MemoryRecords:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def append(self, records: Sequence[Record], words: Sequence[str]) -> None:
        if not records:
            return
        tree = SessionTree(records[0].session_id, records[0].generation)
        generation = self._tables.generations.get(tree)
        check_consecutive(records, None if generation is None else generation.length)
        assert generation is not None
        if any(record.payload not in self._tables.blobs for record in records):
            raise IntegrityError("a record's payload is not kept; nothing was sealed.")
        for record, text in zip(records, words, strict=True):
            key = (tree, record.seq)
            self._changes.put(self._tables.records, key, record)
            if text:
                self._changes.put(self._tables.words, key, stems(text))
        length = generation.length + len(records)
        self._changes.put(self._tables.generations, tree, replace(generation, length=length))

    def record(self, tree: SessionTree, seq: int) -> Record | None:
        return self._tables.records.get((tree, seq))

    def range(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[Record, ...]:
        found = (
            record
            for (of, seq), record in self._tables.records.items()
            if of == tree and start <= seq < end_exclusive
        )
        return tuple(sorted(found, key=lambda r: r.seq))

    def count(self) -> int:
        return len(self._tables.records)

    def messages(self, session_id: SessionId, start: int = 0) -> tuple[HostMessage, ...]:
        found = (
            m
            for m in self._tables.messages.values()
            if m.session_id == session_id and m.start_seq >= start
        )
        return tuple(sorted(found, key=lambda m: m.position))

    def message(self, session_id: SessionId, message_id: str) -> HostMessage | None:
        held = self.messages(session_id)
        return next((m for m in held if m.message_id == message_id), None)

    def put_message(self, message: HostMessage) -> None:
        for other in self.messages(message.session_id):
            if other.message_id == message.message_id and other.position != message.position:
                raise Conflict("that message stands at another position; it stays there.")
        self._changes.put(self._tables.messages, (message.session_id, message.position), message)

    def put_messages(self, messages: Sequence[HostMessage]) -> None:
        for message in messages:
            if (message.session_id, message.position) in self._tables.messages:
                raise Conflict("that position is taken; what is there stays.")
            self.put_message(message)

    def truncate_messages(self, session_id: SessionId, position: int) -> None:
        for message in self.messages(session_id):
            if message.position >= position:
                self._changes.drop(self._tables.messages, (session_id, message.position))

    def turn(self, turn_id: TurnId) -> Turn | None:
        return self._tables.turns.get(turn_id)

    def turn_by_key(self, session_id: SessionId, generation: int, key: str) -> Turn | None:
        asked = (session_id, generation, key)
        return next(
            (
                t
                for t in self._tables.turns.values()
                if (t.session_id, t.generation, t.key) == asked
            ),
            None,
        )

    def turns(self, session_id: SessionId) -> tuple[Turn, ...]:
        found = (t for t in self._tables.turns.values() if t.session_id == session_id)
        return tuple(sorted(found, key=lambda t: (t.start_seq, t.opened_ms, t.turn_id)))

    def open_turn(self, session_id: SessionId, generation: int) -> Turn | None:
        turns = self.turns(session_id)
        return next((t for t in turns if t.generation == generation and t.outcome is None), None)

    def last_pinned(self, session_id: SessionId, generation: int) -> Turn | None:
        turns = reversed(self.turns(session_id))
        return next((t for t in turns if t.generation == generation and t.pin is not None), None)

    def turns_of_fold(self, session_id: SessionId, fold_id: FoldId) -> tuple[Turn, ...]:
        return tuple(t for t in self.turns(session_id) if t.fold_id == fold_id)

    def folded_turns(self, session_id: SessionId, generation: int) -> tuple[Turn, ...]:
        found = (t for t in self.turns(session_id) if t.generation == generation)
        return tuple(t for t in found if t.checkpoints)

    def put_turn(self, turn: Turn) -> None:
        other = self.turn_by_key(turn.session_id, turn.generation, turn.key)
        if other is not None and other.turn_id != turn.turn_id:
            raise Conflict("another turn was opened by that message; it stands.")
        self._changes.put(self._tables.turns, turn.turn_id, turn)

    def put_turns(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            if turn.turn_id in self._tables.turns:
                raise Conflict("a turn of that id is there; it stands.")
            self.put_turn(replace(turn, pin=None, fold_id=None, news=""))

    def own_results(self, session_id: SessionId) -> tuple[Record, ...]:
        found = (
            record
            for record in self._tables.records.values()
            if record.session_id == session_id
            and record.kind is RecordKind.TOOL_RESULT
            and (record.tool or "").lower().startswith("memory_")
        )
        return tuple(sorted(found, key=lambda r: (r.generation, r.seq)))

    def remove(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[BlobHash, ...]:
        removed = self.range(tree, start, end_exclusive)
        for record in removed:
            self._drop_text(tree, record.seq)
            self._changes.drop(self._tables.records, (tree, record.seq))
        return tuple(record.payload for record in removed)

    def _drop_text(self, tree: SessionTree, seq: int) -> None:
        self._changes.drop(self._tables.words, (tree, seq))

    def remove_turns(self, session_id: SessionId) -> None:
        for turn in self.turns(session_id):
            self._changes.drop(self._tables.turns, turn.turn_id)

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        for record in self.range(tree, 0, end_exclusive):
            moved = replace(record, session_id=to.session_id, generation=to.generation)
            old, new = (tree, record.seq), (to, record.seq)
            self._changes.drop(self._tables.records, old)
            self._changes.put(self._tables.records, new, moved)
            if old in self._tables.words:
                self._changes.put(self._tables.words, new, self._tables.words[old])
                self._drop_text(tree, record.seq)
