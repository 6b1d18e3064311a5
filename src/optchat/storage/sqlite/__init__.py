"""The store in one SQLite file."""

from optchat.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
