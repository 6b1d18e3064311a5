"""A conversation as a reader may see it, message by message, from either end (§8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from optchat.core.records import Lineage, Record, RecordKind, Session
from optchat.core.tree import SessionTree
from optchat.engine.sessions import lineage
from optchat.engine.visible import Reader
from optchat.refs import SessionRef, Span

_BLOCK_RECORDS = 64
_SPOKEN = (RecordKind.USER, RecordKind.ASSISTANT, RecordKind.REPORT)
_LATEST_PUBLICATIONS = 256


@dataclass(frozen=True, slots=True)
class Message:
    """A host's message: its records in order, as far as they are visible; at least one."""

    session: Session
    generation: int
    records: tuple[Record, ...]

    @property
    def start(self) -> int:
        return self.records[0].seq

    @property
    def end_exclusive(self) -> int:
        return self.records[-1].seq + 1

    @property
    def role(self) -> str:
        return "user" if self.records[0].kind is RecordKind.USER else "assistant"

    @property
    def ref(self) -> str:
        """Its first record."""
        return self.ref_of(self.records[0])

    def ref_of(self, record: Record) -> str:
        return str(SessionRef(self.session.number, self.generation, Span(record.seq, 1)))

    @property
    def label(self) -> str:
        """Who speaks, and which tools are called, most often first."""
        called = Counter(r.tool for r in self.records if r.kind is RecordKind.TOOL_CALL and r.tool)
        tools = [f"{name} ×{n}" if n > 1 else name for name, n in called.most_common(6)]
        return f"{self.role}{', calls ' if tools else ''}{', '.join(tools)}"

    @property
    def spoken(self) -> tuple[Record, ...]:
        """Its texts, before the calls and results, which tell less of it."""
        return tuple(sorted(self.records, key=lambda r: r.kind not in _SPOKEN))


@dataclass(frozen=True, slots=True)
class History:
    """The records of one generation of a session, up to where its reader sees any."""

    reader: Reader
    session: Session
    generation: int
    lineage: Lineage
    end: int

    def backward(self, before: int) -> Iterator[Message]:
        """The messages that end at or below record ``before``, the newest first."""
        later: list[Record] = []
        for start in range((min(before, self.end) - 1) // _BLOCK_RECORDS, -1, -1):
            for record in reversed(self._block(start, 0, before)):
                if later and later[-1].message_id != record.message_id:
                    yield self._message(later[::-1])
                    later = []
                later.append(record)
        if later:
            yield self._message(later[::-1])

    def forward(self, start: int) -> Iterator[Message]:
        """The messages from record ``start`` on, the oldest first."""
        earlier: list[Record] = []
        for block in range(start // _BLOCK_RECORDS, -(-self.end // _BLOCK_RECORDS)):
            for record in self._block(block, start, self.end):
                if earlier and earlier[-1].message_id != record.message_id:
                    yield self._message(earlier)
                    earlier = []
                earlier.append(record)
        if earlier:
            yield self._message(earlier)

    def at(self, seq: int) -> Message | None:
        """The message that record ``seq`` came from, whole; None if it is not visible."""
        [*found] = self._records(seq, seq + 1)
        if not found:
            return None
        before = next(self.backward(seq + 1)).start
        return next(self.forward(before))

    def _message(self, records: list[Record]) -> Message:
        return Message(self.session, self.generation, tuple(records))

    def _block(self, block: int, start: int, end_exclusive: int) -> list[Record]:
        at = block * _BLOCK_RECORDS
        bound = min(at + _BLOCK_RECORDS, self.end, end_exclusive)
        return list(self._records(max(at, start), bound))

    def _records(self, start: int, end_exclusive: int) -> Iterator[Record]:
        for first, last in self.reader.seen(self.lineage, start, end_exclusive):
            for piece in self.lineage.owners(first, last):
                yield from self.reader.tx.records.range(
                    piece.tree, piece.start, piece.end_exclusive
                )


def history_of(reader: Reader, session: Session) -> History:
    """What is visible of a session by now: its newest generation that anything was published of."""
    own = reader.visibility.own
    if session.session_id == reader.visibility.session_id and own is not None:
        return History(reader, session, session.generation, own, own.length)
    published = reader.tx.publications.of_session(
        reader.visibility, session.session_id, None, _LATEST_PUBLICATIONS
    )
    generation = max((p.generation for p in published), default=0)
    end = max((p.end_seq_exclusive for p in published if p.generation == generation), default=0)
    whole = lineage(reader.tx, SessionTree(session.session_id, generation))
    return History(reader, session, generation, whole, end)


def history_at(reader: Reader, ref: SessionRef) -> History:
    """The history that a ref of visible records is of.

    Raises:
        NotFound: as for any ref.
    """
    session, forest = reader.session(ref)
    whole = forest.lineage
    assert whole is not None
    return History(reader, session, ref.generation, whole, whole.length)
