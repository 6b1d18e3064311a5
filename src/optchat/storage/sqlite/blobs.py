"""Payloads under their hash, small ones together in packs."""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from optchat.errors import BadInput, IntegrityError
from optchat.limits import BLOB_CHUNK_BYTES
from optchat.refs import BlobHash, blob_hash
from optchat.storage.sealing import check_sizes
from optchat.storage.sqlite.connection import Sql
from optchat.storage.sqlite.packs import Opened, Packing, packed

_OF_HASH = (
    "json_each(?1) as asked cross join blob as b "
    "on substr(b.hash, 1, 4) = substr(unhex(asked.value), 1, 4) and b.hash = unhex(asked.value)"
)


class SqliteBlobs:
    """A payload is read as far as it is asked for, from as much of its packs as it takes."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._ids: dict[BlobHash, int] = {}
        self._opened: tuple[int, Opened] | None = None
        self._packing: Packing | None = None

    def put(self, payload: bytes) -> BlobHash:
        blob = blob_hash(payload)
        self.put_many({blob: payload})
        return blob

    def put_many(self, payloads: Mapping[BlobHash, bytes]) -> None:
        check_sizes(payloads.values())
        held = self.ids(payloads)
        new = {b: p for b, p in payloads.items() if b not in held}
        if new:
            self._keep(new)

    def ids(self, blobs: Iterable[BlobHash]) -> Mapping[BlobHash, int]:
        """The rows of payloads by their hash: those of ``blobs`` that are kept, and others."""
        unknown = {blob for blob in blobs if blob not in self._ids}
        if unknown:
            rows = self._sql.all(f"select b.hash, b.id from {_OF_HASH}", (_json(unknown),))
            self._ids.update((BlobHash(row[0].hex()), row[1]) for row in rows)
        return self._ids

    def _keep(self, payloads: dict[BlobHash, bytes]) -> None:
        if self._packing is None:
            row = self._sql.one("select (select max(id) from blob), (select max(id) from pack)")
            last_blob, last_pack = row if row is not None else (None, None)
            self._packing = Packing((last_blob or 0) + 1, (last_pack or 0) + 1)
        blobs = self._packing.take(payloads)
        self._sql.many("insert into blob (id, hash, size, pack, at) values (?, ?, ?, ?, ?)", blobs)
        self._ids.update(zip(payloads, (row[0] for row in blobs), strict=True))

    def end(self) -> None:
        """Have the last pack of what was kept compressed; ``flush`` is to follow."""
        if self._packing is not None:
            self._packing.end()

    def flush(self) -> None:
        """Put down the packs of what was kept; the transaction ends."""
        if self._packing is not None:
            self._sql.many(
                "insert into pack (id, first_blob, end_blob, size, crc32, zstd, data) "
                "values (?, ?, ?, ?, ?, ?, ?)",
                self._packing.close(),
            )
            self._packing = None

    def size(self, blob: BlobHash) -> int:
        return self._place(blob)[0]

    def read(self, blob: BlobHash, start: int, count: int) -> bytes:
        if start < 0 or count < 0:
            raise BadInput(f"not a range of bytes: {start}+{count}.")
        size, pack, at = self._place(blob)
        return self._bytes(blob, pack, at + start, at + min(start + count, size))

    def chunks(self, blob: BlobHash) -> Iterator[bytes]:
        size, pack, at = self._place(blob)
        for start in range(at, at + size, BLOB_CHUNK_BYTES):
            yield self._bytes(blob, pack, start, min(start + BLOB_CHUNK_BYTES, at + size))

    def verify(self, blob: BlobHash) -> None:
        digest = hashlib.sha256()
        for chunk in self.chunks(blob):
            digest.update(chunk)
        if digest.hexdigest() != blob:
            raise IntegrityError(f"the payload {blob} is not what its name says.")

    def drop_unused(self, blobs: Collection[BlobHash]) -> int:
        self.flush()
        self._ids.clear()
        self._opened = None
        held = self._sql.all(
            f"select b.id, b.size, b.pack, b.at from {_OF_HASH}", (_json(set(blobs)),)
        )
        # One pass over the records: a removal rewrites the whole file, and an index for this alone
        # would be .01 of the host's bytes.
        used = self._sql.all(
            "select distinct blob from record where blob in (select value from json_each(?))",
            (_json([row[0] for row in held]),),
        )
        wanted = {row[0] for row in used}
        unused = [row for row in held if row[0] not in wanted]
        self._sql.run(
            "delete from blob where id in (select value from json_each(?))",
            (_json([row[0] for row in unused]),),
        )
        touched = {
            pack + number
            for _, size, pack, at in unused
            for number in range(max(1, -(-(at + size) // BLOB_CHUNK_BYTES)))
        }
        for pack in sorted(touched):
            self._pack_again(pack)
        return len(unused)

    def _pack_again(self, pack: int) -> None:
        """Leave in a pack only what is still wanted; the whole of it goes when nothing is.

        What shares a pack that cannot be read is lost already, and does not hold a removal up.
        """
        kept = self._sql.all(
            "select b.id, b.at, b.size from pack as p join blob as b "
            "on b.id >= p.first_blob and b.id < p.end_blob and b.pack = p.id "
            "where p.id = ? order by b.at",
            (pack,),
        )
        held = self._unpacked(pack) if kept else None
        if held is None:
            self._sql.run("delete from pack where id = ?", (pack,))
            return
        rest = [held[at : at + size] for _, at, size in kept]
        self._sql.run(
            "update pack set size = ?, crc32 = ?, zstd = ?, data = ? where id = ?",
            (*packed(b"".join(rest)), pack),
        )
        ends = itertools.accumulate(map(len, rest), initial=0)
        self._sql.many(
            "update blob set at = ? where id = ?",
            ((at, row[0]) for at, row in zip(ends, kept, strict=False)),
        )

    def _place(self, blob: BlobHash) -> tuple[int, int, int]:
        """A payload's size, its first pack, and where it begins there."""
        row = self._sql.one(f"select b.size, b.pack, b.at from {_OF_HASH}", (_json([blob]),))
        if row is None:
            raise IntegrityError(f"the payload {blob} is not there.")
        return row[0], row[1], row[2]

    def _bytes(self, blob: BlobHash, pack: int, start: int, end: int) -> bytes:
        """Bytes ``[start, end)`` of a payload, counted from the beginning of its first pack."""
        if start >= end:
            return b""
        first, last = start // BLOB_CHUNK_BYTES, (end - 1) // BLOB_CHUNK_BYTES
        pieces: list[bytes] = []
        for number in range(first, last + 1):
            held = self._unpacked(pack + number, end - number * BLOB_CHUNK_BYTES)
            if held is None:
                raise IntegrityError(
                    f"the pack {pack + number} of the payload {blob} is missing or damaged."
                )
            pieces.append(held)
        offset = first * BLOB_CHUNK_BYTES
        found = b"".join(pieces)[start - offset : end - offset]
        if len(found) != end - start:
            raise IntegrityError(f"the payload {blob} is shorter than it was.")
        return found

    def _unpacked(self, pack: int, end: int = BLOB_CHUNK_BYTES) -> bytes | None:
        """What a pack holds up to ``end`` at least, or None when it is not what was stored.

        It is kept, for neighbours are read often.
        """
        if self._packing is not None and (opened := self._packing.opened(pack)) is not None:
            return opened.until(end)
        if self._opened is None or self._opened[0] != pack:
            row = self._sql.one("select size, crc32, zstd, data from pack where id = ?", (pack,))
            if row is None:
                return None
            self._opened = (pack, Opened(row))
        return self._opened[1].until(end)


def _json(values: Collection[BlobHash] | Collection[int]) -> str:
    return msgspec.json.encode(sorted(values)).decode()
