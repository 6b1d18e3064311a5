"""The structured part of a line: what is rendered mechanically and never left to prose (§10)."""

from __future__ import annotations

import re
from functools import lru_cache

from optchat.core import context
from optchat.core.publications import Publication
from optchat.core.records import Record, RecordKind, Session
from optchat.errors import IntegrityError
from optchat.storage.ports import Tx


def record_label(record: Record) -> str:
    """The structured part of a record's line: its kind, and tool and status where it has them."""
    words = {
        RecordKind.TOOL_CALL: "call",
        RecordKind.TOOL_RESULT: "result",
    }
    parts = [words.get(record.kind, record.kind.value)]
    if record.tool:
        parts.append(tool_name(record.tool))
    if record.status and record.status != "completed":
        parts.append(record.status)
    if record.truncated:
        parts.append("truncated by host")
    return " ".join(parts)


@lru_cache(maxsize=256)
def tool_name(tool: str) -> str:
    """A tool's name as one word, short enough that the line around it keeps its bound."""
    name = re.sub(r"[\s|]+", "_", tool[:40])
    while context.escaped_bytes(name) > 120:
        name = name[:-1]
    return name


def label_of(tx: Tx, publication: Publication) -> str:
    """The label of a publication, from what its scope knows of the session and its parent."""
    session = tx.sessions.session_in(publication.scope_id, publication.session_id)
    if session is None:
        raise IntegrityError(f"the session of pub:{publication.seq} is missing.")
    return publication_label(publication, session_name(tx, session))


def session_name(tx: Tx, session: Session) -> str:
    """How a scope names a session: s13, and for a subagent's whose it is."""
    if session.parent_host_session is None:
        return f"s{session.number}"
    parent = tx.sessions.session_of_host(session.host, session.parent_host_session)
    known = tx.sessions.session_in(session.scope_id, parent.session_id) if parent else None
    return f"s{session.number} subagent of {f's{known.number}' if known else 'another'}"


def publication_label(publication: Publication, name: str) -> str:
    """The structured part of a publication's line: whose turn, how it ended, when."""
    when = context.utc_minute(publication.completed_ms)
    return f"{name} {publication.outcome.value} {when}"


def range_label(times: tuple[int, int] | None) -> str:
    """The structured part of a line over several publications: when the first and last ended."""
    return "" if times is None else "..".join(map(context.utc_minute, times))
