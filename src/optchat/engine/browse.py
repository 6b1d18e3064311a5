"""memory_messages: a conversation page by page, and one message whole with those around it (§8)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from optchat.core.context import escape
from optchat.core.records import Record
from optchat.engine.answers import Answer, Cursor, decode_cursor, encode_cursor, quoted
from optchat.engine.history import Message, history_at, history_of
from optchat.engine.labels import record_label
from optchat.engine.nodes import digest
from optchat.engine.originals import AROUND_BYTES, masked_note, read_text
from optchat.engine.payloads import whole_output
from optchat.engine.recall.excerpt import excerpt_of
from optchat.engine.retrieve import iso, page_of
from optchat.engine.visible import Reader, not_found
from optchat.errors import BadInput
from optchat.hosts.opencode.outputs import read_output
from optchat.limits import (
    ANSWER_BYTES_MAX,
    EXCERPT_CHARS,
    MESSAGES_AROUND_MAX,
    MESSAGES_LOOKED_THROUGH,
    MESSAGES_PAGE_ROWS,
    MESSAGES_PAGE_ROWS_MAX,
    QUERY_BYTES_MAX,
    ZOOM_PAGE_LINES_MAX,
    ZOOM_PAGE_TOKENS,
    ZOOM_PAGE_TOKENS_MAX,
)
from optchat.masking import mask_part
from optchat.refs import PublicationRef, SessionRef, Span, parse_ref

_BYTES_PER_TOKEN = 3
_PLACE_BITS = 40  # a cursor names a record of the message and a byte of it
_LOOKED_AT_BYTES = 1 << 20


def messages(
    reader: Reader,
    *,
    session: str = "current",
    role: str | None = None,
    query: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Answer:
    """A conversation's messages, the newest first, a page at a time (§8).

    ``role`` "user" or "assistant" and the words of ``query``, all of which a message must hold as
    they stand, choose among them. A call looks through at most ``MESSAGES_LOOKED_THROUGH``.

    Raises:
        BadInput, NotFound, SnapshotExpired.
    """
    reader.check_epoch()
    if role not in (None, "user", "assistant"):
        raise BadInput(
            f"role is {role[:40]!r}; nothing was read.", hint='role is "user" or "assistant"'
        )
    rows = MESSAGES_PAGE_ROWS if limit is None else _within("limit", limit, 1)
    rows = min(rows, MESSAGES_PAGE_ROWS_MAX)
    words = _words(query or "")
    history = history_of(reader, reader.named(session))
    question = digest(str(history.session.session_id), role or "", *words)[:16]
    at = history.end
    if cursor:
        at = decode_cursor(cursor, kind="messages", of=question, visibility=reader.visibility)
    answer = _answer(reader, f"messages of s{history.session.number}")
    answer.lines.append(f"messages of s{history.session.number}, the newest first")
    answer.data = {"session": f"s{history.session.number}", "messages": []}
    looked, more = 0, False
    for message in history.backward(at):
        if len(answer.refs) == rows or looked == MESSAGES_LOOKED_THROUGH:
            more = True
            break
        looked += 1
        text = _told(reader, message, words) if role in (None, message.role) else None
        if text is not None:
            line = _line(message, text)
            if answer.refs and answer.size + len(line.encode()) > ANSWER_BYTES_MAX:
                more = True
                break
            _add(answer, message, text, line)
        at = message.start
    if not answer.refs:
        answer.lines.append(f"none of the {looked} looked through is what was asked for")
    if more:
        answer.cursor = encode_cursor(
            Cursor(kind="messages", of=question, at=at, snapshot=reader.visibility.served)
        )
    return answer


def message(
    reader: Reader,
    *,
    ref: str,
    before: int = 0,
    after: int = 0,
    max_tokens: int | None = None,
    cursor: str | None = None,
) -> Answer:
    """The message that a ref leads to, whole, and so many before and after it (§8).

    A publication leads to what opened its turn, a range to where it begins. The records come in
    order, each exactly as retained; where the host had cut an output and still has the whole of it
    in a file of its own, that is read instead, and said so.

    Raises:
        BadInput, NotFound, SnapshotExpired, IntegrityError.
    """
    parsed = parse_ref(ref)
    before = min(_within("before", before, 0), MESSAGES_AROUND_MAX)
    after = min(_within("after", after, 0), MESSAGES_AROUND_MAX)
    reader.check_epoch()
    if isinstance(parsed, PublicationRef):
        reader.check_publications(parsed)
        found = reader.publication(PublicationRef(Span(parsed.span.start, 1)))
        session = reader.tx.sessions.session_in(found.scope_id, found.session_id)
        number = session.number if session is not None else 0
        parsed = SessionRef(number, found.generation, Span(found.start_seq, 1))
    history = history_at(reader, parsed)
    asked = history.at(parsed.span.start)
    if asked is None:
        raise not_found(parsed)
    place = 0
    if cursor:
        place = decode_cursor(cursor, kind="message", of=asked.ref, visibility=reader.visibility)
    answer = _answer(reader, f"message {asked.ref}")
    answer.data = {
        "ref": asked.ref,
        "session": f"s{history.session.number}",
        "role": asked.role,
        "time": iso(asked.records[0].host_time_ms),
        "records": [],
        "before": [],
        "after": [],
    }
    earlier = [] if cursor else [*islice(history.backward(asked.start), before + 1)]
    later = [] if cursor else [*islice(history.forward(asked.end_exclusive), after + 1)]
    if not cursor:
        answer.data["more_before"] = len(earlier) > before
        answer.data["more_after"] = len(later) > after
    _around(answer, reader, "before", earlier[:before][::-1])
    answer.lines.append(f"{asked.ref} {escape(asked.label)}, {len(asked.records)} records:")
    around = answer.size
    tokens = min(max(1, max_tokens or ZOOM_PAGE_TOKENS), ZOOM_PAGE_TOKENS_MAX)
    room = max(1_024, min(tokens * _BYTES_PER_TOKEN, ANSWER_BYTES_MAX - 2 * around))
    end = _Whole(answer, reader, asked, room).add(place >> _PLACE_BITS, place % (1 << _PLACE_BITS))
    _around(answer, reader, "after", later[:after])
    if not cursor:
        told = {True: "there are more", False: "nothing is"}
        answer.lines.append(
            f"{told[len(earlier) > before]} before, {told[len(later) > after]} after"
        )
    if end is not None:
        answer.cursor = encode_cursor(
            Cursor(kind="message", of=asked.ref, at=end, snapshot=reader.visibility.served)
        )
    return answer


@dataclass(slots=True)
class _Whole:
    """The records of one message being put into an answer, within ``room`` bytes."""

    answer: Answer
    reader: Reader
    message: Message
    room: int
    lines: int = ZOOM_PAGE_LINES_MAX

    def add(self, index: int, start: int) -> int | None:
        """Add records from byte ``start`` of the ``index``-th on; where to go on, if not done."""
        records = self.message.records
        for at in range(min(index, len(records)), len(records)):
            if self.room <= 0 or self.lines <= 0:
                return at << _PLACE_BITS
            end = self._record(records[at], start if at == index else 0)
            if end is not None:
                return (at << _PLACE_BITS) + end
        return None

    def _record(self, record: Record, start: int) -> int | None:
        named = whole_output(record.truncated)
        store = self.message.session.host_store
        kept = read_output(store, named, start, self.room) if named is not None else None
        if kept is None:
            total = self.reader.tx.blobs.size(record.payload)
            data = self.reader.tx.blobs.read(record.payload, min(start, total), self.room)
            source = f"sha256 {record.payload}"
        else:
            data, total = kept
            source = "from the host's own file of the whole, which the memory does not keep"
        text, end = page_of(data, start, total, lines=self.lines)
        masks = 0
        if self.reader.privacy.masks_zoom and kept is None:
            text, masks = read_text(self.reader.tx, record.payload, start, end - start, mask=True)
        elif self.reader.privacy.masks_zoom:
            before = min(start, AROUND_BYTES)
            wide = read_output(
                store, named or "", start - before, before + self.room + AROUND_BYTES
            )
            text, masks = mask_part(wide[0] if wide else b"", before, before + end - start)
        shown = f"{masked_note(masks)}{quoted(text)}"
        ref = self.message.ref_of(record)
        self.answer.refs.append(ref)
        if record.truncated and kept is None:
            gone = "; the file that it names is gone" if named is not None else ""
            self.answer.lines.append(
                f"the host had cut this before it was kept ({escape(record.truncated)}{gone})"
            )
        label, when = escape(record_label(record)), iso(record.host_time_ms)
        self.answer.lines.append(
            f"{ref} {label}, {when}, bytes {start}..{end} of {total}, {source}:\n{shown}"
        )
        self.answer.data["records"].append(
            {
                "ref": ref,
                "kind": record.kind.value,
                "tool": record.tool,
                "status": record.status,
                "time": iso(record.host_time_ms),
                "truncated": record.truncated,
                "from_host_file": kept is not None,
                "bytes": total,
                "start": start,
                "end": end,
                "text": text,
            }
        )
        self.room -= len(shown.encode())
        self.lines -= shown.count("\n") + 3
        return end if end < total else None


def host_ids(reader: Reader, ref: str) -> tuple[str, str] | None:
    """The host's ids of the session and message that a visible record came from."""
    parsed = parse_ref(ref)
    if isinstance(parsed, PublicationRef) or parsed.span.count > 1:
        return None
    _, record = reader.record(parsed)
    owner = reader.tx.sessions.session_in(reader.visibility.scope_id, record.session_id)
    return (owner.host_session, record.message_id) if owner is not None else None


def _answer(reader: Reader, title: str) -> Answer:
    return Answer(title, reader.visibility, [], [], {})


def _around(answer: Answer, reader: Reader, name: str, found: list[Message]) -> None:
    for neighbour in found:
        text = _told(reader, neighbour, ()) or ""
        _add(answer, neighbour, text, _line(neighbour, text), into=name)


def _line(message: Message, text: str) -> str:
    when = iso(message.records[0].host_time_ms)
    return f"{message.ref} {escape(message.label)}, {when} | {escape(text)}"


def _add(answer: Answer, message: Message, text: str, line: str, into: str = "messages") -> None:
    answer.refs.append(message.ref)
    answer.lines.append(line)
    record = message.records[0]
    answer.data[into].append(
        {
            "ref": message.ref,
            "role": message.role,
            "time": iso(record.host_time_ms),
            "label": message.label,
            "records": len(message.records),
            "text": text,
        }
    )


def _told(reader: Reader, message: Message, words: tuple[str, ...]) -> str | None:
    """The first text of a message, cut; with words the text around one, None if one is missing."""
    texts: list[str] = []
    for record in message.spoken:
        limit = _LOOKED_AT_BYTES if words else 4 * EXCERPT_CHARS
        mask = reader.privacy.mask
        texts.append(read_text(reader.tx, record.payload, 0, limit, mask=mask)[0])
        if not words and texts[-1].strip():
            break
    if not words:
        return excerpt_of(texts[-1], [])
    lowered = [text.lower() for text in texts]
    if not all(any(word in text for text in lowered) for word in words):
        return None
    first = next(text for text, low in zip(texts, lowered, strict=True) if words[0] in low)
    return excerpt_of(first, [(words[0],)])


def _words(query: str) -> tuple[str, ...]:
    if len(query.encode("utf-8", "surrogatepass")) > QUERY_BYTES_MAX:
        raise BadInput(
            f"the query is over {QUERY_BYTES_MAX} bytes; nothing was read.",
            hint="look for a few words of it",
        )
    return tuple(dict.fromkeys(query.lower().split()))


def _within(name: str, given: int, least: int) -> int:
    if given < least:
        raise BadInput(
            f"{name} is {given}; nothing was read.", hint=f"{name} is a number from {least} on"
        )
    return given
