"""The reference store, in dictionaries."""

from optchat.storage.memory.store import MemoryStore

__all__ = ["MemoryStore"]
