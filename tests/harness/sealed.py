"""All that a store holds of a host's sessions, named as the host and refs name it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from optchat.core.tree import ScopeTree, SessionTree
from optchat.refs import Span
from optchat.storage.ports import Tx
from optchat.storage.sqlite import SqliteStore

MANY = 1_000_000


def sealed(path: Path, host: str = "opencode") -> dict[str, list[tuple[Any, ...]]]:
    """Sessions, records, membership, turns, publications and shared lines, each in order.

    Ids of our own are left out, so that two stores that came to hold the same are the same.
    """
    with closing(SqliteStore(path)) as store:
        return store.read(lambda tx: _sealed(tx, host))


def _sealed(tx: Tx, host: str) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = {
        name: [] for name in ("sessions", "records", "messages", "turns", "publications", "lines")
    }
    names: dict[str, str] = {}
    for session in sorted(tx.sessions.of_host(host), key=lambda s: s.host_session):
        name = names[session.session_id] = session.host_session
        found["sessions"].append(
            (name, session.number, session.generation, session.title, session.directory)
        )
        for generation in tx.sessions.generations(session.session_id):
            tree = SessionTree(session.session_id, generation.number)
            found["records"] += [
                (name, r.generation, r.seq, r.event_key, r.kind, r.payload, r.status)
                for r in tx.records.range(tree, 0, MANY)
            ]
        found["messages"] += [
            (name, m.position, m.message_id, m.digest, m.start_seq, m.end_seq_exclusive)
            for m in tx.membership.messages(session.session_id)
        ]
        found["turns"] += [
            (name, t.generation, t.key, t.start_seq, t.end_seq_exclusive, t.outcome, t.closed_ms)
            for t in tx.turns.of_session(session.session_id)
        ]
    for scope in sorted(tx.sessions.scopes(), key=lambda s: s.name):
        for p in tx.publications.range(scope.scope_id, 0, scope.publications):
            leaf = tx.trees.node(ScopeTree(scope.scope_id), Span(p.seq, 1))
            found["publications"].append(
                (scope.name, p.seq, names[p.session_id], p.start_seq, p.end_seq_exclusive, p.died)
            )
            found["lines"].append((scope.name, p.seq, leaf.text if leaf is not None else None))
    return found
