"""Search as its parts: what is visible as columns, and where a stem stands.

There is no rank here: FTS5's bm25 is made from averages over all documents, so it would tell of
records that the reader may not see (I4). What a stem's places tell is cut to the frame first.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from optchat.core.snapshots import Visibility
from optchat.storage.ports import Frame, Places
from optchat.storage.sqlite.connection import Sql
from optchat.storage.sqlite.frames import Frames
from optchat.storage.sqlite.records import SqliteRecords
from optchat.storage.sqlite.vocabulary import Vocabulary, read_places


class SqliteSearch:
    """No text of a user reaches FTS5's query language: stems are values."""

    def __init__(
        self, sql: Sql, frames: Frames, vocabulary: Vocabulary, records: SqliteRecords
    ) -> None:
        self._sql = sql
        self._frames = frames
        self._vocabulary = vocabulary
        self._records = records

    def frame(self, visibility: Visibility) -> Frame:
        return self._frames.frame(self._sql, visibility)

    def places(self, stems: Sequence[str]) -> dict[str, Places]:
        self._records.flush()
        return self._vocabulary.places(self._sql, stems)

    def node_places(self, stems: Sequence[str]) -> dict[str, Places]:
        return {stem: read_places(self._sql, "node_places", stem) for stem in stems}

    def known(self, stems: Sequence[str]) -> tuple[str, ...]:
        self._records.flush()
        rows = self._sql.all(
            "select asked.value from json_each(?) as asked "
            "where exists (select 1 from record_words where term = asked.value) order by asked.key",
            (msgspec.json.encode(stems).decode(),),
        )
        return tuple(row[0] for row in rows)

    def holding(self, pieces: Sequence[str]) -> tuple[str, ...]:
        self._records.flush()
        return self._vocabulary.holding(self._sql, pieces)
