"""What everything is compared with: one FTS5 table, porter, the words joined by OR.

The same text under the same filters; only the ranking is FTS5's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apsw
import msgspec

from optchat.evaluation.files import Session, Text, Tool

_STOPPED = """
a about an and are as at be been but by can could did do does for from had has have he her him his
how i if in into is it its me my no not of on or our she so than that the their them then there
these they this to was we were what when where which who whom whose why will with would you your
"""
STOP_WORDS = frozenset(_STOPPED.split())


@dataclass(frozen=True, slots=True)
class Document:
    """One text with what filters look at. ``key`` is what a hit counts as."""

    key: str
    text: str
    directory: str = ""
    time_ms: int = 0


class Plain:
    """The table, in memory."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._db: Any = apsw.Connection(":memory:")
        self._db.execute(
            "create virtual table said using fts5 (words, tokenize = 'porter unicode61')"
        )
        self._db.execute("create table place (doc integer primary key, key, directory, time_ms)")
        with self._db:
            for doc, document in enumerate(documents):
                self._db.execute(
                    "insert into said (rowid, words) values (?, ?)",
                    (doc, document.text.encode("utf-8", "replace").decode()),
                )
                self._db.execute(
                    "insert into place values (?, ?, ?, ?)",
                    (doc, document.key, document.directory, document.time_ms),
                )

    def close(self) -> None:
        self._db.close()

    def search(
        self,
        query: str,
        *,
        first: int,
        without: frozenset[str] = frozenset(),
        directory: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[str]:
        """The ``first`` different keys, best first."""
        words = [w for w in re.findall(r"\w+", query.lower()) if w not in STOP_WORDS]
        if not words:
            return []
        rows = self._db.execute(
            "select key from said join place on doc = said.rowid where said match ?1 "
            "and (?2 is null or directory = ?2) and (?3 is null or time_ms >= ?3) "
            "and (?4 is null or time_ms < ?4) order by rank, doc",
            (" OR ".join(f'"{word}"' for word in words), directory, since_ms, until_ms),
        )
        found: dict[str, None] = {}
        for (key,) in rows:
            if key not in without:
                found.setdefault(key)
            if len(found) == first:
                break
        return list(found)


def documents(sessions: Iterable[Session]) -> Iterator[Document]:
    """What is searchable of sessions: titles, texts, calls and results, each by itself."""
    for session in sessions:
        yield Document(session.id, session.title, session.directory, session.updated)
        for message in session.messages:
            for part in message.parts:
                for text in texts(part):
                    yield Document(session.id, text, session.directory, message.created)


def texts(part: object) -> Iterator[str]:
    """What is searchable of a part; nothing of reasoning (§3)."""
    match part:
        case Text():
            yield part.text
        case Tool():
            yield msgspec.json.encode(part.input or {}).decode()
            yield part.output or part.error or ""
        case _:
            return
