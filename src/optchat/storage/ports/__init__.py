"""The verbs that the engine needs of a store.

Verbs, not SQL: no rows, cursors or database errors cross this port. A unit of work is a function
of a transaction that may be **run again**; it holds nothing open across a model call or a request.
Correctness never leans on there being one writer: uniqueness, compare-and-set and fencing tokens
are conditions of the writes themselves. Time, ids and randomness come from the engine.

Every implementation passes ``tests/conformance``. A read that serves a caller takes a
``Visibility``; the reads without one are the engine's own bookkeeping and are never returned as
they are.
"""

from optchat.storage.ports.frame import Frame, Places, Summaries, Titled
from optchat.storage.ports.history import Blobs, Membership, Records, Sessions, Turns
from optchat.storage.ports.shared import Folds, Publications, Search, Trees
from optchat.storage.ports.store import Clock, IdSource, Meta, Removals, Store, Tx
from optchat.storage.ports.values import (
    Chunk,
    Damage,
    DamageKind,
    Job,
    JobKind,
    JobState,
    ModelCall,
    Removal,
    SharedBase,
    Spent,
)
from optchat.storage.ports.work import Chunks, Jobs, Ledger

__all__ = [
    "Blobs",
    "Chunk",
    "Chunks",
    "Clock",
    "Damage",
    "DamageKind",
    "Folds",
    "Frame",
    "IdSource",
    "Job",
    "JobKind",
    "JobState",
    "Jobs",
    "Ledger",
    "Membership",
    "Meta",
    "ModelCall",
    "Places",
    "Publications",
    "Records",
    "Removal",
    "Removals",
    "Search",
    "Sessions",
    "SharedBase",
    "Spent",
    "Store",
    "Summaries",
    "Titled",
    "Trees",
    "Turns",
    "Tx",
]
