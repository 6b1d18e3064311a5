"""Whether what a scope holds is whole: records, originals, summaries, views, publications (§10).

Reads only. What is being made, or has failed where a person can see it, is no fault; what is gone
without anything queued to make it again is one. ``engine.repair`` acts on what is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from optchat.core.publications import Publication
from optchat.core.records import Session, Turn
from optchat.core.scopes import Scope
from optchat.core.tree import ScopeTree, SessionTree, Tree, parse_tree
from optchat.core.views import View
from optchat.engine.forest import Forest
from optchat.engine.forget import holds_anything
from optchat.engine.lifecycle import is_current
from optchat.engine.nodes import is_retired, node_target
from optchat.engine.publish import source_cover
from optchat.engine.sessions import lineage, own_lineage
from optchat.errors import IntegrityError
from optchat.refs import Span
from optchat.storage.ports import Job, JobKind, JobState, Tx
from optchat.wire import Fault

NAMED_MAX = 5
"""How many of a kind a fault names; the rest it counts."""

REPAIR = "optchat doctor --repair"
SAVE = "optchat export FOLDER, which saves what can be read"

Verify = Callable[[], bool]
"""Whether the next original is to be hashed; asked once for each."""


@dataclass(slots=True)
class Found:
    """What is wrong with one session or one scope's shared tree."""

    faults: list[Fault] = field(default_factory=list[Fault])
    lost: list[tuple[Forest, Span]] = field(default_factory=list[tuple[Forest, Span]])
    stuck: list[Job] = field(default_factory=list[Job])
    views: list[Forest] = field(default_factory=list[Forest])
    unpublished: list[Turn] = field(default_factory=list[Turn])
    records: int = 0
    hashed: int = 0

    def add(self, what: str, unharmed: str, following: str) -> None:
        self.faults.append(Fault(what=what, unharmed=unharmed, next=following))


def check_session(tx: Tx, session: Session, verify: Verify) -> Found:
    """One session: its generations, their records, originals and summaries, its view, its turns."""
    found = Found()
    held = tx.sessions.generations(session.session_id)
    last = max([session.generation, *(g.number for g in held)])
    for number in range(last + 1):
        tree = SessionTree(session.session_id, number)
        try:
            history = lineage(tx, tree)
        except IntegrityError as error:
            found.add(
                f"a part of the history of s{session.number} is gone: {error.message}",
                "the other conversations are whole",
                f"optchat resync {session.host_session}, which reads it from the host again",
            )
            continue
        forest = Forest(tx, tree, number=session.number, lineage=history)
        _check_records(tx, found, forest, verify)
        own = history.segments[-1]
        unmade = next((g.unmade_from for g in held if g.number == number), None)
        made = own.end_exclusive if unmade is None else min(unmade, own.end_exclusive)
        _check_nodes(tx, found, forest, _complete(own.start, made))
        if number == session.generation:
            _check_view(found, forest, tx.trees.view(tree), history.length)
    _check_turns(tx, found, session)
    return found


def check_scope(tx: Tx, scope: Scope) -> Found:
    """What a scope shares: its publications with their covers, its tree, its view."""
    found = Found()
    forest = Forest(tx, ScopeTree(scope.scope_id))
    published = {p.seq: p for p in tx.publications.range(scope.scope_id, 0, scope.publications)}
    numbers = range(scope.publications)
    gone = [n for n in numbers if n not in published and not _is_forgotten(forest, n)]
    if gone:
        found.add(
            f"{len(gone)} publications of {scope.name} are gone: {_some(f'pub:{n}' for n in gone)}",
            "the conversations that they were of are kept",
            SAVE,
        )
    for publication in published.values():
        if publication.died is None:
            _check_cover(tx, found, publication)
    _check_nodes(tx, found, forest, _complete(0, scope.publications))
    _check_view(found, forest, tx.trees.view(forest.tree), scope.publications)
    return found


def _complete(start: int, end_exclusive: int) -> Iterator[Span]:
    """Every span that is complete once the elements of a range were appended, in that order."""
    for end in range(start + 1, end_exclusive + 1):
        span = Span(end - 1, 1)
        yield span
        while span.parent.end_exclusive == end:
            span = span.parent
            yield span


def _check_records(tx: Tx, found: Found, forest: Forest, verify: Verify) -> None:
    assert forest.lineage is not None
    own = forest.lineage.segments[-1]
    held = {r.seq: r for r in tx.records.range(own.tree, own.start, own.end_exclusive)}
    found.records += len(held)
    seqs = range(own.start, own.end_exclusive)
    gone = [seq for seq in seqs if seq not in held and not _is_forgotten(forest, seq)]
    if gone:
        refs = _some(str(forest.ref(Span(seq, 1))) for seq in gone)
        found.add(f"{len(gone)} records are gone: {refs}", "all others are served", SAVE)
    for seq, record in held.items():
        ref = str(forest.ref(Span(seq, 1)))
        try:
            told = ""
            if tx.blobs.size(record.payload) != record.payload_bytes:
                told = "it has another length."
            elif verify():
                found.hashed += 1
                tx.blobs.verify(record.payload)
        except IntegrityError as error:
            told = error.message
        if told:
            found.add(
                f"the original of {ref} cannot be read: {told}",
                "its summary and every other original are served",
                SAVE,
            )


def _is_forgotten(forest: Forest, position: int) -> bool:
    """Whether a tombstone keeps the position of what was removed on purpose."""
    leaf = forest.node(Span(position, 1))
    return leaf is not None and is_retired(leaf)


def _check_nodes(tx: Tx, found: Found, forest: Forest, spans: Iterator[Span]) -> None:
    lost: list[Span] = []
    for span in spans:
        if tx.trees.node(forest.owner(span), span) is not None:
            continue
        job = job_for(tx, forest.tree, span)
        if job is None or not _is_open(job):
            lost.append(span)
        elif job.state is JobState.WAITING and not _waits(tx, job):
            found.stuck.append(job)
            found.add(
                f"the summary {forest.ref(span)} waits for lines that are there",
                "its originals and finer lines are served",
                REPAIR,
            )
    found.lost += [(forest, span) for span in lost]
    if lost:
        refs = _some(str(forest.ref(span)) for span in lost)
        found.add(
            f"{len(lost)} summaries are gone, and nothing is queued to make them: {refs}",
            "their originals are kept",
            REPAIR,
        )


def job_for(tx: Tx, tree: Tree, span: Span) -> Job | None:
    """The newest job that was to make the node of a span."""
    if isinstance(tree, ScopeTree) and span.count == 1:
        publication = tx.publications.publication(tree.scope_id, span.start)
        return tx.jobs.of_target(JobKind.TURN, publication.turn_id) if publication else None
    return tx.jobs.of_target(JobKind.NODE, node_target(tree, span))


def _waits(tx: Tx, job: Job) -> bool:
    """Whether something that a job waits for is not there yet, or is being made again."""
    for name, span in tx.jobs.waits(job.job_id):
        tree = parse_tree(name)
        maker = job_for(tx, tree, span)
        if tx.trees.node(tree, span) is None or _is_open(maker):
            return True
    return False


def _is_open(job: Job | None) -> bool:
    return job is not None and job.state is not JobState.DONE


def _check_view(found: Found, forest: Forest, view: View, length: int) -> None:
    """The newest frontier: no gap, no overlap, and each line that it names is there (I2)."""
    fault = _view_fault(forest, view, length)
    if fault:
        found.views.append(forest)
        is_shared = isinstance(forest.tree, ScopeTree)
        shown = "the shared memory" if is_shared else f"s{forest.number}"
        found.add(f"the view of {shown} {fault}", "all that it is made from is kept", REPAIR)


def _view_fault(forest: Forest, view: View, length: int) -> str:
    at = 0
    for entry in view.entries:
        if entry.span.start != at:
            return f"has a gap or an overlap at {at}"
        at = entry.span.end_exclusive
        if at > length:
            return f"reaches to {at}, past the end at {length}"
        owner = forest.owner(entry.span)
        if forest.tx.trees.node_revision(owner, entry.span, entry.revision) is None:
            return f"names {forest.ref(entry.span)}, whose line is gone"
    # A session's own view takes new leaves in when it is folded, the shared one at once.
    if isinstance(forest.tree, ScopeTree) and at < length and not _pending(forest, at):
        return f"ends at {at}, before the {length} that there are"
    return ""


def _pending(forest: Forest, at: int) -> bool:
    """Whether the leaf that a shared view ends before is being made again."""
    leaf = Span(at, 1)
    return forest.node(leaf) is None and _is_open(job_for(forest.tx, forest.tree, leaf))


def _check_cover(tx: Tx, found: Found, publication: Publication) -> None:
    """A live publication's cover: exactly its range, in order, of nodes of its own history (§5)."""
    at = publication.start_seq
    fault = ""
    try:
        history = lineage(tx, SessionTree(publication.session_id, publication.generation))
        for part in publication.cover:
            if part.span.start != at or history.tree_of(part.span) != part.tree:
                fault = f"does not cover record {at}"
                break
            at = part.span.end_exclusive
        if not fault and at != publication.end_seq_exclusive:
            fault = f"ends at {at} instead of {publication.end_seq_exclusive}"
    except (IntegrityError, LookupError):
        fault = "leads to a history that is gone"
    if fault:
        found.add(
            f"the sources of pub:{publication.seq} are not whole: its cover {fault}",
            "its line and the other publications are served",
            SAVE,
        )


def _check_turns(tx: Tx, found: Found, session: Session) -> None:
    """Every closed turn of the history as it is now is published, or a job is to do it (§9).

    A turn that was copied along in a fork is not this session's work, and is not published; neither
    is one of no scope.
    """
    for turn in tx.turns.of_session(session.session_id):
        end = turn.end_seq_exclusive
        if turn.scope_id is None or end is None or (turn.closed_ms or 0) < session.created_ms:
            continue
        if (
            tx.publications.of_turn(turn.turn_id) is None
            and not _is_open(tx.jobs.of_target(JobKind.TURN, turn.turn_id))
            and is_current(tx, session, turn)
            and holds_anything(tx, turn)  # else it was forgotten
            and source_cover(own_lineage(tx, session), turn)
        ):
            found.unpublished.append(turn)
            found.add(
                f"the turn s{session.number}:{turn.generation} {turn.start_seq}..{end} is not "
                "published, and nothing is queued to do it",
                "its records are kept and its own conversation has them",
                REPAIR,
            )


def _some(names: Iterator[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMED_MAX} more" if len(listed) > NAMED_MAX else ""
    return ", ".join(listed[:NAMED_MAX]) + more
