"""Having history that was taken in summarised after all: what that takes, and queueing it (§10).

The nodes of its sessions are made, and each publication that only names its turn gets a real line
as a new revision; what stands over it in the shared tree follows once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from optchat.core.publications import Publication
from optchat.core.records import Session
from optchat.core.scopes import Scope
from optchat.core.tree import Node, NodeKind, ScopeTree, ancestors
from optchat.engine import rebuild
from optchat.engine.deps import Deps
from optchat.engine.nodes import IMPORTED
from optchat.engine.past import make_nodes
from optchat.engine.sessions import generation_of, own_lineage
from optchat.limits import SUMMARY_BYTES_MAX
from optchat.refs import SessionId, Span
from optchat.storage.ports import Tx

MERGE_BYTES = 800
"""About what two lines that are merged take."""


@dataclass(slots=True)
class Wanted:
    """Publications of one scope that only name their turn, and what making real lines takes.

    ``lines`` a model makes, about, from ``source_bytes`` of originals and lines.
    """

    scope: Scope
    turns: int = 0
    lines: int = 0
    source_bytes: int = 0
    leaves: list[Node] = field(default_factory=list[Node])
    over: dict[Span, Node] = field(default_factory=dict[Span, Node])
    sessions: dict[SessionId, Session] = field(default_factory=dict[SessionId, Session])


def wanted(tx: Tx, scope: Scope, *, since_ms: int, directory: str | None, bytes_max: int) -> Wanted:
    """What of a scope ended at ``since_ms`` or later, in a directory if one is given.

    ``bytes_max`` is as much as a model reads of one original.
    """
    found = Wanted(scope)
    tree = ScopeTree(scope.scope_id)
    for publication in tx.publications.range(scope.scope_id, 0, scope.publications):
        leaf = _line(tx, tree, publication, since_ms)
        session = tx.sessions.session(publication.session_id) if leaf is not None else None
        if leaf is None or session is None or not _is_in(session, directory):
            continue
        found.leaves.append(leaf)
        found.sessions.setdefault(session.session_id, session)
        for span in ancestors(leaf.span, scope.publications):
            above = found.over.get(span) or tx.trees.node(tree, span)
            if above is not None and above.kind is not NodeKind.VERBATIM:
                found.over[span] = above
    found.turns = len(found.leaves)
    found.lines = found.turns + len(found.over)
    found.source_bytes = found.lines * MERGE_BYTES
    for session in found.sessions.values():
        _count(tx, found, session, bytes_max)
    return found


def enqueue(tx: Tx, deps: Deps, found: Wanted) -> int:
    """Queue it, each line after those that it is made from; how many publications get one."""
    for session in found.sessions.values():
        make_nodes(tx, deps, session, own_lineage(tx, session))
    nodes = sorted(
        (*found.leaves, *found.over.values()), key=lambda n: (n.span.count, n.span.start)
    )
    stale = rebuild.Stale(ScopeTree(found.scope.scope_id), tuple(nodes))
    rebuild.enqueue(tx, deps, stale, found.scope.scope_id)
    return found.turns


def _line(tx: Tx, tree: ScopeTree, publication: Publication, since_ms: int) -> Node | None:
    """The line of a live publication that only names its turn."""
    if publication.died is not None or publication.completed_ms < since_ms:
        return None
    leaf = tx.trees.node(tree, Span(publication.seq, 1))
    return leaf if leaf is not None and leaf.model == IMPORTED else None


def _is_in(session: Session, directory: str | None) -> bool:
    return directory is None or f"{session.directory}/".startswith(f"{directory.rstrip('/')}/")


def _count(tx: Tx, found: Wanted, session: Session, bytes_max: int) -> None:
    """The nodes that a session's history lacks: its longer originals, and merges over them."""
    for segment in own_lineage(tx, session).segments:
        start = generation_of(tx, segment.tree).unmade_from
        if start is None or start >= segment.end_exclusive:
            continue
        records = tx.records.range(segment.tree, start, segment.end_exclusive)
        long = [r.payload_bytes for r in records if r.payload_bytes > SUMMARY_BYTES_MAX]
        merges = min(len(records), 2 * len(long))
        found.lines += len(long) + merges
        found.source_bytes += sum(min(size, bytes_max) for size in long) + merges * MERGE_BYTES
