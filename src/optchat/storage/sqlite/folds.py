"""Folds and shared bases as rows."""

# ruff: noqa: S608  (what is formatted in are this module's own column lists)

from __future__ import annotations

from collections.abc import Collection

import msgspec

from optchat.core.records import Fold
from optchat.refs import FoldId, ScopeId, SessionId
from optchat.storage.ports import SharedBase
from optchat.storage.sqlite.connection import Row, Sql
from optchat.storage.sqlite.turns import decode_pin

_FOLD = (
    "fold_id, session_id, generation, pin, boundary, first_turn_key, publication_end, "
    "shared_text, own_text, window, cause, coverage, made_ms"
)


class SqliteFolds:
    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def remove_rendered(self, scope_id: ScopeId) -> int:
        of_scope = (
            "(pin ->> 'scope_id' = ?1 or session_id in "
            "(select session_id from session where scope_id = ?1))"
        )
        return (
            self._sql.run("delete from shared_base where scope_id = ?", (scope_id,))
            + self._sql.run(f"delete from fold where {of_scope}", (scope_id,))
            + self._sql.run(
                "update turn set news = '', checkpoints = '[]' "
                f"where (news <> '' or checkpoints <> '[]') and {of_scope}",
                (scope_id,),
            )
        )

    def put(self, fold: Fold) -> None:
        self._sql.run(
            f"insert or replace into fold ({_FOLD}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                fold.fold_id,
                fold.session_id,
                fold.generation,
                msgspec.json.encode(fold.pin).decode(),
                fold.boundary,
                fold.first_turn_key,
                fold.publication_end,
                fold.shared_text,
                fold.own_text,
                fold.window,
                fold.cause,
                fold.coverage,
                fold.made_ms,
            ),
        )

    def fold(self, fold_id: FoldId) -> Fold | None:
        row = self._sql.one(f"select {_FOLD} from fold where fold_id = ?", (fold_id,))
        return None if row is None else _fold(row)

    def prune(self, session_id: SessionId, kept: Collection[FoldId]) -> int:
        return self._sql.run(
            "delete from fold where session_id = ? "
            "and fold_id not in (select value from json_each(?))",
            (session_id, msgspec.json.encode(sorted(kept)).decode()),
        )

    def put_shared_base(self, base: SharedBase) -> None:
        self._sql.run(
            "insert or replace into shared_base (scope_id, csn, publication_end, "
            "policy_revision, retention_epoch, text) values (?, ?, ?, ?, ?, ?)",
            (
                base.scope_id,
                base.csn,
                base.publication_end,
                base.policy_revision,
                base.retention_epoch,
                base.text,
            ),
        )

    def shared_base(self, scope_id: ScopeId) -> SharedBase | None:
        row = self._sql.one(
            "select csn, publication_end, policy_revision, retention_epoch, text from shared_base "
            "where scope_id = ?",
            (scope_id,),
        )
        if row is None:
            return None
        return SharedBase(
            scope_id=scope_id,
            csn=row[0],
            publication_end=row[1],
            policy_revision=row[2],
            retention_epoch=row[3],
            text=row[4],
        )


def _fold(row: Row) -> Fold:
    return Fold(
        fold_id=row[0],
        session_id=row[1],
        generation=row[2],
        pin=decode_pin(row[3]),
        boundary=row[4],
        first_turn_key=row[5],
        publication_end=row[6],
        shared_text=row[7],
        own_text=row[8],
        window=row[9],
        cause=row[10],
        coverage=row[11],
        made_ms=row[12],
    )
