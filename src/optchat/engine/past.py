"""History that was there before the memory: taken in without a model, summarised when wanted (§8).

Its turns are published at once under a line that only names them. The nodes of its records are left
unmade until its session is used again or somebody asks, and its originals are found and read as any
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from optchat.core import context
from optchat.core.publications import Publication
from optchat.core.records import Lineage, Outcome, Record, RecordKind, Session, Turn
from optchat.core.tree import Node, NodeKind, ScopeTree
from optchat.engine import nodes
from optchat.engine.deps import Deps
from optchat.engine.draft import Draft
from optchat.engine.forest import Forest
from optchat.engine.labels import publication_label, session_name, tool_name
from optchat.engine.originals import read_text
from optchat.engine.payloads import Source
from optchat.engine.publish import (
    advance_shared_view,
    publication_of,
    published_range,
    source_cover,
    told_pieces,
)
from optchat.engine.sessions import generation_of, require_scope
from optchat.limits import SUMMARY_BYTES_MAX
from optchat.refs import Csn, ScopeId, Span
from optchat.storage.ports import Tx
from optchat.wire import OWN_TOOLS

REQUEST_BYTES_MAX = 200
"""How much of a request its turn's line repeats, rendered."""
REQUEST_CHARS_MAX = 4 * REQUEST_BYTES_MAX
"""How much of it is looked at, for runs of spaces shrink."""
TOOLS_MAX = 4
"""How many tools a line names, the most used first."""


class Fresh(NamedTuple):
    """Records that are being sealed, in a row from ``start`` on."""

    start: int
    sources: Sequence[Source]


class Publishing:
    """Turns of the past on their way into their scopes' trees, of all sessions of a transaction.

    Together, for a tree grows at its end: what one turn's parents are made from has just been made.
    """

    def __init__(self, tx: Tx, deps: Deps) -> None:
        self._tx = tx
        self._deps = deps
        self._open: dict[ScopeId, _Shelf] = {}

    def add(self, session: Session, turns: Sequence[tuple[Turn, str]], history: Lineage) -> None:
        """Publish closed turns of a session, each under a line that names it.

        A turn of no scope, or without records of its own, is published nowhere, as ever.
        """
        tx = self._tx
        names: dict[ScopeId, str | None] = {}
        for turn, line in turns:
            cover = source_cover(history, turn) if turn.scope_id is not None else ()
            if turn.scope_id is None or not cover:
                continue
            if turn.scope_id not in names:
                is_own = turn.scope_id == session.scope_id
                known = (
                    session if is_own else tx.sessions.session_in(turn.scope_id, session.session_id)
                )
                names[turn.scope_id] = session_name(tx, known) if known is not None else None
            name = names[turn.scope_id]
            if name is None:
                continue
            shelf = self._shelf(turn.scope_id)
            publication = publication_of(
                self._deps,
                session,
                turn,
                turn.scope_id,
                shelf.end,
                start_seq=published_range(history, turn)[0],
                cover=cover,
                csn=shelf.csn,
            )
            self._put(shelf, publication, publication_label(publication, name), line)

    def put_down(self) -> None:
        """Write what has come together, and take it into the scopes' views."""
        for shelf in self._open.values():
            self._tx.publications.append_many(shelf.publications)
            shelf.forest.put_made()
            advance_shared_view(self._tx, self._deps, shelf.forest, shelf.end)
        self._open.clear()

    def _shelf(self, scope_id: ScopeId) -> _Shelf:
        if scope_id not in self._open:
            self._open[scope_id] = _Shelf(
                Forest(self._tx, ScopeTree(scope_id), made={}),
                require_scope(self._tx, scope_id).publications,
                self._tx.meta.next_csn(),
            )
        return self._open[scope_id]

    def _put(self, shelf: _Shelf, publication: Publication, label: str, text: str) -> None:
        leaf = Node(
            tree=shelf.forest.tree,
            span=Span(publication.seq, 1),
            revision=1,
            kind=NodeKind.FALLBACK,
            label=label,
            text=text,
            input_hash=_hash_of(publication.outcome),
            model=nodes.IMPORTED,
            prompt_version=nodes.IMPORTED,
            born=shelf.csn,
        )
        shelf.publications.append(publication)
        shelf.end += 1
        shelf.forest.note_time(publication.seq, publication.completed_ms)
        nodes.take(shelf.forest, leaf)
        nodes.complete_parents(
            self._tx,
            self._deps,
            shelf.forest,
            shelf.end,
            publication.scope_id,
            shelf.csn,
            is_past=True,
        )


@cache
def _hash_of(outcome: Outcome) -> str:
    return nodes.digest(outcome.value)


@dataclass(slots=True)
class _Shelf:
    """What is on its way into one scope: publications up to ``end``, under one commit number."""

    forest: Forest
    end: int
    csn: Csn
    publications: list[Publication] = field(default_factory=list[Publication])


def request_words(text: str) -> str:
    """As much of a request as its turn's line repeats, on one line."""
    return context.shorten(" ".join(text[:REQUEST_CHARS_MAX].split()), REQUEST_BYTES_MAX)


def name_turns(draft: Draft, sources: Sequence[Source]) -> None:
    """Give each turn of a session's first draft that ended its line; ``sources`` are all of it."""
    for turn in draft.turns:
        if turn.end_seq_exclusive is not None:
            members = sources[turn.start_seq : turn.end_seq_exclusive]
            asked = next(filter(_is_request, members), None)
            turn.line = _line(turn.opened_ms, members, asked.text if asked is not None else "")


def line_of(tx: Tx, deps: Deps, turn: Turn, history: Lineage, fresh: Fresh) -> str:
    """The line of a turn of which some records may have been sealed before."""
    members: list[Record | Source] = []
    own = history.segments[-1].tree
    for piece in told_pieces(history, turn):
        start, now = piece.end_exclusive, slice(0, 0)
        if piece.tree == own:
            start = max(piece.start, min(fresh.start, start))
            now = slice(start - fresh.start, piece.end_exclusive - fresh.start)
        earlier = tx.records.range(piece.tree, piece.start, start) if piece.start < start else ()
        members += [*earlier, *fresh.sources[now]]
    asked, told = next(filter(_is_request, members), None), ""
    if isinstance(asked, Source):
        told = asked.text
    elif asked is not None:
        mask = deps.config.privacy.mask
        told = request_words(read_text(tx, asked.payload, 0, REQUEST_CHARS_MAX, mask=mask)[0])
    return _line(turn.opened_ms, members, told)


def _line(opened_ms: int, members: Sequence[Record | Source], told: str) -> str:
    """When, the first words of the request, and how much there is of what."""
    used = Counter(m.tool for m in members if m.kind is RecordKind.TOOL_CALL and m.tool)
    tools = [f"{tool_name(tool)} {count}" for tool, count in used.most_common(TOOLS_MAX)]
    counts = ", ".join([f"{len(members)} records", *tools])
    request = f"asked: {told}" if told else "no request"
    return f"(history) {context.utc_minute(opened_ms)[:10]} {request} / {counts}"


def _is_request(member: Record | Source) -> bool:
    return member.kind is RecordKind.USER and member.status is None and not member.attachments


def make_nodes(tx: Tx, deps: Deps, session: Session, history: Lineage) -> int:
    """Make or schedule the nodes that were left unmade in a history; how many records had none.

    Of a base only what the history inherits: the rest of it stays as it is.
    """
    made = 0
    for segment in history.segments:
        generation = generation_of(tx, segment.tree)
        start = generation.unmade_from
        if start == generation.length:  # taken in before it held anything
            tx.sessions.put_generation(replace(generation, unmade_from=None))
        if start is None or start >= segment.end_exclusive:
            continue
        forest = Forest(
            tx,
            segment.tree,
            number=session.number,
            lineage=history.clipped(segment.end_exclusive),
        )
        csn = tx.meta.next_csn()
        end = segment.end_exclusive
        held = {r.seq: r for r in tx.records.range(segment.tree, start, end)}
        for seq in range(start, end):
            record = held.get(seq)
            if record is not None:  # else a tombstone is its leaf
                nodes.seal_leaf(
                    tx,
                    deps,
                    forest,
                    record=record,
                    scope_id=session.scope_id,
                    text=_text(tx, record, mask=deps.config.privacy.mask),
                    csn=csn,
                )
                made += 1
            nodes.complete_parents(tx, deps, forest, seq + 1, session.scope_id, csn)
        rest = segment.end_exclusive if segment.end_exclusive < generation.length else None
        tx.sessions.put_generation(replace(generation, unmade_from=rest))
    return made


def _text(tx: Tx, record: Record, *, mask: bool) -> str:
    """What a leaf may repeat of a record; "" for the result of one of our own tools."""
    if record.kind is RecordKind.TOOL_RESULT and record.tool in OWN_TOOLS:
        return ""
    # Masked, a long text may be a short one: whether it fits is known of the whole only.
    count = record.payload_bytes if mask else SUMMARY_BYTES_MAX + 1
    return read_text(tx, record.payload, 0, count, mask=mask)[0]
