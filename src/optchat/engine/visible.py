"""Resolving a ref under a ``Visibility``: the one filter of every read (§8, §11).

An unknown ref and one that the reader may not see raise the same ``NotFound`` with the same words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from optchat.config import Privacy
from optchat.core.publications import Publication
from optchat.core.records import Lineage, Record, Session
from optchat.core.snapshots import Visibility
from optchat.core.tree import ScopeTree, SessionTree
from optchat.engine.forest import Forest
from optchat.engine.sessions import lineage as lineage_of
from optchat.errors import NotFound, SnapshotExpired, Superseded
from optchat.refs import PublicationRef, Ref, SessionRef, Span
from optchat.storage.ports import Tx


def not_found(ref: Ref) -> NotFound:
    """The one answer for what is not there and for what is not to be seen."""
    return NotFound(
        f"{ref} names nothing in this memory.",
        hint="use a reference as it is shown; memory_search and memory_sessions find some",
    )


def missing(reader: Reader, ref: Ref) -> NotFound:
    """Why a reader finds nothing at a ref: an edit that it may know of, else the one answer."""
    tx, visibility = reader.tx, reader.visibility
    if isinstance(ref, PublicationRef):
        was = tx.publications.publication(visibility.scope_id, ref.span.start)
        inside = ref.span.end_exclusive <= visibility.publication_end
        if was is None or ref.span.count > 1 or not inside or was.born > visibility.csn:
            return not_found(ref)
        session = tx.sessions.session_in(visibility.scope_id, was.session_id)
    else:
        session = tx.sessions.session_numbered(visibility.scope_id, ref.number)
        if session is None:
            return not_found(ref)
        if session.session_id == visibility.session_id:
            return _own_superseded(reader, session, ref) or not_found(ref)
        was = tx.publications.covering(
            visibility, session.session_id, ref.generation, ref.span.start
        )
    if session is None or was is None or was.seen_at(visibility.csn):
        return not_found(ref)
    turn = tx.turns.turn(was.turn_id)
    if turn is None or turn.scope_id != visibility.scope_id:
        return not_found(ref)  # withdrawn: as if it had never been
    later = tx.publications.of_session(visibility, session.session_id, None, 1_000)
    stands = [p for p in reversed(later) if p.generation > was.generation]
    instead = next((p for p in stands if p.end_seq_exclusive > was.start_seq), None)
    return _superseded(ref, session, f"pub:{instead.seq}" if instead is not None else None)


def _own_superseded(reader: Reader, session: Session, ref: SessionRef) -> NotFound | None:
    """The reader's own ref of a generation that an edit or a rewind has ended, if it is one."""
    own = reader.visibility.own
    if own is None or ref.generation >= session.generation:
        return None
    before = lineage_of(reader.tx, SessionTree(session.session_id, ref.generation))
    if ref.span.end_exclusive > before.length:
        return None
    kept = max(
        (
            min(s.end_exclusive, b.end_exclusive)
            for s in own.segments
            for b in before.segments
            if s.tree == b.tree
        ),
        default=0,
    )
    at = SessionRef(session.number, session.generation, Span(kept, 1))
    return _superseded(ref, session, str(at) if kept < own.length else None)


def _superseded(ref: Ref, session: Session, instead: str | None) -> Superseded:
    stands = f"what stands there now is {instead}" if instead else "nothing stands there yet"
    return Superseded(
        f"{ref} was superseded: s{session.number} was edited or rewound there; {stands}.",
        hint=f"open {instead}" if instead else "memory_sessions shows what that conversation has",
    )


@dataclass(frozen=True, slots=True)
class Reader:
    """One caller's reads in one transaction.

    ``unread``: so many of the scope's sessions have changed in their host and are not read again.
    """

    tx: Tx
    visibility: Visibility
    privacy: Privacy = field(default_factory=Privacy)
    unread: int = 0

    def check_epoch(self) -> None:
        """Refuse a snapshot that deletion or a policy change has invalidated (§12)."""
        scope = self.tx.sessions.scope(self.visibility.scope_id)
        if scope is None:
            return  # a scope without anything in it has no row yet
        if (scope.policy_revision, scope.retention_epoch) != (
            self.visibility.policy_revision,
            self.visibility.retention_epoch,
        ):
            raise SnapshotExpired(
                "this turn's memory snapshot was invalidated by a deletion or a policy change; "
                "nothing was read.",
                hint="the next request of this conversation takes a fresh snapshot",
            )

    def shared(self) -> Forest:
        """The scope's tree at the snapshot."""
        return Forest(self.tx, ScopeTree(self.visibility.scope_id), csn=self.visibility.csn)

    def check_publications(self, ref: PublicationRef) -> None:
        if ref.span.end_exclusive > self.visibility.publication_end:
            raise not_found(ref)

    def publication(self, ref: PublicationRef) -> Publication:
        """One visible publication."""
        self.check_publications(ref)
        found = self.tx.publications.publication(self.visibility.scope_id, ref.span.start)
        if found is None or not found.seen_at(self.visibility.csn):
            raise missing(self, ref)
        return found

    def session(self, ref: SessionRef) -> tuple[Session, Forest]:
        """The session and history in which every record of the ref is visible."""
        session = self.tx.sessions.session_numbered(self.visibility.scope_id, ref.number)
        if session is None:
            raise not_found(ref)
        if self.tx.sessions.generation(session.session_id, ref.generation) is None:
            raise not_found(ref)
        tree = SessionTree(session.session_id, ref.generation)
        history = lineage_of(self.tx, tree)
        if ref.span.end_exclusive > history.length or not self._sees(history, ref.span):
            raise missing(self, ref)
        forest = Forest(
            self.tx, tree, number=session.number, lineage=history, csn=self.visibility.csn
        )
        return session, forest

    def _sees(self, history: Lineage, span: Span) -> bool:
        """Whether every record of the span is own history or inside a visible publication."""
        for piece in history.owners(span.start, span.end_exclusive):
            if self._is_own(piece.tree, piece.start, piece.end_exclusive):
                continue
            count = self.tx.publications.visible_count(
                self.visibility, piece.tree, piece.start, piece.end_exclusive
            )
            if count != piece.end_exclusive - piece.start:
                return False
        return True

    def seen(self, history: Lineage, start: int, end_exclusive: int) -> list[tuple[int, int]]:
        """The parts of a range of a history that the reader may see, in order."""
        return [
            part
            for piece in history.owners(start, end_exclusive)
            for part in self._seen(piece.tree, piece.start, piece.end_exclusive)
        ]

    def _seen(self, tree: SessionTree, start: int, end_exclusive: int) -> list[tuple[int, int]]:
        if self._is_own(tree, start, end_exclusive):
            return [(start, end_exclusive)]
        count = self.tx.publications.visible_count(self.visibility, tree, start, end_exclusive)
        if count == end_exclusive - start:
            return [(start, end_exclusive)]
        own = self.visibility.own
        if end_exclusive - start == 1 or not (
            count or (own is not None and any(s.tree == tree for s in own.segments))
        ):
            return []
        middle = (start + end_exclusive) // 2
        return [*self._seen(tree, start, middle), *self._seen(tree, middle, end_exclusive)]

    def _is_own(self, tree: SessionTree, start: int, end_exclusive: int) -> bool:
        own = self.visibility.own
        return own is not None and any(
            s.tree == tree and s.start <= start and end_exclusive <= s.end_exclusive
            for s in own.segments
        )

    def named(self, name: str) -> Session:
        """A session that the reader may know of: "current", s12, or its host's id.

        Raises:
            NotFound: there is none of that name in the scope, or nothing of it is visible.
        """
        asked = name.strip()
        scope_id, own = self.visibility.scope_id, self.visibility.session_id
        numbered = re.fullmatch(r"s?(\d{1,9})", asked, re.ASCII)
        if asked == "current":
            found = self.tx.sessions.session_in(scope_id, own) if own is not None else None
        elif numbered is not None:
            found = self.tx.sessions.session_numbered(scope_id, int(numbered[1]))
        else:
            found = self.tx.sessions.session_called(scope_id, asked)
        if found is None or not (found.session_id == own or self.newest(found)):
            raise NotFound(
                f"{asked[:80]!r} names no conversation in this memory.",
                hint="write it as s12; memory_sessions lists those that there are",
            )
        return found

    def newest(self, session: Session) -> Publication | None:
        """The last publication of a session that is visible, if there is one."""
        found = self.tx.publications.of_session(self.visibility, session.session_id, None, 1)
        return found[0] if found else None

    def record(self, ref: SessionRef) -> tuple[Session, Record]:
        """One visible record."""
        session, forest = self.session(ref)
        owner = forest.owner(ref.span)
        assert isinstance(owner, SessionTree)
        record = self.tx.records.record(owner, ref.span.start)
        if record is None:
            raise not_found(ref)
        return session, record
