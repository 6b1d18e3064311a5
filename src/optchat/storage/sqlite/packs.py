"""Packs: up to 1 MiB of payloads, compressed together and opened only as far as they are read.

Each carries its length and a checksum of what is stored, so that damage is noticed whichever part
of it is asked for.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple
from zlib import crc32

from optchat.limits import BLOB_CHUNK_BYTES
from optchat.refs import BlobHash
from optchat.storage.sqlite.connection import Row

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ZSTD_LEVEL = 4
"""Of 1 MiB of mixed sessions .261 is left, at 237 MB/s; level 7 leaves .248, at 80 MB/s."""
SMALL_BYTES_MAX = 64 * 1024
"""A payload up to here shares a pack with others that are put with it."""

_compressing = ThreadPoolExecutor(1, "packs")  # it holds no interpreter lock while it compresses
_BlobRow = tuple[int, bytes, int, int, int]
_PackRow = tuple[int, int, int, int, int, int, bytes]
_Packed = tuple[int, int, int, bytes]


def packed(held: bytes) -> _Packed:
    """A pack as it is stored: its size, checksum, whether it is compressed, and its bytes."""
    compressed = zstd.compress(held, level=ZSTD_LEVEL)
    if len(compressed) >= len(held):
        return stored(held)
    return len(held), crc32(compressed), 1, compressed


def stored(held: bytes) -> _Packed:
    """A pack that is stored as it is."""
    return len(held), crc32(held), 0, held


class Opened:
    """A stored pack, decompressed as far as it was asked for."""

    def __init__(self, row: _Packed | Row) -> None:
        self._size, checksum, compressed, data = row
        self._is_sound = crc32(data) == checksum and (compressed or len(data) == self._size)
        self._rest = data if compressed else b""  # what the decompressor has not been given
        self._held: bytes = b"" if compressed else data
        self._decompressor = zstd.ZstdDecompressor() if compressed else None

    def until(self, end: int) -> bytes | None:
        """What it holds up to ``end`` at least, or None when it is not what was stored."""
        goal = min(end, self._size)
        if self._is_sound and self._decompressor is not None and len(self._held) < goal:
            # One byte more than there should be shows a pack that is too long, and bounds it.
            wanted = goal + (goal == self._size)
            while len(self._held) < wanted and (more := self._more(wanted - len(self._held))):
                self._held += more
            self._is_sound = len(self._held) == goal
        return self._held if self._is_sound else None

    def _more(self, count: int) -> bytes:
        """At most ``count`` bytes that follow; none at the end, or where it is damaged."""
        assert self._decompressor is not None
        given, self._rest = self._rest, b""
        try:
            return self._decompressor.decompress(given, count)
        except (zstd.ZstdError, EOFError):
            return b""


class _Pack(NamedTuple):
    """A whole pack of a transaction that is going on, and its compressed form in the making."""

    first_blob: int
    end_blob: int
    packed: Future[_Packed]


class Packing:
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

    def opened(self, pack: int) -> Opened | None:
        """A pack of this transaction; None for another one."""
        if self._open is not None and self._open[0] == pack:
            return Opened(stored(b"".join(self._members)))
        return Opened(self._whole[pack].packed.result()) if pack in self._whole else None

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
        made = _compressing.submit(packed, held)
        self._whole[pack] = _Pack(first_blob, self._blob, made)
