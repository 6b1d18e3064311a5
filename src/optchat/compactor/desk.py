"""What the workers of one process share: the model's state, context lines, warm prefixes."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from optchat.compactor.earlier import Earlier
from optchat.compactor.models import Call, Outcome, Reply
from optchat.compactor.money import Meter, Stop, day_of, is_idle
from optchat.config import Compactor
from optchat.engine.deps import Deps
from optchat.refs import TurnId
from optchat.storage.ports import Job, ModelCall, Tx

BACKOFF_MS = 2_000
BACKOFF_MS_MAX = 10 * 60_000
WARM_MS = 4 * 60_000
"""Providers keep a prefix for about five minutes."""

PREFIXES_MAX = 512
WARM_WAIT_S = 30.0


@dataclass(slots=True)
class Breaker:
    """Whether the model can be asked at all, and if not, since when and until when.

    While it answers, a failure belongs to the job that met it. While it does not, one job at a time
    tries again, and its attempt is not counted: an outage of a night must not use up the attempts
    of every job that happened to be the one to try.
    """

    failures: int = 0
    until_ms: int = 0
    reason: str = ""
    probing: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, now_ms: int) -> bool:
        """Whether a call may be made now; True during an outage for one caller only."""
        with self._lock:
            if not self.failures:
                return True
            if self.probing or now_ms < self.until_ms:
                return False
            self.probing = True
            return True

    def leave(self) -> None:
        """The admitted caller had nothing to ask after all."""
        with self._lock:
            self.probing = False

    def succeeded(self) -> None:
        with self._lock:
            self.failures, self.until_ms, self.reason, self.probing = 0, 0, "", False

    def failed(self, reply: Reply, now_ms: int) -> bool:
        """Note a failure of the model's; True when it is the first after an answer."""
        with self._lock:
            first = not self.failures
            self.failures += 1
            wait_ms = min(BACKOFF_MS * 2 ** min(self.failures, 16), BACKOFF_MS_MAX)
            if reply.outcome in (Outcome.GONE, Outcome.DENIED):
                wait_ms = BACKOFF_MS_MAX
            if reply.retry_after_ms is not None:
                wait_ms = max(reply.retry_after_ms, BACKOFF_MS)
            self.until_ms = now_ms + wait_ms
            self.reason = f"{reply.outcome.value.replace('_', ' ')} {reply.detail}".strip()
            self.probing = False
            return first


@dataclass(slots=True)
class Desk:
    """Made once for a process, given to every worker."""

    settings: Compactor
    active_ms: Callable[[], int]
    meter: Meter = field(init=False)
    earlier: Earlier = field(init=False)
    breaker: Breaker = field(default_factory=Breaker)
    warm_wait_s: float = WARM_WAIT_S
    stop: Stop | None = None
    absent: str = ""
    _warm: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])
    _warming: set[str] = field(default_factory=set[str])
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.meter = Meter(self.settings.caps, self.settings.prices)
        self.earlier = Earlier(
            self.settings.context_bytes, frozen=self.settings.context == "frozen"
        )

    def trouble(self) -> str | None:
        """Why the model is not asked though it could be: a cap, or that it does not answer."""
        if self.stop is not None:
            return self.stop.told()
        if self.breaker.failures:
            return f"summaries wait, the model does not answer: {self.breaker.reason}"
        return None

    def notices(self) -> list[str]:
        """Why no summaries are being made, in words for a person; empty when they are."""
        absent = f"summaries wait: {self.absent}" if self.absent else None
        return [told for told in (self.trouble(), absent) if told is not None]

    def row(
        self, deps: Deps, model: str, call: Call, job: Job, turn_id: TurnId | None
    ) -> ModelCall:
        """The meter's row of a call that is about to be sent."""
        now_ms = deps.clock.now_ms()
        row = ModelCall(
            call_id=deps.ids.new_id(),
            at_ms=now_ms,
            day=day_of(now_ms),
            purpose=call.purpose,
            model=model,
            scope_id=job.scope_id,
            session_id=job.session_id,
            turn_id=turn_id,
            idle=is_idle(now_ms, self.active_ms()),
        )
        return self.meter.opened(row, call.input_bytes, call.output_tokens_max)

    def is_stopped(self, tx: Tx, now_ms: int, turn_id: TurnId | None) -> bool:
        """Whether a cap forbids one more call now."""
        stop = self.meter.stop(tx, now_ms, active_ms=self.active_ms())
        if stop is None and turn_id is not None:
            stop = self.meter.turn_stop(tx, now_ms, turn_id)
        return stop is not None

    @contextmanager
    def warm(self, prefix: str, now_ms: int) -> Generator[None]:
        """Let one call go ahead over a cold prefix, and the others after it over a warm one."""
        key = hashlib.sha256(prefix.encode("utf-8", "replace")).hexdigest()
        with self._changed:
            self._changed.wait_for(lambda: key not in self._warming, self.warm_wait_s)
            cold = self._warm.get(key, -WARM_MS) <= now_ms - WARM_MS
            if cold:
                self._warming.add(key)
        try:
            yield
        finally:
            with self._changed:
                self._warming.discard(key)
                self._warm[key] = now_ms
                self._warm.move_to_end(key)
                while len(self._warm) > PREFIXES_MAX:
                    self._warm.popitem(last=False)
                self._changed.notify_all()
