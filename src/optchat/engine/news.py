"""News: what was published since a turn before, and where that leaves the reader (§7, §9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optchat.core import context
from optchat.core.records import Fold, Lineage, Pin, Session
from optchat.core.snapshots import pinned
from optchat.core.tree import ScopeTree
from optchat.engine.forest import Forest
from optchat.engine.labels import publication_label
from optchat.engine.nodes import RETIRED_LABEL, RETIRED_TEXT
from optchat.engine.visible import Reader
from optchat.errors import IntegrityError, NotFound
from optchat.refs import Csn, PublicationRef, SessionRef, Span, parse_ref
from optchat.storage.ports import Tx


@dataclass(frozen=True, slots=True)
class Recalled:
    """A line that a request's words have brought up, shown only while its ref is visible."""

    ref: str
    line: str


def recalled_text(
    tx: Tx, session: Session, lineage: Lineage, pin: Pin, recalled: Sequence[Recalled]
) -> str:
    """The block of what was brought up, as far as the turn's own snapshot sees it."""
    reader = Reader(tx, pinned(pin, session.session_id, lineage))
    return context.recalled_block(r.line for r in recalled if _is_seen(reader, r.ref))


def _is_seen(reader: Reader, name: str) -> bool:
    ref = parse_ref(name)
    try:
        if isinstance(ref, SessionRef):
            reader.session(ref)
        else:
            reader.check_publications(ref)
    except NotFound:
        return False
    return True


def news_lines(tx: Tx, session: Session, pin: Pin, start: int) -> list[str]:
    """One line for each publication from ``start`` up to the pin, in order, none left out.

    A turn of the reader's own is named without its text, which the reader has. A retired or
    forgotten number keeps its line, so that the range is whole.
    """
    tree = ScopeTree(pin.scope_id)
    forest = Forest(tx, tree, csn=Csn(pin.csn))
    lines: list[str] = []
    published = {p.seq: p for p in tx.publications.range(pin.scope_id, start, pin.publication_end)}
    for seq in range(start, pin.publication_end):
        publication = published.get(seq)
        span = Span(seq, 1)
        ref = str(PublicationRef(span))
        if publication is None or not publication.seen_at(Csn(pin.csn)):
            lines.append(context.line(ref, RETIRED_LABEL, RETIRED_TEXT))
        elif publication.session_id == session.session_id:
            label = publication_label(publication, f"s{session.number}")
            first = Span(publication.start_seq, 1)
            own = SessionRef(session.number, publication.generation, first)
            lines.append(context.line(ref, label, f"this conversation, from {own} on"))
        else:
            node = forest.node(span)
            if node is None:
                raise IntegrityError(f"the line of {ref} is gone; its originals are kept.")
            lines.append(forest.line(node))
    return lines


def news_text(
    lines: list[str], recalled: str, session: Session, pin: Pin, fold: Fold, time_ms: int
) -> str:
    """A turn's news block, with everything that changes from turn to turn in its last element."""
    own = f"s{session.number}:{pin.own_generation} records<{pin.own_end} view<{fold.boundary}"
    return context.news_block(
        lines,
        snapshot=f"pub<{pin.publication_end} epoch {pin.retention_epoch}",
        own=own,
        time_ms=time_ms,
        coverage=fold.coverage,
        recalled=recalled,
    )
