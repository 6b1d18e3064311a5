"""Sealed records, membership and turns in dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from optchat.core.records import Record, RecordKind
from optchat.core.tree import SessionTree
from optchat.errors import IntegrityError
from optchat.refs import BlobHash, SessionId
from optchat.storage.memory.state import Changes
from optchat.storage.sealing import check_consecutive
from optchat.storage.words import stems
from optchat.wire import OWN_TOOLS


class MemoryRecords:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def append(self, records: Sequence[Record], words: Sequence[bytes]) -> None:
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
                self._changes.put(self._tables.words, key, stems(text.decode()))
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

    def own_results(self, session_id: SessionId) -> tuple[Record, ...]:
        found = (
            record
            for record in self._tables.records.values()
            if record.session_id == session_id
            and record.kind is RecordKind.TOOL_RESULT
            and record.tool in OWN_TOOLS
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

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        for record in self.range(tree, 0, end_exclusive):
            moved = msgspec.structs.replace(
                record, session_id=to.session_id, generation=to.generation
            )
            old, new = (tree, record.seq), (to, record.seq)
            self._changes.drop(self._tables.records, old)
            self._changes.put(self._tables.records, new, moved)
            if old in self._tables.words:
                self._changes.put(self._tables.words, new, self._tables.words[old])
                self._drop_text(tree, record.seq)
