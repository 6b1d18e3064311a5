"""Publications with their covers as rows."""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from optchat.core.publications import CoverPart, Publication
from optchat.core.records import Outcome, Session
from optchat.core.snapshots import Visibility
from optchat.core.tree import SessionTree, cover
from optchat.errors import Conflict, IntegrityError
from optchat.refs import Csn, ScopeId, SessionId, TurnId
from optchat.storage.sqlite.connection import Args, Row, Sql
from optchat.storage.sqlite.frames import drop_frames
from optchat.storage.sqlite.records import GENERATION
from optchat.storage.sqlite.sessions import SESSION_COLUMNS, session_of_row
from optchat.storage.sqlite.visible import ALIVE, OF_SCOPE, SCOPE, bindings, union
from optchat.storage.words import searchable

_NUMBER = SCOPE.format("?")
_PUBLICATION = (
    "seq, session_id, generation, turn_id, start_seq, end_seq_exclusive, outcome, "
    "opened_ms, completed_ms, published_ms, title, born, died"
)
_COVER = (
    "(select json_group_array(json_array(g.session_id, g.number, c.start, c.end_exclusive)) "
    "from published as c join generation as g on g.id = c.generation_id "
    "where c.scope = p.scope and c.publication = p.seq)"
)
_SELECT = (
    f"select s.scope_id, {', '.join('p.' + name for name in _PUBLICATION.split(', '))}, {_COVER} "
    "from publication as p cross join scope as s on s.id = p.scope"
)


class SqlitePublications:
    """Numbers come from the scope's row, in the publishing transaction (§9)."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

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
        """Whether one of these turns is published in its scope."""
        asked = [(p.scope_id, p.session_id, p.generation, p.turn_id) for p in publications]
        row = self._sql.one(
            "select 1 from json_each(?) as asked cross join scope as s "
            "on s.scope_id = asked.value ->> 0 cross join publication as p "
            "on p.turn_id = asked.value ->> 3 and p.scope = s.id "
            "and p.session_id = asked.value ->> 1 and p.generation = asked.value ->> 2 limit 1",
            (msgspec.json.encode(asked).decode(),),
        )
        return row is not None or len(set(asked)) < len(asked)

    def _append(self, publications: Sequence[Publication]) -> None:
        first = publications[0]
        row = self._sql.one(
            "select id, publications from scope where scope_id = ?", (first.scope_id,)
        )
        scope, following = row if row is not None else (None, None)
        for number, p in enumerate(publications):
            if following is None or p.seq != following + number or p.scope_id != first.scope_id:
                raise Conflict(
                    f"publication {p.seq} of {p.scope_id} is not the next one ({following}); "
                    "nothing was published."
                )
        trees = {part.tree for p in publications for part in p.cover}
        generations = {tree: self._generation_id(tree) for tree in trees}
        self._sql.many(
            f"insert into publication (scope, {_PUBLICATION}) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    scope,
                    p.seq,
                    p.session_id,
                    p.generation,
                    p.turn_id,
                    p.start_seq,
                    p.end_seq_exclusive,
                    p.outcome.value,
                    p.opened_ms,
                    p.completed_ms,
                    p.published_ms,
                    searchable(p.title),
                    p.born,
                    p.died,
                )
                for p in publications
            ),
        )
        self._sql.many(
            "insert into published (scope, publication, generation_id, start, end_exclusive) "
            "values (?, ?, ?, ?, ?)",
            (
                (scope, p.seq, generations[tree], start, end)
                for p in publications
                for tree, start, end in _ranges(p.cover)
            ),
        )
        self._sql.run(
            "update scope set publications = publications + ? where id = ?",
            (len(publications), scope),
        )

    def publication(self, scope_id: ScopeId, seq: int) -> Publication | None:
        found = self._publications(f"where p.scope = {_NUMBER} and p.seq = ?", (scope_id, seq))
        return found[0] if found else None

    def of_turn(self, turn_id: TurnId) -> Publication | None:
        found = self._publications(
            "where p.turn_id = ? and p.died is null "
            "order by p.born desc, s.scope_id, p.seq desc limit 1",
            (turn_id,),
        )
        return found[0] if found else None

    def range(self, scope_id: ScopeId, start: int, end_exclusive: int) -> tuple[Publication, ...]:
        return self._publications(
            f"where p.scope = {_NUMBER} and p.seq >= ? and p.seq < ? order by p.seq",
            (scope_id, start, end_exclusive),
        )

    def of_session(
        self, visibility: Visibility, session_id: SessionId, before: int | None, limit: int
    ) -> tuple[Publication, ...]:
        return self._publications(
            f"where p.scope = {OF_SCOPE} and p.session_id = :session "
            f"and (:before is null or p.seq < :before) and {ALIVE} "
            "order by p.seq desc limit :limit",
            {
                **bindings(visibility),
                "session": session_id,
                "before": before,
                "limit": max(limit, 0),
            },
        )

    def covering(
        self, visibility: Visibility, session_id: SessionId, generation: int, seq: int
    ) -> Publication | None:
        found = self._publications(
            f"where p.scope = {OF_SCOPE} and p.session_id = :session and p.seq < :end "
            "and p.born <= :csn and p.generation = :generation "
            "and p.start_seq <= :at and p.end_seq_exclusive > :at order by p.seq desc limit 1",
            {
                **bindings(visibility),
                "session": session_id,
                "generation": generation,
                "at": seq,
            },
        )
        return found[0] if found else None

    def retire(self, scope_id: ScopeId, seq: int, csn: Csn) -> None:
        self._sql.run(
            f"update publication set died = ? where scope = {_NUMBER} and seq = ? and died is null",
            (csn, scope_id, seq),
        )

    def retired_since(self, scope_id: ScopeId, csn: Csn, before_seq: int) -> bool:
        row = self._sql.one(
            f"select 1 from publication where scope = {_NUMBER} and died > ? and seq < ? limit 1",
            (scope_id, csn, before_seq),
        )
        return row is not None

    def of_turn_ever(self, turn_id: TurnId) -> tuple[Publication, ...]:
        return self._publications("where p.turn_id = ? order by s.scope_id, p.seq", (turn_id,))

    def completed(
        self, scope_id: ScopeId, start: int, end_exclusive: int
    ) -> tuple[int, int] | None:
        ends = (
            f"select completed_ms from publication where scope = {SCOPE.format('?1')} "
            "and seq >= ?2 and seq < ?3"
        )
        row = self._sql.one(
            f"select ({ends} order by seq limit 1), ({ends} order by seq desc limit 1)",
            (scope_id, start, end_exclusive),
        )
        return None if row is None or row[0] is None else (row[0], row[1])

    def remove(self, scope_id: ScopeId, seq: int) -> None:
        self._sql.run(
            f"delete from publication where scope = {_NUMBER} and seq = ?", (scope_id, seq)
        )
        drop_frames(self._sql)

    def move_covers(self, tree: SessionTree, to: SessionTree) -> None:
        self._sql.run(
            f"update published set generation_id = ? where generation_id = {GENERATION}",
            (self._generation_id(to), tree.session_id, tree.generation),
        )
        drop_frames(self._sql)

    def visible_count(
        self, visibility: Visibility, tree: SessionTree, start: int, end_exclusive: int
    ) -> int:
        # Parts come from the index and are joined here: cost in the parts, not in the records.
        parts = self._sql.all(
            "select c.start, c.end_exclusive from generation as g cross join published as c "
            f"on c.generation_id = g.id and c.scope = {OF_SCOPE} "
            "and c.start < :until and c.end_exclusive > :from "
            "cross join publication as p on p.scope = c.scope and p.seq = c.publication "
            "where g.session_id = :session and g.number = :generation "
            f"and {ALIVE}",
            {
                **bindings(visibility),
                "session": tree.session_id,
                "generation": tree.generation,
                "from": start,
                "until": end_exclusive,
            },
        )
        total = 0
        for first, end in union((max(a, start), min(b, end_exclusive)) for a, b in parts):
            row = self._sql.one(
                f"select count(*) from record where generation_id = {GENERATION} "
                "and seq >= ? and seq < ?",
                (tree.session_id, tree.generation, first, end),
            )
            total += 0 if row is None else int(row[0])
        return total

    def visible_sessions(self, visibility: Visibility) -> tuple[tuple[Session, int, int, int], ...]:
        rows = self._sql.all(
            f"select {SESSION_COLUMNS}, "
            "v.publications, v.first_ms, v.last_ms from ("
            "select p.session_id, count(*) as publications, min(p.opened_ms) as first_ms, "
            "max(p.completed_ms) as last_ms from publication as p "
            f"where p.scope = {OF_SCOPE} and {ALIVE} group by p.session_id"
            ") as v cross join session as s on s.session_id = v.session_id "
            "cross join member as m on m.session_id = v.session_id and m.scope_id = :scope "
            "order by v.last_ms desc, m.number, s.session_id",
            bindings(visibility),
        )
        return tuple((session_of_row(row), row[-3], row[-2], row[-1]) for row in rows)

    def _generation_id(self, tree: SessionTree) -> int:
        row = self._sql.one(
            "select id from generation where session_id = ? and number = ?",
            (tree.session_id, tree.generation),
        )
        if row is None:
            raise IntegrityError(f"the generation {tree} of a cover is not there.")
        return int(row[0])

    def _publications(self, condition: str, args: Args) -> tuple[Publication, ...]:
        return tuple(map(_publication, self._sql.all(f"{_SELECT} {condition}", args)))


_decode_ranges = msgspec.json.Decoder(list[tuple[str, int, int, int]]).decode


def _ranges(parts: Iterable[CoverPart]) -> Iterator[tuple[SessionTree, int, int]]:
    """The cover as the ranges of each tree in turn."""
    for tree, members in itertools.groupby(parts, key=lambda part: part.tree):
        spans = [part.span for part in members]
        yield tree, spans[0].start, spans[-1].end_exclusive


def _cover(start_seq: int, end_seq_exclusive: int, told: str) -> Iterator[CoverPart]:
    """The cover from its ranges; a part without its range is lost, and the check tells of it."""
    for span in cover(start_seq, end_seq_exclusive):
        for session_id, generation, start, end in _decode_ranges(told):
            if start <= span.start and span.end_exclusive <= end:
                yield CoverPart(SessionTree(SessionId(session_id), generation), span)


def _publication(row: Row) -> Publication:
    return Publication(
        scope_id=row[0],
        seq=row[1],
        session_id=row[2],
        generation=row[3],
        turn_id=row[4],
        start_seq=row[5],
        end_seq_exclusive=row[6],
        outcome=Outcome(row[7]),
        opened_ms=row[8],
        completed_ms=row[9],
        published_ms=row[10],
        title=row[11],
        born=row[12],
        died=row[13],
        cover=tuple(_cover(row[5], row[6], row[14])),
    )
