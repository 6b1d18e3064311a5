"""Sealing what a session's host holds beyond what is sealed: records, turns and their trees (§3).

A turn that ended is closed, and its publication made or scheduled, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from optchat.core.records import (
    HostMessage,
    Lineage,
    Outcome,
    Record,
    Session,
    Turn,
)
from optchat.core.scopes import is_isolated
from optchat.engine import past
from optchat.engine.deps import Deps
from optchat.engine.forest import Forest
from optchat.engine.keys import kept_digest, revised
from optchat.engine.nodes import complete_parents, hurry_session, seal_leaf
from optchat.engine.payloads import Prepared, Source
from optchat.engine.publish import schedule_publication
from optchat.engine.scopes import settle
from optchat.engine.sessions import (
    generation_of,
    open_turn,
    own_lineage,
    scope_for,
)
from optchat.engine.tombstones import NO_DIGEST, forgotten_messages
from optchat.errors import EventConflict
from optchat.refs import Csn, ScopeId, TurnId
from optchat.storage.ports import Tx
from optchat.wire import MessageInfo, SyncRequest

_OUTCOMES = {
    "completed": Outcome.COMPLETED,
    "interrupted": Outcome.INTERRUPTED,
    "failed": Outcome.FAILED,
}


@dataclass(slots=True)
class _Sealed:
    """A part of a message that has its place."""

    source: Source
    message_id: str
    event_key: str
    turn_id: TurnId
    seq: int
    scope_id: ScopeId


class Sealing:
    """One pass over the messages that follow what is sealed; written in few statements."""

    def __init__(
        self,
        tx: Tx,
        deps: Deps,
        session: Session,
        request: SyncRequest,
        commit: str | None,
        held: Sequence[HostMessage],
        prepared: Prepared,
        *,
        publishing: past.Publishing | None,
    ) -> None:
        self.tx = tx
        self.deps = deps
        self.session = session
        self.request = request
        self.commit = commit
        self.prepared = prepared
        self.publishing = publishing
        self.need: list[str] = []
        self.sealed = 0
        self.lineage: Lineage = own_lineage(tx, session)
        self.length = self.lineage.length
        self.last_ms = 0
        self.turn = open_turn(tx, session)
        if self.turn is not None:
            self.last_ms = self._last_recorded_ms(self.turn)
        self._already = self._sealed_behind(held[-1].end_seq_exclusive if held else 0)
        self._forgotten = frozenset[str]()
        self._messages: list[HostMessage] = []
        self._opened: dict[TurnId, Turn] = {}
        self._events: list[_Sealed | Turn] = []
        """Records, and turns that ended behind them, in the order in which they came."""

    def _last_recorded_ms(self, turn: Turn) -> int:
        """When the newest record of the open turn happened, whichever report brought it."""
        pieces = self.lineage.owners(turn.start_seq, self.lineage.length)
        held = (r for p in pieces for r in self.tx.records.range(p.tree, p.start, p.end_exclusive))
        return max((r.host_time_ms for r in held), default=0)

    def _sealed_behind(self, end: int) -> dict[str, bytes]:
        """Records that no message of the membership accounts for, by event key: none, as a rule."""
        pieces = self.lineage.owners(end, self.lineage.length)
        return {
            record.event_key: b"".join(self.tx.blobs.chunks(record.payload))
            for piece in pieces
            for record in self.tx.records.range(piece.tree, piece.start, piece.end_exclusive)
        }

    def run(self, position: int) -> None:
        messages, info = self.request.messages, self.request.session
        ids = [message.id for message in messages[position:]]
        self._forgotten = forgotten_messages(self.tx, info, ids)
        blocked = False
        for index in range(position, len(messages)):
            message = messages[index]
            if not blocked and not self._settled(index):
                blocked = True
            if message.parts is None and message.role != "other":
                if self._settled(index):
                    self.need.append(message.id)
                blocked = True
            if not blocked:
                self._seal(index, message)
        if self.request.idle and not blocked and self.turn is not None:
            self._close(Outcome.INTERRUPTED)
        self._write()

    def _settled(self, index: int) -> bool:
        """Final by the host's word, or left dangling: a later request came to an idle session."""
        messages = self.request.messages
        if messages[index].final or messages[index].role == "user":
            return True
        return any(m.role == "user" and m.opens for m in messages[index + 1 :])

    def _seal(self, position: int, message: MessageInfo) -> None:
        if message.role == "user" and (self.turn is None or message.opens):
            if self.turn is not None:
                self._close(Outcome.INTERRUPTED)
            self._open(message)
        elif self.turn is None and message.role == "assistant":
            self._open(message)
        start = self.length
        forgotten = message.id in self._forgotten
        if not forgotten:
            self._take(message)
        self._messages.append(
            HostMessage(
                session_id=self.session.session_id,
                position=position,
                message_id=message.id,
                digest=NO_DIGEST if forgotten else kept_digest(message.digest),
                turn_id=self.turn.turn_id if self.turn is not None else TurnId(""),
                start_seq=start,
                end_seq_exclusive=self.length,
            )
        )
        if message.terminal is not None and self.turn is not None:
            self._close(_OUTCOMES[message.terminal])

    def _open(self, message: MessageInfo) -> None:
        scope_id = scope_for(self.tx, self.deps, self.session)
        if scope_id != self.session.scope_id:
            self._write()  # what a move takes back must be there
            if self.publishing is not None:
                self.publishing.put_down()
            self.session = settle(self.tx, self.deps, self.session)
        self.turn = Turn(
            turn_id=TurnId(self.deps.ids.new_id()),
            session_id=self.session.session_id,
            generation=self.session.generation,
            key=message.id,
            start_seq=self.length,
            opened_ms=message.created_ms or self.deps.clock.now_ms(),
            scope_id=None if is_isolated(scope_id) else scope_id,
        )
        self._opened[self.turn.turn_id] = self.turn
        self.last_ms = 0

    def _take(self, message: MessageInfo) -> None:
        """Give each record of a message its place; what is there already counts once (I5)."""
        info = self.request.session
        taken = dict(self._already)
        for source in self.prepared.get(message.id, ()):
            assert self.turn is not None
            key = revised(source.key, self.session.generation)
            if taken.get(key, source.payload) != source.payload:
                raise EventConflict(
                    f"a part of message {message.id} of {info.id} is there a second time with "
                    "other content; nothing was sealed.",
                )
            if key in taken:
                continue
            taken[key] = source.payload
            self._events.append(
                _Sealed(
                    source, message.id, key, self.turn.turn_id, self.length, self.session.scope_id
                )
            )
            self.length += 1
            self.last_ms = max(self.last_ms, source.time_ms)

    def _close(self, outcome: Outcome) -> None:
        assert self.turn is not None
        closed = replace(
            self.turn,
            end_seq_exclusive=self.length,
            outcome=outcome,
            closed_ms=max(self.turn.opened_ms, self.last_ms),
        )
        if closed.turn_id in self._opened:
            self._opened[closed.turn_id] = closed
        else:
            self.tx.turns.put(closed)
        self._events.append(closed)
        self.turn = None

    def _write(self) -> None:
        """Put down what has come together, then grow the trees over it and schedule what is due."""
        if self._events and self.publishing is None:
            # The session is used again: what was taken in of it as history gets its nodes first.
            past.make_nodes(self.tx, self.deps, self.session, self.lineage)
        sealed = [event for event in self._events if isinstance(event, _Sealed)]
        self.tx.blobs.put_many({e.source.blob: e.source.payload for e in sealed})
        records = [self._record(event) for event in sealed]
        self.tx.records.append(records, [event.source.words for event in sealed])
        self.tx.turns.put_many(tuple(self._opened.values()))
        self.tx.membership.put_many(self._messages)
        self.sealed += len(records)
        if self._events:
            self._grow(records)
        self._messages.clear()
        self._opened.clear()
        self._events.clear()

    def _record(self, event: _Sealed) -> Record:
        source = event.source
        return Record(
            session_id=self.session.session_id,
            generation=self.session.generation,
            seq=event.seq,
            event_key=event.event_key,
            turn_id=event.turn_id,
            message_id=event.message_id,
            kind=source.kind,
            host_time_ms=source.time_ms,
            sealed_ms=self.deps.clock.now_ms(),
            payload=source.blob,
            payload_bytes=len(source.payload),
            project_id=self.session.project_id,
            tool=source.tool,
            pair=source.pair,
            status=source.status,
            worktree=self.request.session.worktree,
            commit=self.commit,
            truncated=source.truncated,
            attachments=source.attachments,
        )

    def _grow(self, records: Sequence[Record]) -> None:
        """Leaves, parents, and publications of the turns that ended, in the order of the events."""
        *inherited, own = self.lineage.segments
        self.lineage = Lineage((*inherited, replace(own, end_exclusive=self.length)))
        forest = Forest(
            self.tx, own.tree, number=self.session.number, lineage=self.lineage, made={}
        )
        csn = self.tx.meta.next_csn() if records else Csn(0)
        if self.publishing is not None:
            self._publish_past(self.publishing, records)
            return
        pending = iter(records)
        for event in self._events:
            if isinstance(event, Turn):
                forest.put_made()
                self._finish(event)
                continue
            record, scope_id = next(pending), event.scope_id
            seal_leaf(
                self.tx,
                self.deps,
                forest,
                record=record,
                scope_id=scope_id,
                text=event.source.text,
                csn=csn,
            )
            complete_parents(self.tx, self.deps, forest, record.seq + 1, scope_id, csn)
        forest.put_made()

    def _publish_past(self, publishing: past.Publishing, records: Sequence[Record]) -> None:
        """Under lines that only name the turns; their nodes are left unmade."""
        if records:
            generation = generation_of(self.tx, self.lineage.segments[-1].tree)
            if generation.unmade_from is None:
                unmade = replace(generation, unmade_from=records[0].seq)
                self.tx.sessions.put_generation(unmade)
        told = [e.source.text for e in self._events if isinstance(e, _Sealed)]
        # A copy whose original is nowhere is all that there is of it.
        turns = [
            turn
            for turn in self._events
            if isinstance(turn, Turn)
            and (not self._copied(turn) or self.request.session.fork_of is None)
        ]
        publishing.add(self.session, turns, history=self.lineage, fresh=past.Fresh(records, told))

    def _finish(self, turn: Turn) -> None:
        hurry_session(self.tx, self.deps, self.session.session_id, turn.closed_ms or 0)
        if not self._copied(turn):
            schedule_publication(self.tx, self.deps, turn, history=self.lineage)

    def _copied(self, turn: Turn) -> bool:
        """Whether the host copied the turn along from a session that is not known here.

        It is then older than this session, and no work of it (§5).
        """
        assert turn.closed_ms is not None
        return turn.closed_ms < self.request.session.created_ms
