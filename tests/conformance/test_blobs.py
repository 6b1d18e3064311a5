"""I1: payloads are exact, paged, and never invented (§3, §10)."""

from __future__ import annotations

import hashlib
import random

import pytest

from optchat.errors import BadInput, IntegrityError
from optchat.limits import BLOB_CHUNK_BYTES, PAYLOAD_BYTES_MAX
from optchat.refs import BlobHash
from tests.harness.payloads import put_many

SIZES = (0, 1, BLOB_CHUNK_BYTES - 1, BLOB_CHUNK_BYTES, BLOB_CHUNK_BYTES + 1, 3 * BLOB_CHUNK_BYTES)


def payload_of(size: int, *, random_bytes: bool) -> bytes:
    return random.Random(size).randbytes(size) if random_bytes else (b"words " * size)[:size]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("random_bytes", [False, True])
def test_a_payload_comes_back_exactly(world, size, random_bytes):
    payload = payload_of(size, random_bytes=random_bytes)
    blob = world.write(lambda tx: tx.blobs.put(payload))
    assert blob == hashlib.sha256(payload).hexdigest()
    assert world.read(lambda tx: tx.blobs.size(blob)) == size
    assert world.read(lambda tx: tx.blobs.read(blob, 0, size + 10)) == payload
    chunks = world.read(lambda tx: list(tx.blobs.chunks(blob)))
    assert b"".join(chunks) == payload
    assert all(len(chunk) == BLOB_CHUNK_BYTES for chunk in chunks[:-1])
    world.read(lambda tx: tx.blobs.verify(blob))


def test_a_page_is_exactly_its_bytes_across_chunks(world):
    payload = payload_of(3 * BLOB_CHUNK_BYTES + 100, random_bytes=True)
    blob = world.write(lambda tx: tx.blobs.put(payload))
    at = BLOB_CHUNK_BYTES
    for start, count in (
        (0, 0),
        (0, 5),
        (at - 3, 6),
        (at, at),
        (3 * at, 500),
        (at - 1, 2 * at + 2),
    ):
        page = world.read(lambda tx, s=start, c=count: tx.blobs.read(blob, s, c))
        assert page == payload[start : start + count]
    assert world.read(lambda tx: tx.blobs.read(blob, len(payload), 5)) == b""
    assert world.read(lambda tx: tx.blobs.read(blob, len(payload) + 99, 5)) == b""


def test_the_same_payload_is_kept_once(world):
    first = world.write(lambda tx: tx.blobs.put(b"same"))
    assert world.write(lambda tx: tx.blobs.put(b"same")) == first


def test_a_missing_payload_is_an_integrity_error(world):
    missing = BlobHash("0" * 64)
    for read in (
        lambda tx: tx.blobs.size(missing),
        lambda tx: tx.blobs.read(missing, 0, 1),
        lambda tx: list(tx.blobs.chunks(missing)),
        lambda tx: tx.blobs.verify(missing),
    ):
        with pytest.raises(IntegrityError):
            world.read(read)


def test_a_range_below_zero_is_refused(world):
    blob = world.write(lambda tx: tx.blobs.put(b"payload"))
    for start, count in ((-1, 1), (0, -1)):
        with pytest.raises(BadInput):
            world.read(lambda tx, s=start, c=count: tx.blobs.read(blob, s, c))


def test_a_payload_over_the_bound_is_refused_and_not_clipped(world):
    """I10."""
    with pytest.raises(BadInput):
        world.write(lambda tx: tx.blobs.put(bytes(PAYLOAD_BYTES_MAX + 1)))


def test_payloads_that_are_put_together_are_each_themselves(world):
    """Small, empty, doubled and large ones, some kept before: in the order given."""
    payloads = [
        b"",
        b"small",
        payload_of(BLOB_CHUNK_BYTES * 2 + 7, random_bytes=True),
        b"small",
        *(payload_of(size, random_bytes=True) for size in range(900, 12_000, 700)),
        *(payload_of(size, random_bytes=False) for size in range(1_000, 16_000, 300)),
    ]
    world.write(lambda tx: tx.blobs.put(payloads[-1]))
    blobs = world.write(lambda tx: put_many(tx, payloads))
    assert blobs == [hashlib.sha256(p).hexdigest() for p in payloads]

    def work(tx):
        for blob, payload in zip(blobs, payloads, strict=True):
            assert tx.blobs.read(blob, 0, PAYLOAD_BYTES_MAX) == payload
            assert tx.blobs.read(blob, 3, 5) == payload[3:8]
            tx.blobs.verify(blob)

    world.read(work)
    assert world.write(lambda tx: put_many(tx, [])) == []


def test_what_was_put_with_a_removed_payload_stays(world):
    payloads = [payload_of(size, random_bytes=False) for size in range(1, 90_000, 1_100)]
    blobs = world.write(lambda tx: put_many(tx, payloads))
    gone = blobs[::3]
    assert world.write(lambda tx: tx.blobs.drop_unused(gone)) == len(gone)
    for blob, payload in zip(blobs, payloads, strict=True):
        if blob in gone:
            with pytest.raises(IntegrityError):
                world.read(lambda tx, b=blob: tx.blobs.size(b))
        else:
            assert world.read(lambda tx, b=blob: tx.blobs.read(b, 0, 10**6)) == payload
    assert world.write(lambda tx: put_many(tx, payloads)) == blobs
    for blob, payload in zip(blobs, payloads, strict=True):
        assert world.read(lambda tx, b=blob: tx.blobs.read(b, 0, 10**6)) == payload
