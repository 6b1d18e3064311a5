"""What must hold of records that are sealed together, in whichever store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from optchat.core.records import Record
from optchat.core.tree import SessionTree
from optchat.errors import BadInput, Conflict
from optchat.limits import PAYLOAD_BYTES_MAX


def check_sizes(payloads: Iterable[bytes]) -> None:
    """Raises ``BadInput`` if one is over the bound."""
    largest = max(map(len, payloads), default=0)
    if largest > PAYLOAD_BYTES_MAX:
        raise BadInput(
            f"a payload of {largest} bytes is over the bound of {PAYLOAD_BYTES_MAX}; "
            "nothing was kept."
        )


def check_consecutive(records: Sequence[Record], length: int | None) -> None:
    """Raise Conflict unless they are of one generation and follow its ``length`` without a gap.

    ``length`` None says that there is no such generation.
    """
    first = records[0]
    tree = SessionTree(first.session_id, first.generation)
    if length is None or [r.seq for r in records] != list(range(length, length + len(records))):
        raise Conflict(
            f"record {first.seq} of {tree} and those behind it are not the next ones ({length}); "
            "nothing was sealed."
        )
    if {(r.session_id, r.generation) for r in records} != {(tree.session_id, tree.generation)}:
        raise Conflict(f"records of {tree} and of another generation; nothing was sealed.")
