"""What of a session is still part of it."""

from __future__ import annotations

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
