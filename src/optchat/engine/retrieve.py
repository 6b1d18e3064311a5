"""memory_zoom, memory_date and memory_sessions: from a line down to the exact original (§8)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from optchat.core.context import escape
from optchat.core.tree import Node
from optchat.engine.answers import Answer, Cursor, decode_cursor, encode_cursor, quoted
from optchat.engine.forest import Forest
from optchat.engine.labels import record_label, session_name
from optchat.engine.originals import masked_note, read_text, without_secrets
from optchat.engine.visible import Reader, missing
from optchat.errors import IntegrityError
from optchat.limits import (
    ZOOM_PAGE_LINES_MAX,
    ZOOM_PAGE_TOKENS,
    ZOOM_PAGE_TOKENS_MAX,
)
from optchat.refs import PublicationRef, SessionRef, parse_ref

_BYTES_PER_TOKEN = 3


def iso(time_ms: int) -> str:
    """A recorded time, exact and in UTC."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def zoom(
    reader: Reader, *, ref: str, cursor: str | None = None, max_tokens: int | None = None
) -> Answer:
    """Expand a ref by one step (§8).

    A range gives its two halves; a publication its metadata and exact source cover; a record its
    retained payload, a page at a time.

    Raises:
        BadInput, NotFound, SnapshotExpired, IntegrityError.
    """
    parsed = parse_ref(ref)
    reader.check_epoch()
    if isinstance(parsed, PublicationRef):
        reader.check_publications(parsed)
        if parsed.span.count == 1:
            return _publication(reader, parsed)
        return _halves(reader, reader.shared(), parsed)
    if parsed.span.count == 1:
        return _record(reader, parsed, cursor, max_tokens)
    _, forest = reader.session(parsed)
    return _halves(reader, forest, parsed)


def _answer(reader: Reader, title: str) -> Answer:
    return Answer(title, reader.visibility, [], [], {})


def _halves(reader: Reader, forest: Forest, ref: PublicationRef | SessionRef) -> Answer:
    answer = _answer(reader, f"{ref}")
    node = forest.node(ref.span)
    if node is not None:
        answer.lines.append(forest.line(node).rstrip("\n"))
    answer.data = {"ref": str(ref), "node": _node_data(forest, node), "children": []}
    answer.lines.append("halves:")
    for child in ref.span.children:
        found = forest.node(child)
        name = str(forest.ref(child))
        answer.refs.append(name)
        answer.data["children"].append({"ref": name, "node": _node_data(forest, found)})
        if found is not None:
            answer.lines.append("  " + forest.line(found).rstrip("\n"))
        else:
            answer.lines.append(f"  {name} | (not summarised yet; zoom into it)")
    return answer


def _node_data(forest: Forest, node: Node | None) -> dict[str, Any] | None:
    if node is None:
        return None
    return {
        "ref": str(forest.ref(node.span)),
        "label": node.label,
        "text": node.text,
        "kind": node.kind.value,
        "revision": node.revision,
        "model": node.model,
        "input_hash": node.input_hash,
    }


def _publication(reader: Reader, ref: PublicationRef) -> Answer:
    publication = reader.publication(ref)
    forest = reader.shared()
    leaf = forest.node(ref.span)
    session = reader.tx.sessions.session_in(publication.scope_id, publication.session_id)
    if leaf is None or session is None:
        raise IntegrityError(f"the leaf or the session of {ref} is missing.")
    answer = _answer(reader, f"{ref}")
    last, name = publication.end_seq_exclusive - 1, session_name(reader.tx, session)
    answer.lines += [
        forest.line(leaf).rstrip("\n"),
        f"turn of {name} ({escape(publication.title)}), {publication.outcome.value}",
        f"opened {iso(publication.opened_ms)}, ended {iso(publication.completed_ms)}",
        f"published {iso(publication.published_ms)}",
        f"source: records {publication.start_seq}..{last}, covered by:",
    ]
    tree_number = session.number
    cover: list[dict[str, Any]] = []
    for part in publication.cover:
        name = str(SessionRef(tree_number, publication.generation, part.span))
        node = reader.tx.trees.node(part.tree, part.span, reader.visibility.csn)
        if node is None:
            answer.lines.append(f"  {name} | (not summarised yet; zoom into it)")
            answer.refs.append(name)
            cover.append({"ref": name, "label": "", "text": None})
            continue
        label = f" {node.label}" if node.label else ""
        answer.lines.append(f"  {name}{escape(label)} | {escape(node.text)}")
        answer.refs.append(name)
        cover.append({"ref": name, "label": node.label, "text": node.text})
    answer.data = {
        "ref": str(ref),
        "node": _node_data(forest, leaf),
        "session": f"s{session.number}",
        "title": publication.title,
        "outcome": publication.outcome.value,
        "opened": iso(publication.opened_ms),
        "completed": iso(publication.completed_ms),
        "published": iso(publication.published_ms),
        "generation": publication.generation,
        "start_seq": publication.start_seq,
        "end_seq_exclusive": publication.end_seq_exclusive,
        "cover": cover,
    }
    return answer


def _record(reader: Reader, ref: SessionRef, cursor: str | None, max_tokens: int | None) -> Answer:
    session, record = reader.record(ref)
    name = str(ref)
    start = 0
    if cursor:
        start = decode_cursor(cursor, kind="zoom", of=name, visibility=reader.visibility)
    page_tokens = min(max(1, max_tokens or ZOOM_PAGE_TOKENS), ZOOM_PAGE_TOKENS_MAX)
    total = reader.tx.blobs.size(record.payload)
    count = max(16, page_tokens * _BYTES_PER_TOKEN)
    data = reader.tx.blobs.read(record.payload, start, min(count, max(0, total - start)))
    text, end = page_of(data, start, total, lines=ZOOM_PAGE_LINES_MAX)
    masks = 0
    if reader.privacy.masks_zoom:
        text, masks = read_text(reader.tx, record.payload, start, end - start, mask=True)
    answer = _answer(reader, name)
    where = [f"s{session.number} {escape(session.directory)}"]
    if record.worktree:
        where.append(f"worktree {escape(record.worktree)}")
    if record.commit:
        where.append(f"commit {escape(record.commit)}")
    answer.lines += [
        f"{name} {escape(record_label(record))}, {iso(record.host_time_ms)}",
        f"in {', '.join(where)}",
    ]
    if record.truncated:
        answer.lines.append(
            f"the host had cut this before it was kept ({escape(record.truncated)})"
        )
    answer.lines.append(f"original, bytes {start}..{end} of {total}, sha256 {record.payload}:")
    answer.lines.append(f"{masked_note(masks)}{quoted(text)}")
    answer.refs = [name]
    answer.data = {
        "ref": name,
        "kind": record.kind.value,
        "tool": record.tool,
        "status": record.status,
        "pair": record.pair,
        "time": iso(record.host_time_ms),
        "worktree": record.worktree,
        "commit": record.commit,
        "truncated": record.truncated,
        "attachments": [
            without_secrets(a, mask=reader.privacy.masks_zoom) for a in record.attachments
        ],
        "sha256": record.payload,
        "bytes": total,
        "start": start,
        "end": end,
        "text": text,
        "masked": masks,
    }
    if end < total:
        answer.cursor = encode_cursor(
            Cursor(kind="zoom", of=name, at=end, snapshot=reader.visibility.served)
        )
    return answer


def page_of(data: bytes, start: int, total: int, *, lines: int) -> tuple[str, int]:
    """As much of a payload's bytes from ``start`` on as is whole lines and code points.

    At most ``lines`` lines; a byte that is not UTF-8 becomes the replacement character and counts
    as read. Returns the text and where it ends.
    """
    found = data.split(b"\n", lines)
    if len(found) > lines:
        data = data[: len(data) - len(found[-1])]
    end = start + len(data)
    if end < total:
        whole = len(data)
        while whole and whole > len(data) - 4 and _is_incomplete(data[:whole]):
            whole -= 1
        if whole:
            data, end = data[:whole], start + whole
    return data.decode("utf-8", "replace"), end


def _is_incomplete(data: bytes) -> bool:
    """Whether the data ends inside a UTF-8 sequence."""
    tail = re.search(rb"[\xc2-\xf4][\x80-\xbf]{0,3}$", data)
    if tail is None:
        return False
    lead = tail.group()[0]
    needed = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    return len(tail.group()) < needed


def date(reader: Reader, *, ref: str) -> Answer:
    """The recorded times of a ref: when it happened, by the host's clock, and when published."""
    parsed = parse_ref(ref)
    reader.check_epoch()
    answer = _answer(reader, f"{parsed}")
    answer.refs = [str(parsed)]
    if isinstance(parsed, PublicationRef):
        reader.check_publications(parsed)
        found = [
            p
            for p in reader.tx.publications.range(
                reader.visibility.scope_id, parsed.span.start, parsed.span.end_exclusive
            )
            if p.seen_at(reader.visibility.csn)
        ]
        if not found:
            raise missing(reader, parsed)
        answer.data = {
            "ref": str(parsed),
            "opened": iso(min(p.opened_ms for p in found)),
            "completed": iso(max(p.completed_ms for p in found)),
            "published_first": iso(min(p.published_ms for p in found)),
            "published_last": iso(max(p.published_ms for p in found)),
        }
        answer.lines = [
            f"{parsed}: work from {answer.data['opened']} to {answer.data['completed']}",
            f"published {answer.data['published_first']} to {answer.data['published_last']}",
        ]
        return answer
    _, forest = reader.session(parsed)
    assert forest.lineage is not None
    times = [
        record.host_time_ms
        for piece in forest.lineage.owners(parsed.span.start, parsed.span.end_exclusive)
        for record in reader.tx.records.range(piece.tree, piece.start, piece.end_exclusive)
    ]
    answer.data = {"ref": str(parsed), "first": iso(min(times)), "last": iso(max(times))}
    answer.lines = [f"{parsed}: from {answer.data['first']} to {answer.data['last']}"]
    return answer
