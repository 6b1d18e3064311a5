"""The meter and the pieces of oversized payloads in dictionaries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from optchat.errors import Conflict, IntegrityError
from optchat.refs import BlobHash, SessionId, TurnId
from optchat.storage.memory.state import Changes
from optchat.storage.ports import Chunk, ModelCall, Spent


class MemoryLedger:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def open(self, call: ModelCall) -> None:
        if call.call_id in self._tables.calls:
            raise Conflict("that call id is taken; nothing was written.")
        self._changes.put(self._tables.calls, call.call_id, call)

    def close(self, call: ModelCall) -> None:
        known = self._tables.calls.get(call.call_id)
        if known is None:
            return
        changed = replace(
            known,
            model=call.model,
            outcome=call.outcome,
            input_tokens=call.input_tokens,
            cached_tokens=call.cached_tokens,
            output_tokens=call.output_tokens,
            estimated=call.estimated,
            micros=call.micros,
            duration_ms=call.duration_ms,
        )
        self._changes.put(self._tables.calls, call.call_id, changed)

    def drop(self, call_id: str) -> None:
        self._changes.drop(self._tables.calls, call_id)

    def spent(
        self,
        since_ms: int,
        *,
        day: str | None = None,
        turn_id: TurnId | None = None,
        idle: bool | None = None,
    ) -> Spent:
        return _sum(
            call
            for call in self._tables.calls.values()
            if call.at_ms >= since_ms
            and day in (None, call.day)
            and turn_id in (None, call.turn_id)
            and idle in (None, call.idle)
        )

    def table(
        self, by: Literal["day", "session", "purpose", "model"], since_ms: int
    ) -> tuple[tuple[str, Spent], ...]:
        found: dict[str, list[ModelCall]] = {}
        for call in self._tables.calls.values():
            name = {
                "day": call.day,
                "session": call.session_id or "",
                "purpose": call.purpose,
                "model": call.model,
            }[by]
            if call.at_ms >= since_ms:
                found.setdefault(name, []).append(call)
        return tuple((name, _sum(found[name])) for name in sorted(found))

    def unfinished(self) -> int:
        return sum(call.outcome == "sent" for call in self._tables.calls.values())

    def disown(self, *, session_id: SessionId | None = None, turn_id: TurnId | None = None) -> None:
        for call in tuple(self._tables.calls.values()):
            if session_id is not None and call.session_id == session_id:
                kept = replace(call, session_id=None, turn_id=None)
                self._changes.put(self._tables.calls, call.call_id, kept)
            elif turn_id is not None and call.turn_id == turn_id:
                self._changes.put(self._tables.calls, call.call_id, replace(call, turn_id=None))

    def count(self, model: str, prompt_version: str, finding: str, times: int) -> None:
        key = (model, prompt_version, finding)
        known = self._tables.findings.get(key, 0)
        self._changes.put(self._tables.findings, key, known + times)

    def findings(self) -> tuple[tuple[str, str, str, int], ...]:
        return tuple((*key, times) for key, times in sorted(self._tables.findings.items()))


class MemoryChunks:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def put(self, chunk: Chunk) -> None:
        if chunk.payload not in self._tables.blobs:
            raise IntegrityError(f"the payload {chunk.payload} is not kept.")
        key = (chunk.payload, chunk.plan, chunk.level, chunk.position)
        self._changes.put(self._tables.chunks, key, chunk)

    def of(self, payload: BlobHash, plan: str) -> tuple[Chunk, ...]:
        found = sorted(
            (key, chunk)
            for key, chunk in self._tables.chunks.items()
            if (chunk.payload, chunk.plan) == (payload, plan)
        )
        return tuple(chunk for _, chunk in found)


def _sum(calls: Iterable[ModelCall]) -> Spent:
    found = list(calls)
    return Spent(
        calls=len(found),
        input_tokens=sum(c.input_tokens for c in found),
        cached_tokens=sum(c.cached_tokens for c in found),
        output_tokens=sum(c.output_tokens for c in found),
        micros=sum(c.micros or 0 for c in found),
        unpriced=sum(c.micros is None for c in found),
    )
