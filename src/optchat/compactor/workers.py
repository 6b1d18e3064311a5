"""The threads that run summary jobs in the background."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import structlog

from optchat.compactor.desk import Desk
from optchat.compactor.models import DeterministicModel, SummaryModel
from optchat.compactor.models.anthropic import AnthropicModel
from optchat.compactor.models.host import HostModel
from optchat.compactor.models.http import Poster
from optchat.compactor.models.openai import OpenAIModel
from optchat.compactor.prompts import prompts
from optchat.compactor.worker import Worker
from optchat.config import Compactor
from optchat.engine.deps import Deps
from optchat.errors import Fenced, OptChatError
from optchat.storage.ports import Store, Tx

log = structlog.get_logger()

WORKER_POLL_S = 2.0
CLOCK_STEP_MS = 5_000
"""A clock that is further back than this was set back; less is correction."""

MADE_BY = "compactor.made_by"


def make_model(settings: Compactor) -> SummaryModel:
    """The model that the configuration names.

    Raises:
        BadInput: its address cannot be used.
    """
    timeout_ms = int(settings.timeout_seconds * 1000)
    match settings.model:
        case "deterministic":
            return DeterministicModel()
        case "host":
            return HostModel(timeout_ms)
        case "openai":
            poster = Poster(settings.url, key_env=settings.key_env, timeout_ms=timeout_ms)
            # No standard of that protocol: some endpoints want marks, some cannot read them.
            marks = bool(settings.cache_marks)
            return OpenAIModel(
                poster, settings.model_name, timeout_ms=timeout_ms, cache_marks=marks
            )
        case "anthropic":
            poster = Poster(settings.url, key_env=settings.key_env, timeout_ms=timeout_ms)
            return AnthropicModel(poster, settings.model_name, timeout_ms=timeout_ms)


def retry_under_new_model(tx: Tx, made_by: str, now_ms: int) -> int:
    """Another model or prompt may do what the one before could not: try what failed again."""
    if tx.meta.get(MADE_BY) == made_by:
        return 0
    tx.meta.put(MADE_BY, made_by)
    return tx.jobs.retry(now_ms)


class Workers:
    """Threads that run summary jobs; woken by new work, and by the clock for what was put off."""

    def __init__(
        self, store: Store, deps: Deps, changed: Callable[[], None], stopping: threading.Event
    ) -> None:
        settings = deps.config.compactor
        self._wake = threading.Condition()
        self._pending = True
        self._busy = 0
        self._stopping = stopping
        self._closed = False
        self._changed = changed
        self._seen_ms = self._active_ms = deps.clock.now_ms()
        self._store = store
        self._deps = deps
        self.model = make_model(settings)
        self.desk = Desk(settings, lambda: self._active_ms)
        if isinstance(self.model, HostModel):
            self.model.on_presence = self.wake
        made_by = f"{self.model.name} {prompts().version} {prompts().digest}"
        now_ms = deps.clock.now_ms()
        store.write(lambda tx: retry_under_new_model(tx, made_by, now_ms))
        self._threads = [
            threading.Thread(
                target=self._loop,
                args=(Worker(store, deps, self.model, f"{os.getpid()}-{index}", self.desk),),
                name=f"compactor-{index}",
                daemon=True,
            )
            for index in range(self._count(settings))
        ]
        for thread in self._threads:
            thread.start()

    def _count(self, settings: Compactor) -> int:
        # A host makes one call at a time, and a second one would only wait for its turn.
        return min(settings.workers, 1) if isinstance(self.model, HostModel) else settings.workers

    @property
    def busy(self) -> bool:
        return self._busy > 0

    def wake(self) -> None:
        """There may be a job: look."""
        with self._wake:
            self._pending = True
            self._wake.notify_all()

    def active(self) -> None:
        """A host did something: the hour is not idle."""
        self._active_ms = self._deps.clock.now_ms()

    def watch_clock(self) -> None:
        """Nothing that was put off waits once more for the time that the clock was set back by."""
        now_ms = self._deps.clock.now_ms()
        if now_ms < self._seen_ms - CLOCK_STEP_MS:
            log.warning("the clock was set back", milliseconds=self._seen_ms - now_ms)
            self._store.write(lambda tx: tx.jobs.release_put_off("", now_ms))
        self._seen_ms = now_ms

    def end(self) -> None:
        """Take no more jobs, and answer the hosts that ask for one; what is queued stays queued."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if isinstance(self.model, HostModel):
            self.model.close()

    def close(self) -> None:
        """Finish the jobs in hand and end."""
        self.end()
        for thread in self._threads:
            thread.join(timeout=10)

    def _loop(self, worker: Worker) -> None:
        while True:
            with self._wake:
                if not self._pending and not self._closed:
                    self._wake.wait(WORKER_POLL_S)
                if self._closed:
                    return
                self._pending = False
                self._busy += 1
            try:
                self.watch_clock()
                while not self._closed and worker.run_one():
                    self.wake()
                    self._changed()
            except Fenced:
                log.warning("fenced: another coordinator owns the store now")
                self._stopping.set()
                return
            except OptChatError as error:
                log.warning("worker", code=error.code)
            except Exception:
                log.exception("worker")
            finally:
                with self._wake:
                    self._busy -= 1
