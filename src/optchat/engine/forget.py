"""Forgetting sessions and turns: one transaction after which nothing shows them again (§12, I8).

A session goes with its row, records, summaries, publications and jobs. A turn goes out of a session
that stays: its positions are kept by tombstones, so that refs and lineages of the rest hold. What a
host may still tell of either is fenced by the hash of its id, and late results by jobs that are no
longer there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from optchat.core.publications import Publication
from optchat.core.records import Lineage, Segment, Session, Turn
from optchat.core.scopes import Project, is_isolated, project_scope
from optchat.core.tree import ScopeTree, SessionTree
from optchat.engine.adopt import hand_over, needed
from optchat.engine.deps import Deps
from optchat.engine.erase import Counts, erase_records, heirs, move_epoch, withdraw
from optchat.engine.publish import schedule_publication
from optchat.engine.quotes import Going, places
from optchat.engine.sessions import lineage, require_scope
from optchat.engine.tombstones import NO_DIGEST, message_key, session_key
from optchat.refs import ScopeId, SessionId, TurnId
from optchat.storage.ports import JobKind, Removal, Tx

UNSCRUBBED = "unscrubbed"
"""Says "1" in the store's named values from a removal until its bytes are overwritten."""


def forget_sessions(tx: Tx, deps: Deps, sessions: Collection[Session], what: str) -> Removal:
    """Forget whole sessions, and those that the host made under them (subagents).

    A surviving fork keeps what it inherited as its own, or loses it too, by ``sharing.forks``.
    """
    doomed = _with_children(tx, sessions)
    ids = frozenset(s.session_id for s in doomed)
    turns = [t for s in doomed for t in tx.turns.of_session(s.session_id)]
    published = [p for t in turns for p in tx.publications.of_turn_ever(t.turn_id)]
    kept = {
        (tree, seq)
        for session in doomed
        for tree, need in needed(tx, session, ids).items()
        for seq in range(_own_start(tx, tree), need.end_exclusive)
    }
    counts = Counts()
    pieces = tuple(
        Segment(g.tree, g.inherited, g.length)
        for s in doomed
        for g in tx.sessions.generations(s.session_id)
    )
    found = _places(tx, deps, Going(pieces, tuple(published)), {s.scope_id for s in doomed})
    if deps.config.sharing.forks == "forget" and kept:
        lost = [t for t in turns if kept & set(_seqs(_pieces(tx, t)))]
        _erase_turns(tx, deps, versions(tx, lost), counts)
        published = [p for p in published if tx.publications.publication(p.scope_id, p.seq)]
    cut = _cut_turns(tx, kept, ids)
    published += [p for t in cut for p in tx.publications.of_turn_ever(t.turn_id)]
    withdraw(tx, deps, published, counts)
    for scope_id in sorted({s.scope_id for s in doomed} - {p.scope_id for p in published}):
        move_epoch(tx, scope_id, counts)
    for session in doomed:
        _remove_session(tx, deps, session, ids, counts)
    for turn in cut:
        _publish_again(tx, deps, turn)
    return _close(tx, deps, counts, what, found)


def forget_turns(tx: Tx, deps: Deps, turns: Collection[Turn], what: str) -> Removal:
    """Forget turns, with every version of each, out of sessions that stay.

    ``turns`` are those that ``versions`` gave.
    """
    counts = Counts()
    published = [p for t in turns for p in tx.publications.of_turn_ever(t.turn_id)]
    pieces = tuple(piece for t in turns for piece in _pieces(tx, t))
    sessions = {t.session_id: tx.sessions.session(t.session_id) for t in turns}
    scopes = {s.scope_id for s in sessions.values() if s is not None}
    found = _places(tx, deps, Going(pieces, tuple(published)), scopes)
    _erase_turns(tx, deps, turns, counts)
    return _close(tx, deps, counts, what, found)


def forget_project(tx: Tx, deps: Deps, project: Project) -> Removal:
    """Forget every session of a project, the project, and the scope that was its own."""
    sessions = tx.sessions.of_project(project.project_id)
    removal = forget_sessions(tx, deps, sessions, "a project")
    scope_id = project_scope(project.project_id)
    if tx.sessions.scope(scope_id) is not None:
        _remove_scope(tx, scope_id)
    tx.sessions.remove_project(project.project_id)
    return removal


def versions(tx: Tx, turns: Collection[Turn]) -> tuple[Turn, ...]:
    """The turns with all that share a record or, in one session, the opening message with them.

    An edit or a fork in the middle of a turn leaves several turns over the same words.
    """
    family = _Family(tx)
    found: dict[TurnId, Turn] = {t.turn_id: t for t in turns}
    pending = list(turns)
    while pending:
        for other in family.like(pending.pop()):
            if other.turn_id not in found:
                found[other.turn_id] = other
                pending.append(other)
    return tuple(sorted(found.values(), key=lambda t: (t.session_id, t.start_seq, t.turn_id)))


def holds_anything(tx: Tx, turn: Turn) -> bool:
    """Whether a turn has a record left."""
    return any(tx.records.range(p.tree, p.start, p.end_exclusive) for p in _pieces(tx, turn))


@dataclass(slots=True)
class _Family:
    """The turns of the sessions that share history, by their records and by their first message."""

    tx: Tx
    _read: set[SessionId] = field(default_factory=set[SessionId])
    _by_record: dict[tuple[SessionTree, int], list[Turn]] = field(
        default_factory=dict[tuple[SessionTree, int], list[Turn]]
    )
    _by_key: dict[tuple[SessionId, str], list[Turn]] = field(
        default_factory=dict[tuple[SessionId, str], list[Turn]]
    )
    _histories: dict[SessionTree, Lineage] = field(default_factory=dict[SessionTree, Lineage])

    def like(self, turn: Turn) -> Iterator[Turn]:
        self._read_session(turn.session_id)
        for piece in self._of(turn):
            for heir in heirs(self.tx, piece.tree):
                self._read_session(heir.session_id)
        yield from self._by_key.get((turn.session_id, turn.key), ())
        for place in _seqs(self._of(turn)):
            yield from self._by_record.get(place, ())

    def _read_session(self, session_id: SessionId) -> None:
        if session_id in self._read:
            return
        self._read.add(session_id)
        for turn in self.tx.turns.of_session(session_id):
            self._by_key.setdefault((session_id, turn.key), []).append(turn)
            for place in _seqs(self._of(turn)):
                self._by_record.setdefault(place, []).append(turn)

    def _of(self, turn: Turn) -> tuple[Segment, ...]:
        tree = SessionTree(turn.session_id, turn.generation)
        if tree not in self._histories:
            self._histories[tree] = lineage(self.tx, tree)
        return _within(self._histories[tree], turn)


def _pieces(tx: Tx, turn: Turn) -> tuple[Segment, ...]:
    return _within(lineage(tx, SessionTree(turn.session_id, turn.generation)), turn)


def _within(history: Lineage, turn: Turn) -> tuple[Segment, ...]:
    end = turn.end_seq_exclusive if turn.end_seq_exclusive is not None else history.length
    return history.owners(turn.start_seq, end)


def _seqs(pieces: Collection[Segment]) -> Iterator[tuple[SessionTree, int]]:
    return ((p.tree, seq) for p in pieces for seq in range(p.start, p.end_exclusive))


def _erase_turns(tx: Tx, deps: Deps, turns: Collection[Turn], counts: Counts) -> None:
    published: list[Publication] = []
    pieces: dict[Segment, None] = {}
    counts.turns += sum(holds_anything(tx, t) for t in turns)
    for turn in turns:
        published += tx.publications.of_turn_ever(turn.turn_id)
        pieces.update(dict.fromkeys(_pieces(tx, turn)))
        counts.jobs += tx.jobs.remove(JobKind.TURN, turn.turn_id)
        tx.ledger.disown(turn_id=turn.turn_id)
    trees = {p.tree for p in pieces}
    touched = {h.session_id for tree in trees for h in heirs(tx, tree)}
    touched |= {t.session_id for t in turns}
    _bury_messages(tx, turns, tuple(pieces), touched)
    withdraw(tx, deps, published, counts)
    erase_records(tx, deps, pieces, counts)
    sessions = [s for i in sorted(touched) if (s := tx.sessions.session(i)) is not None]
    for scope_id in sorted({s.scope_id for s in sessions} - {p.scope_id for p in published}):
        move_epoch(tx, scope_id, counts)
    for session in sessions:
        if not any(holds_anything(tx, t) for t in tx.turns.of_session(session.session_id)):
            tx.sessions.put_session(replace(session, title=""))


def _bury_messages(
    tx: Tx, turns: Collection[Turn], pieces: Collection[Segment], touched: Collection[SessionId]
) -> None:
    """Fence the messages of turns, those that the host has now and those that it had."""
    places = set(_seqs(pieces))
    going = {t.turn_id for t in turns}
    for piece in pieces:
        owner = tx.sessions.session(piece.tree.session_id)
        for record in tx.records.range(piece.tree, piece.start, piece.end_exclusive):
            if owner is not None:
                tx.removals.bury(message_key(owner.host, owner.host_session, record.message_id))
    for session_id in sorted(touched):
        session = tx.sessions.session(session_id)
        if session is None:
            continue
        history = lineage(tx, SessionTree(session_id, session.generation))
        for message in tx.membership.messages(session_id):
            own = history.owners(message.start_seq, message.end_seq_exclusive)
            if message.turn_id in going or not places.isdisjoint(_seqs(own)):
                tx.removals.bury(
                    message_key(session.host, session.host_session, message.message_id)
                )
                tx.membership.put(msgspec.structs.replace(message, digest=NO_DIGEST))


def _with_children(tx: Tx, sessions: Collection[Session]) -> list[Session]:
    found = {s.session_id: s for s in sessions}
    pending = list(sessions)
    while pending:
        parent = pending.pop()
        for other in tx.sessions.of_project(parent.project_id):
            is_child = (other.host, other.parent_host_session) == (parent.host, parent.host_session)
            if is_child and other.session_id not in found:
                found[other.session_id] = other
                pending.append(other)
    return sorted(found.values(), key=lambda s: s.session_id)


def _cut_turns(
    tx: Tx, kept: Collection[tuple[SessionTree, int]], doomed: frozenset[SessionId]
) -> list[Turn]:
    """Published turns of surviving forks that begin in what they inherited: their lines tell it."""
    forks = {h.session_id for t in {tree for tree, _ in kept} for h in heirs(tx, t)} - doomed
    return [
        turn
        for session_id in sorted(forks)
        for turn in tx.turns.of_session(session_id)
        if not set(kept).isdisjoint(_seqs(_pieces(tx, turn)))
        and tx.publications.of_turn(turn.turn_id) is not None
    ]


def _publish_again(tx: Tx, deps: Deps, turn: Turn) -> None:
    """Under a new number, without what the line may not tell any more."""
    history = lineage(tx, SessionTree(turn.session_id, turn.generation))
    tx.jobs.remove(JobKind.TURN, turn.turn_id)
    schedule_publication(tx, deps, turn, history=history)


def _own_start(tx: Tx, tree: SessionTree) -> int:
    generation = tx.sessions.generation(tree.session_id, tree.generation)
    return generation.inherited if generation is not None else 0


def _remove_session(
    tx: Tx, deps: Deps, session: Session, doomed: frozenset[SessionId], counts: Counts
) -> None:
    counts.sessions += 1
    for turn in tx.turns.of_session(session.session_id):
        counts.jobs += tx.jobs.remove(JobKind.TURN, turn.turn_id)
    jobs = tx.jobs.remove_queue(session.session_id)
    counts.jobs += len(jobs)
    hand_over(tx, deps, session, doomed, jobs)
    counts.turns += sum(holds_anything(tx, t) for t in tx.turns.of_session(session.session_id))
    for generation in tx.sessions.generations(session.session_id):
        payloads = tx.records.remove(generation.tree, 0, generation.length)
        counts.records += len(payloads)
        counts.payload_hashes.update(payloads)
        counts.summaries += tx.trees.remove_tree(generation.tree)
    tx.membership.truncate(session.session_id, 0)
    tx.turns.remove(session.session_id)
    tx.ledger.disown(session_id=session.session_id)
    tx.removals.bury(session_key(session.host, session.host_session))
    tx.sessions.remove_session(session.session_id)
    if is_isolated(session.scope_id) and not tx.sessions.sessions(session.scope_id):
        _remove_scope(tx, session.scope_id)


def _remove_scope(tx: Tx, scope_id: ScopeId) -> None:
    """Remove a scope that has no session left and, by its name, never gets one again."""
    if tx.sessions.sessions(scope_id):
        return
    scope = require_scope(tx, scope_id)
    for publication in tx.publications.range(scope_id, 0, scope.publications):
        tx.publications.remove(scope_id, publication.seq)
    tx.folds.remove_rendered(scope_id)
    tx.jobs.remove_queue(scope_id)
    tx.trees.remove_tree(ScopeTree(scope_id))
    tx.sessions.remove_scope(scope_id)


def _places(tx: Tx, deps: Deps, going: Going, scopes: Collection[ScopeId]) -> tuple[str, ...]:
    all_scopes = {*scopes, *(p.scope_id for p in going.publications)}
    mask = deps.config.privacy.mask
    found = [places(tx, require_scope(tx, i), going, mask=mask) for i in sorted(all_scopes)]
    return tuple(ref for refs in found for ref in refs)


def _close(tx: Tx, deps: Deps, counts: Counts, what: str, found: tuple[str, ...]) -> Removal:
    counts.payloads = tx.blobs.drop_unused(counts.payload_hashes)
    removal = Removal(at_ms=deps.clock.now_ms(), what=what, counts=counts.told(), places=found)
    tx.removals.log(removal)
    tx.meta.put(UNSCRUBBED, "1")
    return removal
