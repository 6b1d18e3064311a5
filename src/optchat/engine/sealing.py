"""Sealing what a session's host holds beyond what is sealed: records, turns and their trees (§3).

A turn that ended is closed, and its publication made or scheduled, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from optchat.core.records import Generation, HostMessage, Lineage, Record, Session, Turn, extend
from optchat.engine import past
from optchat.engine.deps import Deps
from optchat.engine.draft import Draft, DraftTurn, Start, draft_of
from optchat.engine.forest import Forest
from optchat.engine.keys import revised
from optchat.engine.nodes import complete_parents, hurry_session, seal_leaf
from optchat.engine.payloads import Prepared, Source, told_twice
from optchat.engine.publish import schedule_publication
from optchat.engine.scopes import settle
from optchat.engine.sessions import generation_of, open_turn, own_lineage, scope_for
from optchat.engine.tombstones import forgotten_messages
from optchat.refs import Csn, TurnId
from optchat.storage.ports import Tx
from optchat.wire import SessionInfo, SyncRequest


class Sealing:
    """One pass over the messages that follow what is sealed; written in few statements.

    ``publishing``: it is history that is taken in, whose turns are published there.
    """

    def __init__(
        self,
        tx: Tx,
        deps: Deps,
        session: Session,
        info: SessionInfo,
        commit: str | None,
        *,
        is_new: bool,
        publishing: past.Publishing | None,
    ) -> None:
        self._tx = tx
        self._deps = deps
        self._info = info
        self._commit = commit
        self._publishing = publishing
        self._is_new = is_new
        self.session = session
        # One that has just been made holds nothing, which need not be looked up.
        made = Generation(session_id=session.session_id, number=0)
        self.lineage = extend(None, made) if is_new else own_lineage(tx, session)
        self.turn = None if is_new else open_turn(tx, session)

    def draft(
        self, request: SyncRequest, prepared: Prepared, held: Sequence[HostMessage]
    ) -> tuple[Draft, Prepared]:
        """What can be sealed behind the messages that are ``held``, with the sources of it.

        Raises:
            EventConflict: a part is sealed with other content; nothing is written.
        """
        behind = held[-1].end_seq_exclusive if held else 0
        new = [message.id for message in request.messages[len(held) :]]
        start = Start(
            position=len(held),
            seq=self.lineage.length,
            turn=self.turn,
            last_ms=self._last_recorded_ms(self.turn) if self.turn is not None else 0,
            forgotten=forgotten_messages(self._tx, self._info, new),
        )
        prepared = self._unsealed(prepared, new, behind)
        return draft_of(request, prepared, self._deps.clock.now_ms(), start), prepared

    def _last_recorded_ms(self, turn: Turn) -> int:
        """When the newest record of the open turn happened, whichever report brought it."""
        return max((r.host_time_ms for r in self._records(turn.start_seq)), default=0)

    def _records(self, start: int) -> Iterator[Record]:
        for piece in self.lineage.owners(start, self.lineage.length):
            yield from self._tx.records.range(piece.tree, piece.start, piece.end_exclusive)

    def _unsealed(self, prepared: Prepared, messages: Sequence[str], behind: int) -> Prepared:
        """Without records that no message of the membership accounts for: none, as a rule (I5)."""
        sealed = {
            record.event_key: b"".join(self._tx.blobs.chunks(record.payload))
            for record in self._records(behind)
        }
        if not sealed:
            return prepared
        left: dict[str, list[Source]] = {}
        for message in messages:
            left[message] = []
            for source in prepared.get(message, ()):
                payload = sealed.get(revised(source.key, self.session.generation))
                if payload is None:
                    left[message].append(source)
                elif payload != source.payload:
                    raise told_twice(message, self._info)
        return left

    def put(self, draft: Draft, prepared: Prepared) -> int:
        """Seal a draft, its first turns in the scope that the session was in; how many records."""
        if draft.opens:
            scope_id = scope_for(self._tx, self._deps, self.session)
            if scope_id != self.session.scope_id:
                before, draft = draft.halves()
                sealed = self._put(before, prepared)  # what a move takes back must be there
                if self._publishing is not None:
                    self._publishing.put_down()
                self.session = settle(self._tx, self._deps, self.session)
                return sealed + self._put(draft, prepared)
        return self._put(draft, prepared)

    def _put(self, draft: Draft, prepared: Prepared) -> int:
        """Put all down, then grow the trees over it and schedule what is due."""
        sources = draft.sources(prepared)
        ended = any(turn.outcome is not None for turn in draft.turns)
        if self._publishing is None and (sources or ended):
            # The session is used again: what was taken in of it as history gets its nodes first.
            past.make_nodes(self._tx, self._deps, self.session, self.lineage)
        turns = [self._turn(made, draft, at) for at, made in enumerate(draft.turns)]
        records = self._sealed(draft, turns, sources)
        self._tx.blobs.put_many({source.blob: source.payload for source in sources})
        self._tx.records.append(records, [source.indexed for source in sources])
        if draft.goes_on and turns[0].outcome is not None:
            self._tx.turns.put(turns[0])
        self._tx.turns.put_many(turns[draft.goes_on :])
        self._tx.membership.put_many(
            [
                HostMessage(
                    self.session.session_id,
                    m.position,
                    m.message_id,
                    m.digest,
                    turns[m.turn].turn_id if m.turn >= 0 else TurnId(""),
                    m.start_seq,
                    m.end_seq_exclusive,
                )
                for m in draft.messages
            ]
        )
        if sources or ended:
            self._grow(draft, turns, records, sources)
        self.turn = turns[-1] if turns and turns[-1].outcome is None else None
        return len(records)

    def _turn(self, made: DraftTurn, draft: Draft, at: int) -> Turn:
        if draft.goes_on and at == 0:
            assert self.turn is not None
            return replace(
                self.turn,
                end_seq_exclusive=made.end_seq_exclusive,
                outcome=made.outcome,
                closed_ms=made.closed_ms,
            )
        return Turn(
            turn_id=TurnId(self._deps.ids.new_id()),
            session_id=self.session.session_id,
            generation=self.session.generation,
            key=made.key,
            start_seq=made.start_seq,
            opened_ms=made.opened_ms,
            scope_id=None if self.session.isolated else self.session.scope_id,
            end_seq_exclusive=made.end_seq_exclusive,
            outcome=made.outcome,
            closed_ms=made.closed_ms,
        )

    def _sealed(
        self, draft: Draft, turns: Sequence[Turn], sources: Sequence[Source]
    ) -> list[Record]:
        """Each source with its place."""
        session, sealed_ms = self.session, self._deps.clock.now_ms()
        generation, worktree, first = session.generation, self._info.worktree, draft.start_seq
        found: list[Record] = []
        for message in draft.messages:
            start, end = message.start_seq, message.end_seq_exclusive
            for seq, source in enumerate(sources[start - first : end - first], start):
                found.append(
                    Record(
                        session.session_id,
                        generation,
                        seq,
                        revised(source.key, generation),
                        turns[message.turn].turn_id,
                        message.message_id,
                        source.kind,
                        source.time_ms,
                        sealed_ms,
                        source.blob,
                        len(source.payload),
                        session.project_id,
                        source.tool,
                        source.pair,
                        source.status,
                        worktree,
                        self._commit,
                        source.truncated,
                        source.attachments,
                    )
                )
        return found

    def _grow(
        self,
        draft: Draft,
        turns: Sequence[Turn],
        records: Sequence[Record],
        sources: Sequence[Source],
    ) -> None:
        """Leaves, parents, and publications of the turns that ended, in the order of the events."""
        *inherited, own = self.lineage.segments
        end = draft.end_seq_exclusive
        self.lineage = Lineage((*inherited, replace(own, end_exclusive=end)))
        csn = self._tx.meta.next_csn() if records else Csn(0)
        ended = [turn for turn in turns if turn.outcome is not None]
        if self._publishing is not None:
            self._publish_past(self._publishing, ended, draft, sources)
            return
        forest = Forest(
            self._tx, own.tree, number=self.session.number, lineage=self.lineage, made={}
        )
        at = 0
        for turn in (*ended, None):
            until = len(records)
            if turn is not None and turn.end_seq_exclusive is not None:
                until = turn.end_seq_exclusive - draft.start_seq
            for record, source in zip(records[at:until], sources[at:until], strict=True):
                self._grow_by(forest, record, source, csn)
            at = max(at, until)
            forest.put_made()
            if turn is not None:
                self._finish(turn)

    def _grow_by(self, forest: Forest, record: Record, source: Source, csn: Csn) -> None:
        scope_id = self.session.scope_id
        seal_leaf(
            self._tx,
            self._deps,
            forest,
            record=record,
            scope_id=scope_id,
            text=source.text,
            csn=csn,
        )
        complete_parents(self._tx, self._deps, forest, record.seq + 1, scope_id, csn)

    def _publish_past(
        self,
        publishing: past.Publishing,
        turns: Sequence[Turn],
        draft: Draft,
        sources: Sequence[Source],
    ) -> None:
        """Under lines that only name the turns; their nodes are left unmade."""
        tree, start = self.lineage.segments[-1].tree, draft.start_seq
        if sources and not self._is_new:  # which begins with its nodes unmade
            generation = generation_of(self._tx, tree)
            if generation.unmade_from is None:
                self._tx.sessions.put_generation(replace(generation, unmade_from=start))
        lines = [made.line for made in draft.turns if made.outcome is not None]
        fresh = past.Fresh(start, sources)
        publishing.add(
            self.session,
            [
                (turn, line or past.line_of(self._tx, self._deps, turn, self.lineage, fresh))
                for turn, line in zip(turns, lines, strict=True)
                # A copy whose original is nowhere is all that there is of it.
                if not self._copied(turn) or self._info.fork_of is None
            ],
            self.lineage,
        )

    def _finish(self, turn: Turn) -> None:
        hurry_session(self._tx, self._deps, self.session.session_id, turn.closed_ms or 0)
        if not self._copied(turn):
            schedule_publication(self._tx, self._deps, turn, history=self.lineage)

    def _copied(self, turn: Turn) -> bool:
        """Whether the host copied the turn along from a session that is not known here.

        It is then older than this session, and no work of it (§5).
        """
        assert turn.closed_ms is not None
        return turn.closed_ms < self._info.created_ms
