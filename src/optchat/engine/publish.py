"""Turns that ended become numbered publications of their scope (§5).

The outbox is the job: it is written in the transaction that closes the turn. The publication, its
leaf, the counter and the shared view's revision become visible in one transaction, after the
source cover is durable.
"""

from __future__ import annotations

from dataclasses import dataclass

from optchat.core.publications import CoverPart, Publication
from optchat.core.records import Lineage, RecordKind, Segment, Session, Turn
from optchat.core.tree import Node, NodeKind, ScopeTree, SessionTree, cover
from optchat.core.views import advance
from optchat.engine.deps import Deps
from optchat.engine.forest import Forest
from optchat.engine.labels import label_of
from optchat.engine.lifecycle import is_current
from optchat.engine.nodes import VERBATIM, complete_parents, digest
from optchat.engine.originals import read_text
from optchat.engine.sessions import lineage as lineage_of
from optchat.engine.sessions import require_scope
from optchat.errors import IntegrityError
from optchat.refs import Csn, ScopeId, Span
from optchat.storage.ports import Job, JobKind, JobState, Tx


def published_range(history: Lineage, turn: Turn) -> tuple[int, int]:
    """The records of a closed turn that its publication speaks of.

    All of them, but for those that a fork has from its origin: that work was published there (§5).
    """
    end = turn.end_seq_exclusive if turn.end_seq_exclusive is not None else history.length
    return max(turn.start_seq, min(history.own_start(turn.session_id), end)), end


def told_pieces(history: Lineage, turn: Turn) -> tuple[Segment, ...]:
    """The records of a closed turn that its line may speak of.

    Of a turn that a fork was cut in, also what the fork has from its origin, so that the answer has
    its request; not when the origin was forgotten (§12).
    """
    end = turn.end_seq_exclusive if turn.end_seq_exclusive is not None else history.length
    return tuple(p for p in history.owners(turn.start_seq, end) if not p.adopted)


def source_cover(history: Lineage, turn: Turn) -> tuple[CoverPart, ...]:
    """The session nodes that a turn's publication is made from (§5)."""
    spans = cover(*published_range(history, turn))
    return tuple(CoverPart(history.tree_of(span), span) for span in spans)


def schedule_publication(
    tx: Tx,
    deps: Deps,
    turn: Turn,
    *,
    history: Lineage,
    revision: int = 1,
) -> None:
    """Enqueue the publication of a closed turn; it waits for the nodes of its source cover.

    A turn of no scope is not published, for nobody else may read it (§11); neither is a turn
    without records of its own.
    """
    parts = source_cover(history, turn)
    if turn.scope_id is None or not parts:
        return
    owned = [(part.tree, part.span) for part in parts]
    waits = [(tree, span) for tree, span in owned if tx.trees.node(tree, span) is None]
    job = Job(
        job_id=deps.ids.new_id(),
        kind=JobKind.TURN,
        target=turn.turn_id,
        session_id=turn.session_id,
        scope_id=turn.scope_id,
        input_hash=f"r{revision}",
        state=JobState.READY,
    )
    tx.jobs.put(job, waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSource:
    """What a turn's summary is made from: its cover, and the parts that say what it was about."""

    turn: Turn
    session: Session
    start_seq: int
    cover: tuple[CoverPart, ...]
    nodes: tuple[Node, ...]
    request: str
    answer: str

    @property
    def input_hash(self) -> str:
        outcome = self.turn.outcome.value if self.turn.outcome is not None else "open"
        return digest(outcome, *(part for n in self.nodes for part in (n.input_hash, n.text)))


def turn_source(tx: Tx, turn: Turn, *, text_bytes_max: int, mask: bool = True) -> TurnSource:
    """Read what a closed turn's summary needs.

    Raises:
        IntegrityError: if the turn or a node of its cover is not there.
    """
    session = tx.sessions.session(turn.session_id)
    if session is None or turn.end_seq_exclusive is None:
        raise IntegrityError(f"the turn {turn.turn_id} has no session or no end.")
    history = lineage_of(tx, SessionTree(turn.session_id, turn.generation))
    parts = source_cover(history, turn)
    nodes: list[Node] = []
    for part in parts:
        node = tx.trees.node(part.tree, part.span)
        if node is None:
            raise IntegrityError(f"the node {part.tree}#{part.span} of a source cover is missing.")
        nodes.append(node)
    request, answer = "", ""
    for owner in told_pieces(history, turn):
        for record in tx.records.range(owner.tree, owner.start, owner.end_exclusive):
            wanted = (
                record.kind is RecordKind.USER and record.status != "synthetic" and not request
            ) or record.kind is RecordKind.ASSISTANT
            if not wanted:
                continue
            text, _ = read_text(tx, record.payload, 0, text_bytes_max, mask=mask)
            if record.kind is RecordKind.USER:
                request = text
            else:
                answer = text
    return TurnSource(
        turn=turn,
        session=session,
        start_seq=published_range(history, turn)[0],
        cover=parts,
        nodes=tuple(nodes),
        request=request,
        answer=answer,
    )


def publish(
    tx: Tx,
    deps: Deps,
    source: TurnSource,
    *,
    text: str,
    model: str,
    prompt_version: str,
    kind: NodeKind = NodeKind.SUMMARY,
    evidence: str = "",
) -> Publication | None:
    """Make the publication, its leaf and the next view revision visible, in this transaction.

    Returns None, changing nothing, when the turn is published already (a replay), or was superseded
    or taken back while its summary was made.
    """
    session, turn = source.session, tx.turns.turn(source.turn.turn_id)
    if (
        turn is None
        or turn.scope_id is None
        or tx.publications.of_turn(turn.turn_id) is not None
        or not is_current(tx, session, turn)
    ):
        return None
    scope = require_scope(tx, turn.scope_id)
    csn = tx.meta.next_csn()
    publication = publication_of(
        deps,
        session,
        turn,
        scope.scope_id,
        scope.publications,
        start_seq=source.start_seq,
        cover=source.cover,
        csn=csn,
    )
    if not tx.publications.append(publication):
        return None
    tree = ScopeTree(scope.scope_id)
    leaf = Node(
        tree=tree,
        span=Span(publication.seq, 1),
        revision=1,
        kind=NodeKind.VERBATIM if model == VERBATIM else kind,
        label=label_of(tx, publication),
        text=text,
        input_hash=source.input_hash,
        model=model,
        prompt_version=prompt_version,
        born=csn,
        evidence=evidence,
    )
    tx.trees.put_node(leaf)
    forest = Forest(tx, tree)
    complete_parents(tx, deps, forest, publication.seq + 1, scope.scope_id, csn)
    advance_shared_view(tx, deps, forest, publication.seq + 1)
    return publication


def publication_of(
    deps: Deps,
    session: Session,
    turn: Turn,
    scope_id: ScopeId,
    seq: int,
    *,
    start_seq: int,
    cover: tuple[CoverPart, ...],
    csn: Csn,
) -> Publication:
    """A closed turn under a number of a scope."""
    assert turn.outcome is not None
    assert turn.end_seq_exclusive is not None
    return Publication(
        scope_id=scope_id,
        seq=seq,
        session_id=session.session_id,
        generation=turn.generation,
        turn_id=turn.turn_id,
        start_seq=start_seq,
        end_seq_exclusive=turn.end_seq_exclusive,
        outcome=turn.outcome,
        opened_ms=turn.opened_ms,
        completed_ms=turn.closed_ms or turn.opened_ms,
        published_ms=deps.clock.now_ms(),
        cover=cover,
        born=csn,
        title=session.title,
    )


def advance_shared_view(tx: Tx, deps: Deps, forest: Forest, length: int) -> None:
    """Take new leaves into a scope's view and shrink it as far as parents allow (§6).

    Also called when a parent becomes durable, so that shrinking does not wait for the next append.
    """
    view = tx.trees.view(forest.tree)
    moved = advance(
        view,
        forest.leaf_entries(view.covered, length),
        forest.entry,
        high_bytes=deps.config.memory.shared_high_bytes,
        low_bytes=deps.config.memory.shared_low_bytes,
    )
    if moved is not view:
        tx.trees.put_view(forest.tree, moved, tx.meta.next_csn())
