"""Payloads under their hash, in compressed chunks."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterator
from zlib import crc32

from optchat.errors import BadInput, IntegrityError
from optchat.limits import BLOB_CHUNK_BYTES, PAYLOAD_BYTES_MAX
from optchat.refs import BlobHash
from optchat.storage.sqlite.connection import Row, Sql

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ZSTD_LEVEL = 3


class SqliteBlobs:
    """A chunk is compressed on its own, so that reading a page decompresses only what it touches.

    Each carries its length and a checksum: damage is noticed without reading the whole payload.
    """

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def put(self, payload: bytes) -> BlobHash:
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise BadInput(
                f"a payload of {len(payload)} bytes is over the bound of {PAYLOAD_BYTES_MAX}; "
                "nothing was kept."
            )
        blob = BlobHash(hashlib.sha256(payload).hexdigest())
        new = self._sql.run(
            "insert into blob (hash, size) values (?, ?) on conflict (hash) do nothing",
            (blob, len(payload)),
        )
        if new:
            self._sql.many(
                "insert into blob_chunk (hash, position, size, crc32, zstd, data) "
                "values (?, ?, ?, ?, ?, ?)",
                (
                    (blob, at // BLOB_CHUNK_BYTES, *_packed(payload[at : at + BLOB_CHUNK_BYTES]))
                    for at in range(0, len(payload), BLOB_CHUNK_BYTES)
                ),
            )
        return blob

    def size(self, blob: BlobHash) -> int:
        row = self._sql.one("select size from blob where hash = ?", (blob,))
        if row is None:
            raise IntegrityError(f"the payload {blob} is not there.")
        return int(row[0])

    def read(self, blob: BlobHash, start: int, count: int) -> bytes:
        if start < 0 or count < 0:
            raise BadInput(f"not a range of bytes: {start}+{count}.")
        end = min(start + count, self.size(blob))
        if start >= end:
            return b""
        first = start // BLOB_CHUNK_BYTES
        last = (end - 1) // BLOB_CHUNK_BYTES
        touched = b"".join(self._chunk(blob, at) for at in range(first, last + 1))
        offset = first * BLOB_CHUNK_BYTES
        found = touched[start - offset : end - offset]
        if len(found) != end - start:
            raise IntegrityError(f"the payload {blob} is shorter than it was.")
        return found

    def chunks(self, blob: BlobHash) -> Iterator[bytes]:
        size = self.size(blob)
        for at in range(0, size, BLOB_CHUNK_BYTES):
            chunk = self._chunk(blob, at // BLOB_CHUNK_BYTES)
            if len(chunk) != min(BLOB_CHUNK_BYTES, size - at):
                raise IntegrityError(f"a chunk of the payload {blob} has not its length.")
            yield chunk

    def verify(self, blob: BlobHash) -> None:
        digest = hashlib.sha256()
        for chunk in self.chunks(blob):
            digest.update(chunk)
        if digest.hexdigest() != blob:
            raise IntegrityError(f"the payload {blob} is not what its name says.")

    def drop_unused(self, blobs: Collection[BlobHash]) -> int:
        return sum(
            self._sql.run(
                "delete from blob where hash = ?1 "
                "and not exists (select 1 from record where payload = ?1)",
                (blob,),
            )
            for blob in sorted(set(blobs))
        )

    def _chunk(self, blob: BlobHash, position: int) -> bytes:
        row = self._sql.one(
            "select size, crc32, zstd, data from blob_chunk where hash = ? and position = ?",
            (blob, position),
        )
        chunk = None if row is None else _unpacked(row)
        if chunk is None:
            raise IntegrityError(f"chunk {position} of the payload {blob} is missing or damaged.")
        return chunk


def _packed(chunk: bytes) -> tuple[int, int, int, bytes]:
    compressed = zstd.compress(chunk, level=ZSTD_LEVEL)
    smaller = len(compressed) < len(chunk)
    return len(chunk), crc32(chunk), int(smaller), compressed if smaller else chunk


def _unpacked(row: Row) -> bytes | None:
    """The chunk, or None when it is not what was stored."""
    size, checksum, compressed, data = row
    if compressed:
        try:
            # One byte more than expected shows a chunk that is too long, and bounds it.
            data = zstd.ZstdDecompressor().decompress(data, max_length=size + 1)
        except (zstd.ZstdError, EOFError):
            return None
    return data if len(data) == size and crc32(data) == checksum else None
