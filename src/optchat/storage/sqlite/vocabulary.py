"""What of the word index is kept in memory: its stems, and where the common ones stand.

Both are extended by the words of new documents, and forgotten when what was indexed went (the
counter ``index``), so that a search after each turn of a live session does not read them anew.
"""

# ruff: noqa: S608  (the names of this package's own tables)

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from optchat.errors import IntegrityError
from optchat.storage.ports import Places
from optchat.storage.sqlite.connection import Sql
from optchat.storage.sqlite.frames import state_of
from optchat.storage.sqlite.index import texts
from optchat.storage.words import stems as stems_of

COMMON_PLACES_MIN = 1_000
"""A rarer stem is read as fast as it is kept."""
PLACES_BYTES_KEPT = 10_000_000
"""Of all kept stems together, some three bytes a place."""
PLACES_AT_ONCE = 262_144
"""A piece begins by passing over what was read before it."""
NEW_DOCS_MAX = 200
"""After more new documents than that at once, all is read anew."""


class Vocabulary:
    """The words of one store's index, whoever may see them, for all its readers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = (-1, -1)  # the counter, and the last document whose words are in what is kept
        self._forget()

    def _forget(self) -> None:
        self._told: bytes | None = None  # each stem with a line feed before and after it
        self._new: dict[bytes, None] = {}  # stems that have come since, some of them known before
        self._places: OrderedDict[str, Places] = OrderedDict()
        self._kept_bytes = 0

    def places(self, sql: Sql, stems: Sequence[str]) -> dict[str, Places]:
        """Where each stem stands, as the transaction of ``sql`` sees it or later.

        Documents that it does not see are those of no visible row.
        """
        with self._lock:
            state = self._follow(sql)
            kept = {stem: self._places[stem] for stem in stems if stem in self._places}
            for stem in kept:
                self._places.move_to_end(stem)
        found = {
            stem: kept[stem] if stem in kept else read_places(sql, "record_places", stem)
            for stem in stems
        }
        common = {s: p for s, p in found.items() if len(p) >= COMMON_PLACES_MIN}
        with self._lock:
            if self._state == state:
                for stem, places in common.items():
                    self._keep(stem, places)
        return found

    def holding(self, sql: Sql, pieces: Sequence[str]) -> tuple[str, ...]:
        """The stems that contain one of ``pieces``, in order. Cost O(vocabulary)."""
        with self._lock:
            state = self._follow(sql)
            told, new = self._told, tuple(self._new)
            if told is None:
                row = sql.one("select cast(group_concat(term, char(10)) as blob) from record_words")
                told = b"\n%b\n" % (row[0] if row is not None and row[0] is not None else b"")
                if self._state == state:
                    self._told = told
        found: set[bytes] = set()
        for piece in (piece.encode("utf-8", "replace") for piece in pieces):
            found.update(stem for stem in new if piece in stem)
            at = told.find(piece)
            while at >= 0:
                end = told.index(b"\n", at)
                found.add(told[told.rindex(b"\n", 0, at) + 1 : end])
                at = told.find(piece, end)
        return tuple(sorted(stem.decode() for stem in found))

    def _follow(self, sql: Sql) -> tuple[int, int]:
        """Bring what is kept to the transaction's state, which is returned, if it is behind."""
        version, last = state = state_of(sql)
        if version != self._state[0]:
            self._forget()
            self._state = state
        elif last > self._state[1]:
            if (self._told is not None or self._places) and not self._extended(sql, last):
                self._forget()
            self._state = state
        return state

    def _extended(self, sql: Sql, last: int) -> bool:
        """Whether what is kept could be given the words of the documents up to ``last``."""
        known = self._state[1]
        if last - known > NEW_DOCS_MAX:
            return False
        try:
            told = [(doc, stems_of(text)) for doc, text in texts(sql, known + 1, NEW_DOCS_MAX)]
        except IntegrityError:
            return False
        standing: dict[str, list[tuple[int, int]]] = {}
        for doc, found in told:
            for offset, stem in enumerate(found):
                standing.setdefault(stem, []).append((doc, offset))
        if self._told is not None:
            self._new |= dict.fromkeys(stem.encode() for stem in standing)
        for stem in standing.keys() & self._places.keys():
            docs, offsets = np.array(standing[stem], np.int32).T
            self._keep(stem, self._places[stem] + Places.of(docs, offsets))
        return True

    def _keep(self, stem: str, places: Places) -> None:
        before = self._places.pop(stem, None)
        self._kept_bytes += places.nbytes - (0 if before is None else before.nbytes)
        self._places[stem] = places
        while self._kept_bytes > PLACES_BYTES_KEPT:
            self._kept_bytes -= self._places.popitem(last=False)[1].nbytes


def read_places(sql: Sql, vocabulary: str, stem: str) -> Places:
    """Where a stem stands by an index's table of places.

    Documents and word numbers are each told in one text with commas between: far cheaper than a row
    for each, and by pieces, because a common word stands in a text a hundred thousand times.
    """
    found = Places.of(_NONE, _NONE)
    more = True
    while more:
        told = sql.one(
            "select group_concat(doc), group_concat(offset) from "
            f"(select doc, offset from {vocabulary} where term = ? limit ? offset ?)",
            (stem, PLACES_AT_ONCE, len(found)),
        )
        docs, offsets = (np.fromstring(text or "", np.int32, sep=",") for text in told or ("", ""))
        more = len(docs) == PLACES_AT_ONCE
        found += Places.of(docs, offsets)
    return found


_NONE = np.empty(0, np.int32)
