"""The host's messages in a dictionary."""

from __future__ import annotations

from collections.abc import Sequence

from optchat.core.records import HostMessage
from optchat.errors import Conflict
from optchat.refs import SessionId
from optchat.storage.memory.state import Changes


class MemoryMembership:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def messages(self, session_id: SessionId, start: int = 0) -> tuple[HostMessage, ...]:
        found = (
            m
            for m in self._tables.messages.values()
            if m.session_id == session_id and m.start_seq >= start
        )
        return tuple(sorted(found, key=lambda m: m.position))

    def message(self, session_id: SessionId, message_id: str) -> HostMessage | None:
        held = self.messages(session_id)
        return next((m for m in held if m.message_id == message_id), None)

    def put(self, message: HostMessage) -> None:
        for other in self.messages(message.session_id):
            if other.message_id == message.message_id and other.position != message.position:
                raise Conflict("that message stands at another position; it stays there.")
        self._changes.put(self._tables.messages, (message.session_id, message.position), message)

    def put_many(self, messages: Sequence[HostMessage]) -> None:
        for message in messages:
            if (message.session_id, message.position) in self._tables.messages:
                raise Conflict("that position is taken; what is there stays.")
            self.put(message)

    def truncate(self, session_id: SessionId, position: int) -> None:
        for message in self.messages(session_id):
            if message.position >= position:
                self._changes.drop(self._tables.messages, (session_id, message.position))
