"""The host's own model: calls wait here until a plugin takes and answers them.

A host has no address, so it asks: a plugin polls with the scope that it can speak for, is given a
call with a token, asks its model outside of any conversation that a person sees, and brings the
answer back. A call that nobody takes costs nothing and is tried again later; one that was taken and
not answered in time is given up, and a later answer to it is not accepted.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from optchat.compactor.models.port import Absent, Call, Outcome, Reply
from optchat.refs import ScopeId

PRESENCE_S = 30.0
"""A host that has not asked for so long is not counted on."""

TAKE_TIMEOUT_S = 20.0
POLL_MS_MAX = 10_000


@dataclass(slots=True)
class _Waiting:
    call: Call
    work_id: str
    taken_by: str | None = None
    reply: Reply | None = None

    def is_taken(self) -> bool:
        return self.taken_by is not None


@dataclass(frozen=True, slots=True)
class Offer:
    """A call that was given to a host; ``work_id`` is also its fencing token: it is used once."""

    work_id: str
    call: Call
    timeout_ms: int


@dataclass(slots=True)
class HostModel:
    """The queue between the workers and the hosts. Thread-safe."""

    timeout_ms: int
    now_s: Callable[[], float] = time.monotonic
    name: str = "host"
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _waiting: dict[str, _Waiting] = field(default_factory=dict[str, _Waiting])
    _seen: dict[ScopeId, float] = field(default_factory=dict[ScopeId, float])
    _closed: bool = False
    on_presence: Callable[[], None] = lambda: None

    # --- the workers' side ---

    def scopes(self) -> frozenset[ScopeId] | Absent | None:
        with self._changed:
            since = self.now_s() - PRESENCE_S
            present = frozenset(scope for scope, at in self._seen.items() if at >= since)
        if not present:
            return Absent("no host is open that could make summaries")
        return present

    def call(self, call: Call) -> Reply:
        work = _Waiting(call, secrets.token_hex(12))
        with self._changed:
            self._waiting[work.work_id] = work
            self._changed.notify_all()
            try:
                while True:
                    self._wait(work.is_taken, TAKE_TIMEOUT_S)
                    if not work.is_taken():
                        detail = "no host took the call"
                        return Reply(outcome=Outcome.UNAVAILABLE, detail=detail, sent=False)
                    self._wait(
                        lambda: work.reply is not None or not work.is_taken(),
                        self.timeout_ms / 1000,
                    )
                    if work.is_taken():
                        detail = "the host took the call and did not answer"
                        return work.reply or Reply(outcome=Outcome.TIMED_OUT, detail=detail)
            finally:
                del self._waiting[work.work_id]

    def _wait(self, done: Callable[[], bool], timeout_s: float) -> None:
        self._changed.wait_for(lambda: done() or self._closed, timeout_s)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- the hosts' side ---

    def poll(self, host: str, scope_id: ScopeId, wait_ms: int) -> Offer | None:
        """A call for this scope, waiting a little for one; asking is also a sign of presence."""
        with self._changed:
            arrived = self._seen.get(scope_id, -PRESENCE_S) < self.now_s() - PRESENCE_S
            self._seen[scope_id] = self.now_s()
        if arrived:
            self.on_presence()
        with self._changed:
            found = self._changed.wait_for(
                lambda: self._closed or self._next(scope_id) is not None,
                min(max(wait_ms, 0), POLL_MS_MAX) / 1000,
            )
            self._seen[scope_id] = self.now_s()
            work = self._next(scope_id) if found and not self._closed else None
            if work is None:
                return None
            work.taken_by = host
            self._changed.notify_all()
            return Offer(work.work_id, work.call, self.timeout_ms)

    def _next(self, scope_id: ScopeId) -> _Waiting | None:
        return next(
            (
                w
                for w in self._waiting.values()
                if w.taken_by is None and w.call.scope_id == scope_id
            ),
            None,
        )

    def give_back(self, work_id: str) -> None:
        """A call whose offer did not reach its host: whoever asks next may have it."""
        with self._changed:
            work = self._waiting.get(work_id)
            if work is not None and work.reply is None:
                work.taken_by = None
                self._changed.notify_all()

    def done(self, work_id: str, reply: Reply) -> bool:
        """Bring an answer back; False when nobody waits for it (any more), or it is there."""
        with self._changed:
            work = self._waiting.get(work_id)
            if work is None or work.taken_by is None or work.reply is not None:
                return False
            work.reply = reply
            self._changed.notify_all()
            return True
