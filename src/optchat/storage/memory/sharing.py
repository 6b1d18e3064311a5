"""Publications in dictionaries: the visibility rule, word for word (§9, §11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optchat.core.publications import CoverPart, Publication
from optchat.core.records import Session
from optchat.core.snapshots import Visibility
from optchat.core.tree import SessionTree
from optchat.errors import Conflict, IntegrityError
from optchat.refs import Csn, ScopeId, SessionId, TurnId
from optchat.storage.memory.state import Changes, Tables, grouped


def seen(tables: Tables, visibility: Visibility) -> list[Publication]:
    """The publications that a snapshot sees, by number."""
    return [
        p
        for (scope_id, seq), p in sorted(tables.publications.items())
        if scope_id == visibility.scope_id
        and seq < visibility.publication_end
        and p.seen_at(visibility.csn)
    ]


def published(seen: Sequence[Publication], tree: SessionTree, seq: int) -> bool:
    """Whether one of ``seen`` covers the own record ``seq`` of ``tree``."""
    return any(
        part.tree == tree and part.span.start <= seq < part.span.end_exclusive
        for p in seen
        for part in p.cover
    )


def own(visibility: Visibility, tree: SessionTree, seq: int) -> bool:
    segments = visibility.own.segments if visibility.own is not None else ()
    return any(s.tree == tree and s.start <= seq < s.end_exclusive for s in segments)


class MemoryPublications:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def append(self, publication: Publication) -> bool:
        if self._published((publication,)):
            return False
        self._append((publication,))
        return True

    def append_many(self, publications: Sequence[Publication]) -> None:
        if self._published(publications):
            raise Conflict("a turn is published already; nothing was published.")
        if publications:
            self._append(publications)

    def _published(self, publications: Sequence[Publication]) -> bool:
        asked = {_identity(p) for p in publications}
        held = set(map(_identity, self._tables.publications.values()))
        return bool(asked & held) or len(asked) < len(publications)

    def _append(self, publications: Sequence[Publication]) -> None:
        first = publications[0]
        scope = self._tables.scopes.get(first.scope_id)
        for number, p in enumerate(publications):
            following = scope.publications + number if scope is not None else None
            if p.seq != following or p.scope_id != first.scope_id:
                raise Conflict(
                    f"publication {p.seq} of {p.scope_id} is not the next one; "
                    "nothing was published."
                )
        assert scope is not None
        parts = (part for p in publications for part in p.cover)
        if any(part.tree not in self._tables.generations for part in parts):
            raise IntegrityError("a generation of the cover is not there; nothing was published.")
        for p in publications:
            self._changes.put(self._tables.publications, (p.scope_id, p.seq), p)
        count = scope.publications + len(publications)
        self._changes.put(self._tables.scopes, scope.scope_id, replace(scope, publications=count))

    def publication(self, scope_id: ScopeId, seq: int) -> Publication | None:
        return self._tables.publications.get((scope_id, seq))

    def of_turn(self, turn_id: TurnId) -> Publication | None:
        live = [
            p for p in self._tables.publications.values() if p.turn_id == turn_id and p.died is None
        ]
        return min(live, key=lambda p: (-p.born, p.scope_id, -p.seq), default=None)

    def range(self, scope_id: ScopeId, start: int, end_exclusive: int) -> tuple[Publication, ...]:
        return tuple(
            p
            for (of, seq), p in sorted(self._tables.publications.items())
            if of == scope_id and start <= seq < end_exclusive
        )

    def of_session(
        self, visibility: Visibility, session_id: SessionId, before: int | None, limit: int
    ) -> tuple[Publication, ...]:
        found = [
            p
            for p in reversed(seen(self._tables, visibility))
            if p.session_id == session_id and (before is None or p.seq < before)
        ]
        return tuple(found[: max(limit, 0)])

    def covering(
        self, visibility: Visibility, session_id: SessionId, generation: int, seq: int
    ) -> Publication | None:
        found = [
            p
            for p in self.range(visibility.scope_id, 0, visibility.publication_end)
            if (p.session_id, p.generation) == (session_id, generation)
            and p.born <= visibility.csn
            and p.start_seq <= seq < p.end_seq_exclusive
        ]
        return found[-1] if found else None

    def retire(self, scope_id: ScopeId, seq: int, csn: Csn) -> None:
        known = self._tables.publications.get((scope_id, seq))
        if known is not None and known.died is None:
            self._changes.put(self._tables.publications, (scope_id, seq), replace(known, died=csn))

    def retired_since(self, scope_id: ScopeId, csn: Csn, before_seq: int) -> bool:
        return any(
            p.died is not None and p.died > csn
            for (of, seq), p in self._tables.publications.items()
            if of == scope_id and seq < before_seq
        )

    def of_turn_ever(self, turn_id: TurnId) -> tuple[Publication, ...]:
        return tuple(
            p for _, p in sorted(self._tables.publications.items()) if p.turn_id == turn_id
        )

    def completed(
        self, scope_id: ScopeId, start: int, end_exclusive: int
    ) -> tuple[int, int] | None:
        inside = self.range(scope_id, start, end_exclusive)
        return (inside[0].completed_ms, inside[-1].completed_ms) if inside else None

    def remove(self, scope_id: ScopeId, seq: int) -> None:
        self._changes.drop(self._tables.publications, (scope_id, seq))

    def move_covers(self, tree: SessionTree, to: SessionTree) -> None:
        for key, p in tuple(self._tables.publications.items()):
            if any(part.tree == tree for part in p.cover):
                parts = tuple(
                    CoverPart(to, part.span) if part.tree == tree else part for part in p.cover
                )
                self._changes.put(self._tables.publications, key, replace(p, cover=parts))

    def visible_count(
        self, visibility: Visibility, tree: SessionTree, start: int, end_exclusive: int
    ) -> int:
        found = seen(self._tables, visibility)
        return sum(
            of == tree and start <= seq < end_exclusive and published(found, tree, seq)
            for of, seq in self._tables.records
        )

    def visible_sessions(self, visibility: Visibility) -> tuple[tuple[Session, int, int, int], ...]:
        by_session = grouped([(p.session_id, p) for p in seen(self._tables, visibility)])
        scope_id = visibility.scope_id
        found = [
            (
                replace(
                    self._tables.sessions[session_id],
                    scope_id=scope_id,
                    number=self._tables.members[scope_id, session_id],
                ),
                len(published),
                min(p.opened_ms for p in published),
                max(p.completed_ms for p in published),
            )
            for session_id, published in by_session.items()
            if (scope_id, session_id) in self._tables.members
        ]
        found.sort(key=lambda row: (-row[3], row[0].number, row[0].session_id))
        return tuple(found)


def _identity(publication: Publication) -> tuple[ScopeId, SessionId, int, TurnId]:
    p = publication
    return p.scope_id, p.session_id, p.generation, p.turn_id
