"""The causal context of a call: the same session before its sources, and nothing later (§4).

Between calls of one session the lines only grow, so the bytes before the sources are those of the
call before and are read from the provider's cache. When they pass the bound they are frozen anew,
at half of it, over coarser nodes. The lines live in memory: a restart costs one cold prefix. They
are dropped when the scope's retention epoch moves, so that nothing forgotten is sent again (I8).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from optchat.compactor import results
from optchat.compactor.items import flat, node_line, retrieved_refs
from optchat.core.records import RecordKind, Turn
from optchat.core.snapshots import pinned
from optchat.core.tree import Node, SessionTree, cover
from optchat.core.views import Entry, View, advance
from optchat.engine.forest import Forest
from optchat.engine.sessions import lineage as lineage_of
from optchat.engine.visible import Reader
from optchat.errors import OptChatError
from optchat.refs import PublicationRef, SessionRef, Span, TurnId, parse_ref
from optchat.storage.ports import Tx

APPENDED_SPAN_MAX = 32
"""The coarsest node that is appended: records of a turn or two."""

SESSIONS_MAX = 64
FOREIGN_BYTES_MAX = 640
RETRIEVED_BYTES_MAX = 2 * 1024


@dataclass(slots=True)
class _Lines:
    """What a session's calls have been shown so far."""

    epoch: int
    spans: list[Span] = field(default_factory=list[Span])
    lines: list[str] = field(default_factory=list[str])

    @property
    def covered(self) -> int:
        return self.spans[-1].end_exclusive if self.spans else 0

    @property
    def size(self) -> int:
        return sum(len(line.encode()) for line in self.lines)

    def until(self, end_exclusive: int) -> str:
        shown = [
            line
            for span, line in zip(self.spans, self.lines, strict=True)
            if span.end_exclusive <= end_exclusive
        ]
        return "".join(shown)


@dataclass(slots=True)
class Earlier:
    """The lines of each session that is being worked on. Thread-safe."""

    bytes_max: int
    frozen: bool = True
    _sessions: OrderedDict[str, _Lines] = field(default_factory=OrderedDict[str, _Lines])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def before(self, tx: Tx, tree: SessionTree, end_exclusive: int) -> str:
        """Lines over records below ``end_exclusive``, up to the first that is not made yet."""
        session = tx.sessions.session(tree.session_id)
        scope = tx.sessions.scope(session.scope_id) if session is not None else None
        if scope is None or not self.bytes_max:
            return ""
        with self._lock:
            known = self._sessions.pop(str(tree), None)
            if known is None or known.epoch != scope.retention_epoch or not self.frozen:
                known = _Lines(scope.retention_epoch)
            self._sessions[str(tree)] = known
            while len(self._sessions) > SESSIONS_MAX:
                self._sessions.popitem(last=False)
            forest = results.forest_of(tx, tree)
            self._grow(forest, known, end_exclusive)
            return known.until(end_exclusive)

    def _grow(self, forest: Forest, known: _Lines, end_exclusive: int) -> None:
        if end_exclusive <= known.covered:
            return
        pending = list(reversed(cover(known.covered, end_exclusive)))
        while pending:
            span = pending.pop()
            node = forest.node(span) if span.count <= APPENDED_SPAN_MAX else None
            if node is not None:
                known.spans.append(span)
                known.lines.append(_line(node))
            elif span.count > 1:
                left, right = span.children
                pending += [right, left]
            else:
                break
        if known.size > self.bytes_max:
            self._freeze(forest, known)

    def _freeze(self, forest: Forest, known: _Lines) -> None:
        """Go over to coarser nodes, so that there is room again for a span of calls."""

        def entry(span: Span) -> Entry | None:
            node = forest.node(span)
            return None if node is None else Entry(span, node.revision, _size(node), 0)

        leaves = [entry(span) for span in known.spans]
        entries = tuple(e for e in leaves if e is not None)
        view = advance(
            View(entries=entries, shrinking=True),
            (),
            entry,
            high_bytes=0,
            low_bytes=self.bytes_max // 2,
        )
        known.spans = [e.span for e in view.entries]
        found = [forest.node(span) for span in known.spans]
        known.lines = [_line(node) for node in found if node is not None]


def _line(node: Node) -> str:
    return f"- {node_line(node)}\n"


def _size(node: Node) -> int:
    return len(_line(node).encode())


def foreign(tx: Tx, turn_id: TurnId, end_exclusive: int) -> str:
    """What of other conversations this turn was shown: its pinned news, and what it opened (§4).

    Only what the turn's own snapshot held, and only what it had retrieved before the sources end.
    """
    turn = tx.turns.turn(turn_id)
    session = tx.sessions.session(turn.session_id) if turn is not None else None
    if turn is None or session is None or turn.pin is None:
        return ""
    scope = tx.sessions.scope(turn.pin.scope_id)
    if scope is None or scope.retention_epoch != turn.pin.retention_epoch:
        return ""  # something that it showed has been forgotten since
    news = [
        flat(line.partition(" ")[2])
        for line in turn.news.splitlines()
        if line.startswith("pub:") and "this conversation, from" not in line
    ]
    lines = [f"- {line}\n" for line in reversed(_last(news, FOREIGN_BYTES_MAX))]
    lines += [f"- opened: {line}\n" for line in _retrieved(tx, turn, end_exclusive)]
    return "".join(lines)


def _last(lines: list[str], bytes_max: int) -> list[str]:
    """The newest lines that fit, newest first."""
    kept: list[str] = []
    for line in reversed(lines):
        bytes_max -= len(line.encode()) + 3
        if bytes_max < 0:
            break
        kept.append(line)
    return kept


def _retrieved(tx: Tx, turn: Turn, end_exclusive: int) -> list[str]:
    assert turn.pin is not None
    tree = SessionTree(turn.session_id, turn.generation)
    history = lineage_of(tx, tree)
    end = min(end_exclusive, turn.end_seq_exclusive or history.length, history.length)
    if end <= turn.start_seq:
        return []
    reader = Reader(tx, pinned(turn.pin, turn.session_id, history))
    found: dict[str, str] = {}
    room = RETRIEVED_BYTES_MAX
    for piece in history.owners(turn.start_seq, end):
        for record in tx.records.range(piece.tree, piece.start, piece.end_exclusive):
            if record.kind is not RecordKind.TOOL_RESULT or not (record.tool or "").startswith(
                "memory_"
            ):
                continue
            payload = tx.blobs.read(record.payload, 0, 64 * 1024)
            for name in retrieved_refs(payload):
                node = None if name in found else _node_of(reader, name)
                if node is None or node.tree == tree:
                    continue
                line = node_line(node)
                room -= len(line.encode())
                if room < 0:
                    return list(found.values())
                found[name] = line
    return list(found.values())


def _node_of(reader: Reader, name: str) -> Node | None:
    """The line that a ref stood for at the turn's snapshot, if the turn may see it."""
    try:
        ref = parse_ref(name)
        match ref:
            case PublicationRef():
                reader.check_publications(ref)
                return reader.shared().node(ref.span)
            case SessionRef():
                _, forest = reader.session(ref)
                return forest.node(ref.span)
    except OptChatError:
        return None
