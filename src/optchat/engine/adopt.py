"""What a surviving fork has of a session that is forgotten becomes the fork's own (§12).

A fork's history begins inside another session's generations. These go over to it whole, under
numbers of its own, with the records, nodes and jobs up to where the last fork needs them; what
comes after goes with the session. Nothing is copied, and no ref is left without its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from optchat.core.records import Generation, Outcome, Segment, Session
from optchat.core.tree import SessionTree, parse_tree
from optchat.engine.deps import Deps
from optchat.engine.erase import heirs
from optchat.engine.forest import Forest
from optchat.engine.nodes import enqueue_node
from optchat.engine.sessions import lineage
from optchat.refs import SessionId, Span
from optchat.storage.ports import Job, JobKind, Tx


@dataclass(slots=True)
class Need:
    """How much of a generation survives, and the session that it goes to."""

    end_exclusive: int
    heir: SessionId


def needed(tx: Tx, session: Session, doomed: frozenset[SessionId]) -> dict[SessionTree, Need]:
    """What sessions outside of ``doomed`` have of this session's own records."""
    found: dict[SessionTree, Need] = {}
    for generation in tx.sessions.generations(session.session_id):
        for heir in heirs(tx, generation.tree):
            if heir.session_id in doomed:
                continue
            for piece in _pieces(tx, heir.tree, heir.length):
                if piece.tree.session_id != session.session_id:
                    continue
                need = found.setdefault(piece.tree, Need(0, heir.session_id))
                need.end_exclusive = max(need.end_exclusive, piece.end_exclusive)
                need.heir = min(need.heir, heir.session_id)
    return found


def hand_over(
    tx: Tx, deps: Deps, session: Session, doomed: frozenset[SessionId], jobs: tuple[Job, ...]
) -> None:
    """Give a doomed session's generations to the forks that need them.

    ``jobs`` are the session's unfinished ones, taken out of the queue: those for nodes that survive
    are scheduled again in the heir's name.
    """
    needs = needed(tx, session, doomed)
    renamed: dict[SessionTree, SessionTree] = {}
    for tree in sorted(needs, key=lambda t: t.generation):
        heir = needs[tree].heir
        taken = tx.sessions.generations(heir)[-1].number
        renamed[tree] = SessionTree(heir, taken + 1)
        tx.sessions.put_generation(Generation(session_id=heir, number=taken + 1, adopted=True))
    for tree, to in renamed.items():
        old = tx.sessions.generation(tree.session_id, tree.generation)
        assert old is not None
        end = needs[tree].end_exclusive
        tx.sessions.put_generation(
            Generation(
                session_id=to.session_id,
                number=to.generation,
                base=_base(tx, old, renamed),
                inherited=old.inherited,
                length=end,
                adopted=True,
                unmade_from=old.unmade_from if (old.unmade_from or 0) < end else None,
            )
        )
        tx.records.move(tree, to, end)
        tx.trees.move(tree, to, end)
        _move_turns(tx, session, tree, to, end)
        tx.publications.move_covers(tree, to)
        tx.jobs.move_waits(tree, to)
    for generation in tx.sessions.generations(session.session_id):
        for heir in tx.sessions.derived(generation.tree):
            if heir.session_id not in doomed:
                tx.sessions.put_generation(replace(heir, base=_base(tx, heir, renamed)))
    for job in jobs:
        _schedule_again(tx, deps, job, renamed, needs)


def _move_turns(
    tx: Tx, session: Session, tree: SessionTree, to: SessionTree, end_exclusive: int
) -> None:
    """The turns that the surviving records are of, so that they too can be forgotten by name."""
    for turn in tx.turns.of_session(session.session_id):
        if turn.generation != tree.generation or turn.start_seq >= end_exclusive:
            continue
        end = min(end_exclusive, turn.end_seq_exclusive or end_exclusive)
        tx.turns.put(
            replace(
                turn,
                session_id=to.session_id,
                generation=to.generation,
                scope_id=None,
                end_seq_exclusive=end,
                outcome=turn.outcome or Outcome.INTERRUPTED,
                closed_ms=turn.closed_ms or turn.opened_ms,
                pin=None,
                fold_id=None,
                news="",
            )
        )


def _pieces(tx: Tx, tree: SessionTree, end_exclusive: int) -> tuple[Segment, ...]:
    history = lineage(tx, tree).clipped(end_exclusive)
    return tuple(s for s in history.segments if s.start < s.end_exclusive)


def _base(
    tx: Tx, generation: Generation, renamed: dict[SessionTree, SessionTree]
) -> SessionTree | None:
    """The tree of the last record that the generation inherits, by its name from now on."""
    if generation.base is None:
        return None
    inherited = _pieces(tx, generation.base, generation.inherited)
    return renamed.get(inherited[-1].tree, inherited[-1].tree) if inherited else None


def _schedule_again(
    tx: Tx,
    deps: Deps,
    job: Job,
    renamed: dict[SessionTree, SessionTree],
    needs: dict[SessionTree, Need],
) -> None:
    if job.kind is not JobKind.NODE:
        return
    name, _, place = job.target.partition("#")
    start, _, count = place.partition("+")
    tree, span = parse_tree(name), Span(int(start), int(count))
    if not isinstance(tree, SessionTree) or tree not in renamed:
        return
    if span.end_exclusive > needs[tree].end_exclusive:
        return
    to = renamed[tree]
    heir = tx.sessions.session(to.session_id)
    assert heir is not None
    forest = Forest(tx, to, lineage=lineage(tx, to))
    children = span.children if span.count > 1 else ()
    waits = tuple((forest.owner(c), c) for c in children if forest.node(c) is None)
    revision = int(job.input_hash.removeprefix("r"))
    enqueue_node(
        tx, deps, to, span, heir.session_id, heir.scope_id, waits_for=waits, revision=revision
    )
