"""Retained bytes as text that leaves the record: secrets in it are masked (§14)."""

from __future__ import annotations

from optchat.masking import mask as masked
from optchat.masking import mask_part
from optchat.refs import BlobHash
from optchat.storage.ports import Tx

AROUND_BYTES = 16 * 1024
"""How far beside a part a secret is looked for that reaches into it: the longest private keys."""


def without_secrets(text: str, *, mask: bool) -> str:
    """A text of the host as it may be told."""
    return masked(text) if mask else text


def masked_note(masks: int) -> str:
    """What is said before an original that is shown with masks; nothing if there are none."""
    if not masks:
        return ""
    return f"(secrets masked here, which the original has: {masks}; see privacy.zoom_secrets)\n"


def read_text(tx: Tx, payload: BlobHash, start: int, count: int, *, mask: bool) -> tuple[str, int]:
    """At most ``count`` bytes of a payload from ``start`` on, as text; how many secrets it masks.

    A part is masked as in the whole, so that no half of a secret stands at an end of it.
    """
    if not count:
        return "", 0
    if not mask:
        return tx.blobs.read(payload, start, count).decode("utf-8", "replace"), 0
    before = min(start, AROUND_BYTES)
    data = tx.blobs.read(payload, start - before, before + count + AROUND_BYTES)
    return mask_part(data, before, min(before + count, len(data)))
