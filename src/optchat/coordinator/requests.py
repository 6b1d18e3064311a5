"""Requests on their way out: waiting for memory within a bound, and learning how tokens count.

The engine decides what a request carries; here is what lies between two requests of a process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from optchat.core.budget import calibrate, tokens, usable_tokens
from optchat.engine import assemble, native, subagent
from optchat.engine.deps import Deps
from optchat.engine.news import Recalled
from optchat.engine.recollection import recollect
from optchat.engine.sizes import sizes_of, window
from optchat.errors import NotReady, OptChatError
from optchat.storage.ports import Store
from optchat.wire import AssembleRequest, AssembleResponse, CheckRequest, CheckResponse

log = structlog.get_logger()

LOOKING_MAX = 2
"""Requests that may look their words up side by side; another one goes without."""


@dataclass(slots=True)
class Sent:
    """What was estimated for a session's last request, to compare with the provider's count."""

    model: str
    raw_tokens: int
    known: bool
    base_tokens: int = 0


@dataclass(slots=True)
class Requests:
    """The routes of a request. ``on_work`` wakes the workers for what a request waits for."""

    store: Store
    deps: Deps
    on_work: Callable[[], None]
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _version: int = 0
    _factors: dict[str, float] = field(default_factory=dict[str, float])
    _sent: dict[str, Sent] = field(default_factory=dict[str, Sent])
    _used: dict[str, str] = field(default_factory=dict[str, str])
    _looking: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(LOOKING_MAX))
    _recollecting: threading.Semaphore = field(
        default_factory=lambda: threading.Semaphore(LOOKING_MAX)
    )

    def changed(self) -> None:
        """A summary or publication was committed: whoever waits for memory looks again."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def assemble(self, request: AssembleRequest) -> AssembleResponse:
        """What to put into a request; waits for memory that is not ready, within the bound (§6)."""
        if request.purpose == "compaction":
            return self.store.read(lambda tx: native.compaction(tx, request))
        self._learn(request)
        model = model_key(request.model.provider, request.model.id)
        factor = self._factors.get(model, 1.0)
        if request.session.parent_id is not None:
            return self.store.read(lambda tx: subagent.subagent(tx, self.deps, request, factor))
        try:
            response = self.store.read(
                lambda tx: assemble.continuation(tx, self.deps, request, factor)
            )
            if response is None:
                response = self._admit(request, factor)
        except OptChatError as error:
            return AssembleResponse(state="stop", error=assemble.error_info(error))
        if response.state == "ready":
            overhead = tokens(sizes_of(request.overhead))
            self._sent[request.session.id] = Sent(
                model=model,
                raw_tokens=int(response.estimated_tokens / factor),
                known=request.overhead_known,
                base_tokens=response.estimated_tokens - int(overhead * factor),
            )
        return response

    def _admit(self, request: AssembleRequest, factor: float) -> AssembleResponse:
        remaining_ms = self.deps.config.memory.readiness_timeout_ms
        recalled = self._recollect(request)
        while True:
            version = self._version
            started_ms = self.deps.clock.now_ms()
            try:
                return self.store.write(
                    lambda tx: assemble.admit(tx, self.deps, request, factor, recalled)
                )
            except NotReady:
                self.store.write(lambda tx: assemble.hurry(tx, self.deps, request))
                self.on_work()
                with self._changed:
                    moved = self._changed.wait_for(
                        lambda seen=version: self._version != seen, remaining_ms / 1000
                    )
                remaining_ms -= max(1, self.deps.clock.now_ms() - started_ms)
                if not moved or remaining_ms <= 0:
                    raise

    def _recollect(self, request: AssembleRequest) -> tuple[Recalled, ...]:
        """What the request's words bring up, if that is wanted and there soon enough."""
        if self.deps.config.recall.automatic == "off":
            return ()
        if self._recollecting.acquire(blocking=False):
            looked = self._looking.submit(self._look, request)
            try:
                return looked.result(self.deps.config.recall.automatic_ms / 1000)
            except TimeoutError:
                log.info("recall was too slow", session=request.session.id)
        return ()

    def _look(self, request: AssembleRequest) -> tuple[Recalled, ...]:
        try:
            return self.store.read(lambda tx: recollect(tx, self.deps, request))
        finally:
            self._recollecting.release()

    def _learn(self, request: AssembleRequest) -> None:
        """Scale the model's token counts by what its provider reported for the last request."""
        usage, sent = request.usage, self._sent.get(request.session.id)
        if usage is None or sent is None:
            return
        # A guess at the instructions is too high, and what was refused for all that is too low.
        if not sent.known and usage.input_tokens < request.model.context_tokens:
            return
        if self._used.get(request.session.id) == usage.message_id:
            return
        self._used[request.session.id] = usage.message_id
        factor = self._factors.get(sent.model, 1.0)
        self._factors[sent.model] = calibrate(
            factor, estimated=int(sent.raw_tokens * factor), reported=usage.input_tokens
        )

    def check(self, request: CheckRequest) -> CheckResponse:
        """The final check of a request whose instructions turned out larger than announced."""
        sent = self._sent.get(request.session.id)
        usable = usable_tokens(window(request.model))
        factor = self._factors.get(model_key(request.model.provider, request.model.id), 1.0)
        overhead = tokens(sizes_of(request.overhead), factor)
        estimated = overhead + (sent.base_tokens if sent is not None else 0)
        error = None
        if estimated > usable:
            error = assemble.error_info(
                NotReady(
                    f"the request needs about {estimated} tokens of the {usable} that "
                    f"{request.model.id} takes; it was not sent and nothing is lost.",
                    hint="send it again: its true size is known now; or use a larger window",
                )
            )
        return CheckResponse(error=error, estimated_tokens=estimated, limit_tokens=usable)


def model_key(provider: str, model: str) -> str:
    return f"{provider}/{model}"
