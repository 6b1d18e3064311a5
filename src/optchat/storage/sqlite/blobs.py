"""Payloads under their hash, small ones together, in compressed packs."""

# ruff: noqa: S608  (what is formatted in are this package's own column lists and conditions)

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple
from zlib import crc32

import msgspec

from optchat.errors import BadInput, IntegrityError
from optchat.limits import BLOB_CHUNK_BYTES
from optchat.refs import BlobHash, blob_hash
from optchat.storage.sealing import check_sizes
from optchat.storage.sqlite.connection import Row, Sql

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ZSTD_LEVEL = 4
"""Of 1 MiB of mixed sessions .261 is left, at 237 MB/s; level 7 leaves .248, at 80 MB/s."""
SMALL_BYTES_MAX = 64 * 1024
"""A payload up to here shares a pack with others that are put with it."""

_OF_HASH = (
    "json_each(?1) as asked cross join blob as b "
    "on substr(b.hash, 1, 4) = substr(unhex(asked.value), 1, 4) and b.hash = unhex(asked.value)"
)

_compressing = ThreadPoolExecutor(1, "packs")  # it holds no interpreter lock while it compresses
_BlobRow = tuple[int, bytes, int, int, int]
_PackRow = tuple[int, int, int, int, int, int, bytes]


class SqliteBlobs:
    """A pack is compressed on its own, so that reading a page decompresses only what it touches.

    Each carries its length and a checksum: damage is noticed without reading a whole payload.
    """

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._ids: dict[BlobHash, int] = {}
        self._opened: tuple[int, bytes] | None = None
        self._packing: _Packing | None = None

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
            self._packing = _Packing((last_blob or 0) + 1, (last_pack or 0) + 1)
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
            (*_packed(b"".join(rest)), pack),
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
            held = self._unpacked(pack + number)
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

    def _unpacked(self, pack: int) -> bytes | None:
        """What a pack holds, or None when it is not what was stored. Neighbours are read often."""
        if self._packing is not None and (held := self._packing.held(pack)) is not None:
            return held
        if self._opened is None or self._opened[0] != pack:
            row = self._sql.one("select size, crc32, zstd, data from pack where id = ?", (pack,))
            held = None if row is None else _unpacked(row)
            if held is None:
                return None
            self._opened = (pack, held)
        return self._opened[1]


class _Pack(NamedTuple):
    """A whole pack of a transaction that is going on, and its compressed form in the making."""

    first_blob: int
    end_blob: int
    packed: Future[tuple[int, int, int, bytes]]


class _Packing:
    """Which payload goes where in one transaction: small ones into a pack until it is full.

    ``blob`` and ``pack`` are the next numbers of rows. Whole packs are compressed beside what the
    transaction does meanwhile, and are rows when it ends.
    """

    def __init__(self, blob: int, pack: int) -> None:
        self._blob = blob
        self._pack = pack
        self._whole: dict[int, _Pack] = {}
        self._open: tuple[int, int] | None = None  # the gathering pack, and its first blob
        self._members: list[bytes] = []
        self._total = 0

    def held(self, pack: int) -> bytes | None:
        """What is in a pack of this transaction; None for another one."""
        if self._open is not None and self._open[0] == pack:
            return b"".join(self._members)
        return _unpacked(self._whole[pack].packed.result()) if pack in self._whole else None

    def take(self, payloads: dict[BlobHash, bytes]) -> list[_BlobRow]:
        """The rows of these payloads, each with its place in a pack."""
        blobs: list[_BlobRow] = []
        for blob, payload in payloads.items():
            size = len(payload)
            if size <= SMALL_BYTES_MAX:
                if self._total + size > BLOB_CHUNK_BYTES:
                    self.end()
                if self._open is None:
                    self._open = (self._pack, self._blob)
                    self._pack += 1
                row = (self._blob, bytes.fromhex(blob), size, self._open[0], self._total)
                blobs.append(row)
                self._blob += 1
                self._members.append(payload)
                self._total += size
                continue
            blobs.append((self._blob, bytes.fromhex(blob), size, self._pack, 0))
            self._blob += 1
            for at in range(0, len(payload), BLOB_CHUNK_BYTES):
                chunk = payload[at : at + BLOB_CHUNK_BYTES]
                self._end(self._pack, self._blob - 1, chunk)
                self._pack += 1
        return blobs

    def close(self) -> list[_PackRow]:
        """The rows of all packs."""
        self.end()
        return [
            (number, pack.first_blob, pack.end_blob, *pack.packed.result())
            for number, pack in self._whole.items()
        ]

    def end(self) -> None:
        """Compress the pack that gathers small ones, as it is."""
        if self._open is not None:
            pack, first_blob = self._open
            self._end(pack, first_blob, b"".join(self._members))
            self._open, self._members, self._total = None, [], 0

    def _end(self, pack: int, first_blob: int, held: bytes) -> None:
        packed = _compressing.submit(_packed, held)
        self._whole[pack] = _Pack(first_blob, self._blob, packed)


def _json(values: Collection[BlobHash] | Collection[int]) -> str:
    return msgspec.json.encode(sorted(values)).decode()


def _packed(held: bytes) -> tuple[int, int, int, bytes]:
    compressed = zstd.compress(held, level=ZSTD_LEVEL)
    smaller = len(compressed) < len(held)
    return len(held), crc32(held), int(smaller), compressed if smaller else held


def _unpacked(row: Row) -> bytes | None:
    """The bytes of a pack, or None when they are not what was stored."""
    size, checksum, compressed, data = row
    if compressed:
        try:
            # One byte more than expected shows a pack that is too long, and bounds it.
            data = zstd.ZstdDecompressor().decompress(data, max_length=size + 1)
        except (zstd.ZstdError, EOFError):
            return None
    return data if len(data) == size and crc32(data) == checksum else None
