"""Payloads put into a store together."""

from __future__ import annotations

from collections.abc import Sequence

from optchat.refs import BlobHash, blob_hash
from optchat.storage.ports import Tx


def put_many(tx: Tx, payloads: Sequence[bytes]) -> list[BlobHash]:
    """Keep payloads; their names, in order."""
    blobs = [blob_hash(payload) for payload in payloads]
    tx.blobs.put_many(dict(zip(blobs, payloads, strict=True)))
    return blobs
