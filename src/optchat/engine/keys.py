"""Short names of what a host says at length (§3).

Each is a part of a cryptographic hash: 72 bits for keys, which are compared inside one session, so
that among a million records of it the chance that any two meet is 10^-10; 88 bits for a message's
digest, which is only ever compared with another state of the same message.
"""

from __future__ import annotations

from binascii import b2a_base64
from hashlib import blake2b

KEY_BYTES = 9
DIGEST_CHARS = 22
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def event_key(host: str, host_session: str, message_id: str, part_id: str, facet: str) -> str:
    """The stable key of a finalised event, as a session's first generation has it."""
    return _short(host, host_session, message_id, part_id, facet)


def revised(key: str, generation: int) -> str:
    """An event's key in a generation.

    The host gives no revision of its own; ours moves with the generation, that is, with an edit
    that reconciliation has seen.
    """
    return _short(key, str(generation)) if generation else key


def pair_key(message_id: str, part_id: str) -> str:
    """What a call and its result have in common; never an id that a model made."""
    return _short(message_id, part_id)


def kept_digest(digest: str) -> str:
    """As much of a host's digest of a message as tells one content from another."""
    return digest[:DIGEST_CHARS]


def _short(*parts: str) -> str:
    whole = "\x1f".join(parts).encode("utf-8", "surrogatepass")
    key = blake2b(whole, digest_size=KEY_BYTES).digest()
    return b2a_base64(key, newline=False).translate(_URL_SAFE).decode()
