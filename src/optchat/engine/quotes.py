"""Where forgotten text still stands in other conversations: named to the person, never taken (§12).

A conversation that opened a reference keeps the answer in its host's transcript; of that we hold
the refs. One that repeats a passage word for word is found by searching for some of the passages.
Both are bounded: what is not found here is not promised to be nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from optchat.core.publications import Publication
from optchat.core.records import Lineage, Record, Segment
from optchat.core.scopes import Scope
from optchat.core.snapshots import Visibility
from optchat.core.tree import SessionTree
from optchat.engine.originals import read_text
from optchat.engine.recall.places import joined
from optchat.engine.recall.terms import Finder
from optchat.errors import BadInput
from optchat.refs import PublicationRef, SessionId, SessionRef, Span, parse_ref
from optchat.storage.ports import Tx
from optchat.storage.words import spaced, stems

PASSAGES_MAX = 40
PASSAGE_CHARS_MIN = 24
PASSAGE_WORDS_MIN = 4
PASSAGE_WORDS_MAX = 12
READ_BYTES = 4_096
PLACES_MAX = 200

_PIECE = re.compile(r"[^\n.!?;]+")


class _Manifest(msgspec.Struct):
    """Of an answer of our own tools, what ``payloads`` keeps."""

    refs: list[str]


@dataclass(frozen=True, slots=True)
class Going:
    """What is about to be removed from a scope."""

    pieces: tuple[Segment, ...]
    publications: tuple[Publication, ...]

    def holds(self, tree: SessionTree, seq: int) -> bool:
        return any(p.tree == tree and p.start <= seq < p.end_exclusive for p in self.pieces)


def places(tx: Tx, scope: Scope, going: Going, *, mask: bool) -> tuple[str, ...]:
    """Refs of records of the scope that stay and that opened or repeat what goes; sorted."""
    numbers = {s.session_id: s.number for s in tx.sessions.sessions(scope.scope_id)}
    found = set(_opened(tx, scope, going, numbers)) | set(
        _repeated(tx, scope, going, numbers, mask=mask)
    )
    ordered = sorted(found, key=lambda ref: (ref.number, ref.generation, ref.span.start))
    return tuple(str(ref) for ref in ordered[:PLACES_MAX])


def _opened(
    tx: Tx, scope: Scope, going: Going, numbers: dict[SessionId, int]
) -> Iterator[SessionRef]:
    published = {p.seq for p in going.publications if p.scope_id == scope.scope_id}
    sources = {
        (numbers[p.tree.session_id], p.tree.generation, seq)
        for p in going.pieces
        if p.tree.session_id in numbers
        for seq in range(p.start, p.end_exclusive)
    }
    for session_id, number in numbers.items():
        for record in tx.records.own_results(session_id):
            tree = SessionTree(record.session_id, record.generation)
            if going.holds(tree, record.seq):
                continue
            if any(_names(ref, published, sources) for ref in _refs(tx, record)):
                yield SessionRef(number, record.generation, Span(record.seq, 1))


def _refs(tx: Tx, record: Record) -> Iterator[PublicationRef | SessionRef]:
    try:
        manifest = msgspec.json.decode(b"".join(tx.blobs.chunks(record.payload)), type=_Manifest)
    except msgspec.DecodeError:
        return  # an error's text instead of a manifest
    for name in manifest.refs:
        try:
            yield parse_ref(name)
        except BadInput:
            continue


def _names(
    ref: PublicationRef | SessionRef, published: set[int], sources: set[tuple[int, int, int]]
) -> bool:
    span = ref.span
    if isinstance(ref, PublicationRef):
        return any(span.start <= seq < span.end_exclusive for seq in published)
    return any(
        (number, generation) == (ref.number, ref.generation)
        and span.start <= seq < span.end_exclusive
        for number, generation, seq in sources
    )


def _repeated(
    tx: Tx, scope: Scope, going: Going, numbers: dict[SessionId, int], *, mask: bool
) -> Iterator[SessionRef]:
    phrases = _passages(tx, going.pieces, mask=mask)
    if not phrases:
        return
    everything = tuple(
        Segment(g.tree, g.inherited, g.length)
        for session_id in numbers
        for g in tx.sessions.generations(session_id)
    )
    visibility = Visibility(
        scope_id=scope.scope_id,
        csn=tx.meta.csn(),
        publication_end=scope.publications,
        policy_revision=scope.policy_revision,
        retention_epoch=scope.retention_epoch,
        own=Lineage(everything),
    )
    frame = tx.search.frame(visibility)
    finder = Finder(tx, frame)
    found = joined(finder.of(form) for phrase in phrases if (form := stems(spaced(phrase))))
    for row in found.counted()[0].tolist():
        tree, seq = frame.trees[int(frame.tree[row])], int(frame.seq[row])
        if tree.session_id in numbers and not going.holds(tree, seq):
            yield SessionRef(numbers[tree.session_id], tree.generation, Span(seq, 1))


def _passages(tx: Tx, pieces: Sequence[Segment], *, mask: bool) -> tuple[str, ...]:
    """The longest passage of each record, and of these the longest; as phrases to search for."""
    found: set[str] = set()
    for piece in pieces:
        for record in tx.records.range(piece.tree, piece.start, piece.end_exclusive):
            if (record.tool or "").startswith("memory_"):
                continue
            text = read_text(tx, record.payload, 0, READ_BYTES, mask=mask)[0].lower()
            passages = (words for found in _PIECE.findall(text) if (words := _words(found)))
            longest = max(passages, key=len, default="")
            if longest:
                found.add(longest)
    return tuple(sorted(found, key=lambda p: (-len(p), p))[:PASSAGES_MAX])


def _words(passage: str) -> str:
    words = passage.split()[:PASSAGE_WORDS_MAX]
    told = " ".join(words)
    return told if len(words) >= PASSAGE_WORDS_MIN and len(told) >= PASSAGE_CHARS_MIN else ""
