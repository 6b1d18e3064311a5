"""What a person or a host means to have forgotten, as sessions and turns (§12)."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from optchat.core.records import Session, Turn
from optchat.core.scopes import Project, Scope
from optchat.core.tree import SessionTree
from optchat.engine.forget import holds_anything, versions
from optchat.engine.sessions import lineage
from optchat.engine.visible import not_found
from optchat.errors import BadInput, NotFound
from optchat.refs import PublicationRef, SessionRef, TurnId, parse_ref
from optchat.storage.ports import Tx


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns with all their versions, and how they were named."""

    turns: tuple[Turn, ...]
    what: str


def session_named(tx: Tx, scope: Scope, name: str) -> Session:
    """A session of the scope by its number, as s12, or by the host's id of it.

    Raises:
        NotFound: there is none; nothing was removed.
    """
    match = re.fullmatch(r"s(\d{1,9})", name.strip(), re.ASCII)
    if match is not None:
        known = tx.sessions.session_numbered(scope.scope_id, int(match[1]))
        found = tx.sessions.session(known.session_id) if known is not None else None
    else:
        held = tx.sessions.sessions(scope.scope_id)
        found = next((s for s in held if s.host_session == name.strip()), None)
    if found is None:
        raise NotFound(
            f"there is no session {name[:80]!r} in this memory; nothing was removed.",
            hint="optchat status, or name another scope with --scope",
        )
    return found


def turn_named(tx: Tx, scope: Scope, name: str) -> Turns:
    """The turn that a publication or a record of the scope belongs to.

    Raises:
        NotFound: the ref names nothing here, or what it named was forgotten.
        BadInput: it names a range, or a turn that has not ended.
    """
    ref = parse_ref(name)
    if ref.span.count != 1:
        raise BadInput(
            f"{ref} names a range; nothing was removed.", hint=f"name one turn, as in: {_one(ref)}"
        )
    turn_id = _turn_id(tx, scope, ref)
    turn = tx.turns.turn(turn_id) if turn_id is not None else None
    if turn is None:
        raise not_found(ref)
    found = versions(tx, [turn])
    if any(t.outcome is None for t in found):
        raise BadInput(
            f"the turn of {ref} has not ended; nothing was removed.",
            hint="repeat it when the turn is over, or forget the session",
        )
    return Turns(found, f"turn {ref}")


def turns_before(tx: Tx, scope: Scope, time_ms: int, told: str) -> Turns:
    """The turns of a scope that ended before a time, but for those of which a version goes on."""
    found: dict[str, Turn] = {}
    for session in tx.sessions.sessions(scope.scope_id):
        ended = [
            t
            for t in tx.turns.of_session(session.session_id)
            if t.closed_ms is not None and t.closed_ms < time_ms and holds_anything(tx, t)
        ]
        found |= {t.turn_id: t for t in versions(tx, ended)}
    later = [t for t in found.values() if t.closed_ms is None or t.closed_ms >= time_ms]
    kept = {t.turn_id for t in versions(tx, later)}
    turns = tuple(t for t in found.values() if t.turn_id not in kept)
    return Turns(turns, f"turns that ended before {told}")


def project_in(projects: Collection[Project], directory: str) -> Project:
    """The project of a directory.

    Raises:
        NotFound: none is known there.
    """
    found = next((p for p in projects if p.directory == directory), None)
    if found is None:
        raise NotFound(
            f"there is no project at {directory[:200]!r} in this memory; nothing was removed.",
            hint="optchat status",
        )
    return found


def _one(ref: PublicationRef | SessionRef) -> str:
    return str(ref).partition("+")[0]


def _turn_id(tx: Tx, scope: Scope, ref: PublicationRef | SessionRef) -> TurnId | None:
    if isinstance(ref, PublicationRef):
        publication = tx.publications.publication(scope.scope_id, ref.span.start)
        return publication.turn_id if publication is not None else None
    session = tx.sessions.session_numbered(scope.scope_id, ref.number)
    if session is None or tx.sessions.generation(session.session_id, ref.generation) is None:
        return None
    history = lineage(tx, SessionTree(session.session_id, ref.generation))
    for piece in history.owners(ref.span.start, ref.span.end_exclusive):
        record = tx.records.record(piece.tree, piece.start)
        return record.turn_id if record is not None else None
    return None
