"""memory_sessions: which conversations there are, and who belongs to whom (§8, §12)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from optchat.core.context import escape
from optchat.core.records import Record, RecordKind, Session
from optchat.core.tree import SessionTree
from optchat.engine.answers import Answer, Cursor, decode_cursor, encode_cursor
from optchat.engine.history import history_of
from optchat.engine.labels import label_of, session_name
from optchat.engine.nodes import digest
from optchat.engine.originals import read_text, without_secrets
from optchat.engine.recall.query import parse_time
from optchat.engine.retrieve import iso
from optchat.engine.visible import Reader
from optchat.limits import ANSWER_BYTES_MAX, SESSIONS_PAGE_ROWS
from optchat.refs import PublicationRef, Span
from optchat.wire import ChildInfo

_DETAILED_ROWS = 10
_LOOKED_AT_MESSAGES = 400
_NAMES_MAX = 20
_INPUT_BYTES = 64 * 1024
_FILE = re.compile(r'(?<!\\)"(?:filePath|file_path|path|file)"\s*:\s*("(?:[^"\\]|\\.){1,200}")')


@dataclass(frozen=True, slots=True)
class _Row:
    """A session with what of it is visible: turns, and the times of the first and the last."""

    session: Session
    turns: int
    first_ms: int
    last_ms: int

    @property
    def key(self) -> tuple[str, str]:
        return self.session.host, self.session.host_session

    @property
    def parent(self) -> tuple[str, str | None]:
        return self.session.host, self.session.parent_host_session


def sessions(
    reader: Reader,
    *,
    parent: str | None = None,
    search: str | None = None,
    since: str | None = None,
    until: str | None = None,
    archived: bool = False,
    files: bool = False,
    tools: bool = False,
    limit: int | None = None,
    cursor: str | None = None,
    children: Iterable[ChildInfo] = (),
) -> Answer:
    """The conversations with something visible, newest activity first, a page at a time.

    A subagent's stands below its parent's. Those that the host has archived are left out unless
    asked for; what they published is as visible as before. ``parent`` asks for one conversation's
    subagents only, ``search`` for words of title or directory, ``since`` and ``until`` for activity
    at that time. ``files`` and ``tools`` tell what the newest messages touched and used.
    ``children`` are the asking conversation's subagents as its host has them at this moment, which
    no snapshot holds.

    Raises:
        BadInput, NotFound, SnapshotExpired.
    """
    reader.check_epoch()
    above = reader.named(parent) if parent is not None else None
    since_ms = parse_time(since, "since") if since else None
    until_ms = parse_time(until, "until") if until else None
    rows = [
        row
        for row in _families(reader, archived=archived)
        if (above is None or row.parent == (above.host, above.host_session))
        and (since_ms is None or row.last_ms >= since_ms)
        and (until_ms is None or row.first_ms < until_ms)
    ]
    rows = _about(reader, rows, (search or "").lower().split())
    asked = (parent or "", search or "", since or "", until or "", str(archived))
    question = digest(*asked)[:16]
    start = 0
    if cursor:
        start = decode_cursor(cursor, kind="sessions", of=question, visibility=reader.visibility)
    usual = _DETAILED_ROWS if files or tools else SESSIONS_PAGE_ROWS
    bound = min(SESSIONS_PAGE_ROWS, max(1, limit or usual))
    answer = Answer("conversations", reader.visibility, [], [], {})
    answer.data = {"total": len(rows), "sessions": []}
    _add_children(answer, reader, above, children)
    if not rows:
        chosen = any((parent, search, since, until))
        answer.lines.append(
            "no conversation is as asked for"
            if chosen
            else "no conversation has published anything here yet"
        )
    end = start
    while end < min(start + bound, len(rows)) and answer.size < ANSWER_BYTES_MAX:
        _add(answer, reader, rows[end], files=files, tools=tools)
        end += 1
    if end < len(rows):
        answer.cursor = encode_cursor(
            Cursor(kind="sessions", of=question, at=end, snapshot=reader.visibility.served)
        )
    return answer


def _families(reader: Reader, *, archived: bool) -> list[_Row]:
    """The visible sessions, each with its subagents' below it, which are hidden when it is."""
    rows = [_Row(*row) for row in reader.tx.publications.visible_sessions(reader.visibility)]
    listed = {row.key for row in rows}
    tops: list[_Row] = []
    below: dict[tuple[str, str | None], list[_Row]] = {}
    for row in rows:
        (below.setdefault(row.parent, []) if row.parent in listed else tops).append(row)
    found: list[_Row] = []
    pending = tops[::-1]
    while pending:
        row = pending.pop()
        if archived or not row.session.archived_at(reader.visibility.csn):
            found.append(row)
            pending += reversed(below.get(row.key, []))
    return found


def _about(reader: Reader, rows: list[_Row], words: list[str]) -> list[_Row]:
    """The sessions whose title or directory has all these words."""
    if not words:
        return rows
    titles = reader.tx.search.frame(reader.visibility).titles

    def told(session: Session) -> str:
        titled = titles.get(session.session_id)
        title = titled.title if titled is not None else ""
        if reader.visibility.session_id is None:
            title = session.title
        return f"{title} {session.directory}".lower()

    return [row for row in rows if all(word in told(row.session) for word in words)]


def _title(reader: Reader, session: Session) -> str:
    """What a session is called: now for a person, within a turn as it was last published."""
    newest = reader.newest(session)
    if reader.visibility.session_id is None or newest is None:
        return session.title
    return newest.title


def _add(answer: Answer, reader: Reader, row: _Row, *, files: bool, tools: bool) -> None:
    session = row.session
    newest = reader.newest(session)
    assert newest is not None  # or it would not be listed
    own = session.session_id == reader.visibility.session_id
    hidden = session.archived_at(reader.visibility.csn)
    name = session_name(reader.tx, session)
    ref = str(PublicationRef(Span(newest.seq, 1)))
    family = _family(reader, session)
    project = next(
        (p.directory for p in reader.tx.sessions.projects() if p.project_id == session.project_id),
        session.directory,
    )
    title = _title(reader, session)
    told = [f"in {escape(session.directory)}"]
    told += [f"{kind} {', '.join(names)}" for kind, names in family.items() if names]
    data: dict[str, Any] = {
        "session": f"s{session.number}",
        "name": name,
        "own": own,
        "archived": hidden,
        "title": title,
        "directory": session.directory,
        "project": project,
        "turns": row.turns,
        "first": iso(row.first_ms),
        "last": iso(row.last_ms),
        "newest": ref,
        "newest_label": label_of(reader.tx, newest),
        "host_session": session.host_session,
        "family": family,
    }
    if files or tools:
        touched, used = _inventory(reader, session)
        for asked, kind, names in ((files, "files", touched), (tools, "tools", used)):
            if asked:
                data[kind] = names
                told.append(f"{kind} {escape(', '.join(names)) or 'none'}")
    answer.refs.append(ref)
    answer.lines.append(
        f"{name}{' (this conversation)' if own else ''}{' (archived)' if hidden else ''} "
        f"{escape(title) or '(no title)'}: {row.turns} turns, {iso(row.first_ms)} to "
        f"{iso(row.last_ms)}, newest {ref}; {'; '.join(told)}"
    )
    answer.data["sessions"].append(data)


def _family(reader: Reader, session: Session) -> dict[str, list[str]]:
    """Parent, subagents, origin and forks of a session, those of them that are visible."""
    tx, scope_id = reader.tx, reader.visibility.scope_id

    def names(found: Iterable[Session | None]) -> list[str]:
        known = {s.session_id: tx.sessions.session_in(scope_id, s.session_id) for s in found if s}
        own = reader.visibility.session_id
        return [
            f"s{s.number}"
            for s in known.values()
            if s is not None and (s.session_id == own or reader.newest(s) is not None)
        ]

    parent = session.parent_host_session
    above = tx.sessions.session_of_host(session.host, parent) if parent is not None else None
    generations = tx.sessions.generations(session.session_id)
    origin = next(
        (
            tx.sessions.session(g.base.session_id)
            for g in generations
            if g.base is not None and g.base.session_id != session.session_id
        ),
        None,
    )
    forks = [
        tx.sessions.session(made.session_id)
        for g in generations
        for made in tx.sessions.derived(SessionTree(session.session_id, g.number))
        if made.session_id != session.session_id
    ]
    return {
        "subagent of": names([above]),
        "subagents": names(tx.sessions.children(session.host, session.host_session)),
        "fork of": names([origin]),
        "forks": names(forks),
    }


def _inventory(reader: Reader, session: Session) -> tuple[list[str], list[str]]:
    """Files named in calls and tools used in a session's newest messages, the latest first."""
    history = history_of(reader, session)
    files: dict[str, None] = {}
    tools: Counter[str] = Counter()
    for message in islice(history.backward(history.end), _LOOKED_AT_MESSAGES):
        for record in reversed(message.records):
            if record.kind is RecordKind.TOOL_CALL and record.tool:
                tools[record.tool] += 1
                files |= dict.fromkeys(_files(reader, record))
    return list(files)[:_NAMES_MAX], [name for name, _ in tools.most_common(_NAMES_MAX)]


def _files(reader: Reader, call: Record) -> list[str]:
    given, _ = read_text(reader.tx, call.payload, 0, _INPUT_BYTES, mask=reader.privacy.mask)
    found: list[str] = []
    for name in _FILE.findall(given):
        with suppress(ValueError):  # half of a pair, or no string after all
            found.append(json.loads(name))
    return found


def _add_children(
    answer: Answer, reader: Reader, above: Session | None, children: Iterable[ChildInfo]
) -> None:
    """Name the asking conversation's subagents as the host has them, if it was asked about."""
    if above is None or above.session_id != reader.visibility.session_id:
        return
    told: list[dict[str, str]] = []
    answer.data["children"] = told
    for child in children:
        known = reader.tx.sessions.session_called(reader.visibility.scope_id, child.id)
        visible = known is not None and reader.newest(known) is not None
        name = f"s{known.number}" if known is not None and visible else child.id
        title = without_secrets(child.title, mask=reader.privacy.mask)
        answer.lines.append(
            f"subagent {escape(name)} {escape(title) or '(no title)'}: {child.state}, "
            f"{iso(child.created_ms)} to {iso(child.updated_ms)}"
            f"{'' if visible else '; what it said is only in its report'}"
        )
        told.append(
            {
                "session": name,
                "host_session": child.id,
                "title": title,
                "state": child.state,
                "created": iso(child.created_ms),
                "updated": iso(child.updated_ms),
            }
        )
