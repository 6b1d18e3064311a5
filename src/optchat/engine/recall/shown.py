"""The hits of a matching as they are shown: refs, authorship, and the words around (§8, §11)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from optchat.core.evidence import Evidence
from optchat.core.records import Record
from optchat.engine.recall.excerpt import excerpt_of, holds_phrase
from optchat.engine.recall.hits import Hit
from optchat.engine.recall.matching import RECORD, TITLE, Matching
from optchat.engine.recall.query import Group
from optchat.engine.recall.terms import Term
from optchat.engine.recall.titles import Titles
from optchat.engine.retrieve import iso
from optchat.engine.visible import Reader
from optchat.refs import PublicationRef, Ref, SessionRef, Span
from optchat.storage.ports.frame import EVIDENCE
from optchat.storage.searched import searched_text


class Shown:
    """Makes hits one by one, as far as a page needs them."""

    def __init__(self, reader: Reader, matching: Matching) -> None:
        self._tx = reader.tx
        self._matching = matching
        self._frame = matching.frame
        self._asked = matching.asked
        self._forms = [form for term in matching.asked.wanted for form in term.forms]
        grouped = matching.query.group is Group.SESSION
        self._groups = matching.sessions() if grouped else None

    @property
    def end(self) -> int:
        """One past the last place at which there may be a hit."""
        return len(self._matching.items.row if self._groups is None else self._groups)

    def hits(self, start: int) -> Iterator[tuple[int, Hit]]:
        """The hits from a place on, each with the place behind it."""
        for at in range(start, self.end):
            places = (at,) if self._groups is None else self._groups.of(at)
            first: Hit | None = None
            more: list[str] = []
            for place in places:
                if first is None:
                    first = self._hit(place)
                elif (ref := self._ref(place)) is not None:
                    more.append(ref)
            if first is not None:
                yield at + 1, msgspec.structs.replace(first, more=more)

    def _ref(self, at: int) -> str | None:
        """The ref that the hit of an item would have; its text is read only to find a phrase."""
        items = self._matching.items
        if items.kind[at] == RECORD and not self._asked.phrases:
            return self._record_ref(int(items.row[at]))
        hit = self._hit(at)
        return hit.ref if hit is not None else None

    def _record_ref(self, row: int) -> str | None:
        frame = self._frame
        tree, seq = frame.trees[int(frame.tree[row])], int(frame.seq[row])
        session = self._matching.directory.session(tree.session_id)
        if session is None:
            return None
        return str(SessionRef(session.number, tree.generation, Span(seq, 1)))

    def _hit(self, at: int) -> Hit | None:
        """The hit of an item; None for one that does not hold a phrase as it was quoted."""
        items = self._matching.items
        kind, row = int(items.kind[at]), int(items.row[at])
        made = (
            self._record(row)
            if kind == RECORD
            else self._title(row)
            if kind == TITLE
            else self._summary(row)
        )
        return made and msgspec.structs.replace(made, score=round(float(items.score[at]), 3))

    def _record(self, row: int) -> Hit | None:
        frame = self._frame
        tree, seq = frame.trees[int(frame.tree[row])], int(frame.seq[row])
        record = self._tx.records.record(tree, seq)
        session = self._matching.directory.session(tree.session_id)
        ref = self._record_ref(row)
        if record is None or session is None or ref is None:
            return None
        text = self._text(record)
        if not self._holds_phrases(text):
            return None
        titled = frame.titles.get(tree.session_id)
        matched = [term for term in self._asked.wanted if term.standing.in_row(row)]
        return Hit(
            ref=ref,
            session=f"s{session.number}",
            title=titled.title if titled is not None else "",
            project=self._matching.directory.project(record.project_id),
            directory=session.directory,
            time=iso(record.host_time_ms),
            kind=record.kind.value,
            evidence=EVIDENCE[int(frame.evidence[row])].value,
            tool=record.tool,
            excerpt=excerpt_of(text, self._forms),
            matched=[term.told for term in matched],
            why=self._why(matched),
        )

    def _title(self, row: int) -> Hit | None:
        session_id = self._frame.sessions[row]
        titled = self._frame.titles[session_id]
        session = self._matching.directory.session(session_id)
        if session is None or not self._holds_phrases(titled.title):
            return None
        known = Titles.of(self._frame)
        matched = [term for term in self._asked.wanted if known.places(row, term.forms)]
        return Hit(
            ref=str(PublicationRef(Span(titled.publication, 1))),
            session=f"s{session.number}",
            title=titled.title,
            project=self._matching.directory.project(session.project_id),
            directory=session.directory,
            time=iso(titled.completed_ms),
            kind="title",
            evidence=Evidence.TITLE.value,
            excerpt=excerpt_of(titled.title, self._forms),
            matched=[term.told for term in matched],
            why=["the session's title", *self._why(matched)],
        )

    def _summary(self, row: int) -> Hit | None:
        nodes = self._frame.summaries
        at = int(nodes.tree[row])
        span = Span(int(nodes.start[row]), int(nodes.count[row]))
        own = self._frame.trees[at] if at >= 0 else None
        node = self._tx.trees.node_revision(
            own or self._matching.shared, span, int(nodes.revision[row])
        )
        session = self._matching.directory.session(own.session_id) if own is not None else None
        if node is None or not self._holds_phrases(node.text):
            return None
        ref: Ref = PublicationRef(span)
        if own is not None:
            if session is None:
                return None
            ref = SessionRef(session.number, own.generation, span)
        return Hit(
            ref=str(ref),
            session=f"s{session.number}" if session is not None else None,
            kind="summary",
            label=node.label,
            excerpt=excerpt_of(node.text, self._forms),
            matched=[],
            why=["a summary; open it for what it tells of"],
        )

    def _text(self, record: Record) -> str:
        payload = b"".join(self._tx.blobs.chunks(record.payload))
        return searched_text(record.kind, record.tool, record.attachments, payload)

    def _holds_phrases(self, text: str) -> bool:
        return all(holds_phrase(text, phrase.told) for phrase in self._asked.phrases)

    def _why(self, matched: list[Term]) -> list[str]:
        """How a hit came here, beyond the words that it holds."""
        wanted = self._asked.wanted
        if not wanted:
            return ["newest first"]
        if not matched:
            return ["beside what holds the words"]
        told = [f"{len(matched)} of {len(wanted)} words"] if len(wanted) > 1 else []
        told += [f"{t.told} taken for {', '.join(t.instead[:3])}" for t in matched if t.instead]
        return told
