"""Whole past sessions into a store, without a summary model: the path that an import takes.

Each session goes through ``engine.sync`` like a live one. Its turns are published at once; what
does not fit verbatim gets a labelled fallback line, made of its date, first words and counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from optchat.core.context import utc_minute
from optchat.core.records import Turn
from optchat.core.tree import Node, NodeKind, SessionTree, cover
from optchat.engine.deps import Deps
from optchat.engine.nodes import digest, record_label
from optchat.engine.publish import publish, turn_source
from optchat.engine.sync import sync
from optchat.refs import Span
from optchat.storage.ports import Store, Tx
from optchat.wire import SyncRequest

FALLBACK = "fallback"
"""The model name of what no model has summarised yet."""

SESSIONS_A_COMMIT = 50
WORDS_CHARS = 160


def ingest(store: Store, deps: Deps, requests: Iterable[SyncRequest]) -> int:
    """Seal and publish whole sessions; safe to repeat. How many records are new."""
    sealed = 0
    rest = iter(requests)
    while some := tuple(islice(rest, SESSIONS_A_COMMIT)):
        sealed += store.write(lambda tx, some=some: sum(_one(tx, deps, r) for r in some))
    return sealed


def _one(tx: Tx, deps: Deps, request: SyncRequest) -> int:
    response = sync(tx, deps, request)
    session = tx.sessions.session_of_host(request.session.host, request.session.id)
    assert session is not None
    for turn in tx.records.turns(session.session_id):
        end = turn.end_seq_exclusive
        if end is None or turn.start_seq >= end or tx.publications.of_turn(turn.turn_id):
            continue
        _publish(tx, deps, turn, end)
    return response.sealed


def _publish(tx: Tx, deps: Deps, turn: Turn, end: int) -> None:
    tree = SessionTree(turn.session_id, turn.generation)
    for span in cover(turn.start_seq, end):
        _node(tx, deps, tree, span)
    source = turn_source(tx, turn, text_bytes_max=4_096)
    when = utc_minute(turn.opened_ms)
    words = _first_words(source.request or source.answer)
    text = f"{when}, not summarised yet: {words} ({end - turn.start_seq} records)"
    publish(
        tx,
        deps,
        source,
        text=text,
        model=FALLBACK,
        prompt_version=FALLBACK,
        kind=NodeKind.FALLBACK,
    )


def _node(tx: Tx, deps: Deps, tree: SessionTree, span: Span) -> Node | None:
    """The node of a span, made as a fallback where there is none."""
    found = tx.trees.node(tree, span)
    if found is not None:
        return found
    label, text, source = "", f"{span.count} records, not summarised yet", str(span)
    if span.count == 1:
        record = tx.records.record(tree, span.start)
        if record is None:
            return None
        held = tx.blobs.read(record.payload, 0, 1_024).decode("utf-8", "replace")
        label, source = record_label(record), record.payload
        text = f"{_first_words(held)} ({record.payload_bytes} bytes, not summarised yet)"
    else:
        for child in span.children:
            _node(tx, deps, tree, child)
    node = Node(
        tree=tree,
        span=span,
        revision=1,
        kind=NodeKind.FALLBACK,
        label=label,
        text=text,
        input_hash=digest(source),
        model=FALLBACK,
        prompt_version=FALLBACK,
        born=tx.meta.next_csn(),
    )
    if tx.trees.put_node(node):
        tx.jobs.resolve(node.tree, node.span)
    return node


def _first_words(text: str) -> str:
    one_line = re.sub(r"\s+", " ", text).strip()
    return one_line if len(one_line) <= WORDS_CHARS else one_line[:WORDS_CHARS] + "…"
