"""One transaction of the SQLite store, as families of verbs."""

from __future__ import annotations

from optchat.storage.sqlite.blobs import SqliteBlobs
from optchat.storage.sqlite.chunks import SqliteChunks
from optchat.storage.sqlite.connection import Sql
from optchat.storage.sqlite.folds import SqliteFolds
from optchat.storage.sqlite.frames import Frames
from optchat.storage.sqlite.jobs import SqliteJobs
from optchat.storage.sqlite.ledger import SqliteLedger
from optchat.storage.sqlite.membership import SqliteMembership
from optchat.storage.sqlite.meta import SqliteMeta
from optchat.storage.sqlite.publications import SqlitePublications
from optchat.storage.sqlite.records import SqliteRecords
from optchat.storage.sqlite.removals import SqliteRemovals
from optchat.storage.sqlite.search import SqliteSearch
from optchat.storage.sqlite.sessions import SqliteSessions
from optchat.storage.sqlite.trees import SqliteTrees
from optchat.storage.sqlite.turns import SqliteTurns
from optchat.storage.sqlite.vocabulary import Vocabulary


class SqliteTx:
    """What a unit of work is given.

    ``frames`` and ``vocabulary`` are what searches keep from one transaction to the next.
    """

    def __init__(self, sql: Sql, frames: Frames, vocabulary: Vocabulary) -> None:
        self.sessions = SqliteSessions(sql)
        self.blobs = SqliteBlobs(sql)
        self.records = SqliteRecords(sql, self.blobs)
        self.membership = SqliteMembership(sql)
        self.turns = SqliteTurns(sql)
        self.trees = SqliteTrees(sql)
        self.publications = SqlitePublications(sql)
        self.folds = SqliteFolds(sql)
        self.jobs = SqliteJobs(sql)
        self.ledger = SqliteLedger(sql)
        self.chunks = SqliteChunks(sql, self.blobs)
        self.search = SqliteSearch(sql, frames, vocabulary, self.records)
        self.removals = SqliteRemovals(sql)
        self.meta = SqliteMeta(sql)

    def flush(self) -> None:
        """Put down what was gathered; the transaction ends."""
        self.blobs.end()  # the last pack is compressed while words are indexed
        self.records.flush()
        self.blobs.flush()
