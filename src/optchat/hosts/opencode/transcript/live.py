"""What of a session is still part of it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from optchat.hosts.opencode.transcript.messages import HostMessage, Revert


def live(messages: list[HostMessage], revert: Revert | None) -> list[HostMessage]:
    """The messages up to where a person has gone back to; the host drops the rest later."""
    if revert is None:
        return messages
    for index, message in enumerate(messages):
        if message.id == revert.message_id:
            kept = messages[:index]
            if revert.part_id is None:
                return kept
            parts = list(takewhile(lambda part: part.id != revert.part_id, message.parts))
            return [*kept, HostMessage(id=message.id, info=message.info, parts=parts)]
    return messages


def untouched(ids: Iterable[str], revert: Revert | None) -> list[str]:
    """The messages before the one that a person has gone back to, or into, by their ids."""
    return list(takewhile(lambda id_: revert is None or id_ != revert.message_id, ids))
