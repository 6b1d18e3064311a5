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
    for seq, record in enumerate(records, first.seq if length is None else length):
        if length is None or record.seq != seq:
            raise Conflict(
                f"record {record.seq} of {tree} is not the next one ({length}); nothing was sealed."
            )
        if (record.session_id, record.generation) != (tree.session_id, tree.generation):
            raise Conflict(f"records of {tree} and of another generation; nothing was sealed.")
