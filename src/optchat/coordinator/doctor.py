"""``optchat doctor``: what is wrong with the store, told with what is unharmed and what to run.

The running coordinator looks through its own store; without one the caller does, under the lock
that keeps another from starting meanwhile.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import filelock

from optchat import config
from optchat.coordinator.client import Client
from optchat.coordinator.ids import CountedIds
from optchat.coordinator.paths import Paths
from optchat.core.records import Session
from optchat.core.scopes import Scope
from optchat.engine.check import SAVE, Found, check_scope, check_session
from optchat.engine.deps import Deps
from optchat.engine.repair import repair_scope, repair_session
from optchat.errors import OptChatError, Unreachable
from optchat.storage.ports import Damage, DamageKind, Store
from optchat.storage.sqlite import SqliteStore
from optchat.storage.sqlite.store import SystemClock
from optchat.wire import DoctorRequest, DoctorResponse, Fault

T = TypeVar("T")

SAMPLE_RECORDS = 500
"""Originals that are hashed unless all of them are asked for."""

TIMEOUT_S = 3_600.0
"""A large store takes minutes; whoever waits can see that it works by its disk."""


def doctor(paths: Paths, request: DoctorRequest) -> DoctorResponse:
    """Check the store of a data directory, through its coordinator where one runs.

    Raises:
        RemoteError: the coordinator refused.
    """
    with Client(paths, timeout_s=TIMEOUT_S) as client:
        try:
            return client.call("/v1/doctor", request, DoctorResponse)
        except Unreachable:
            pass
    if not paths.store.exists():
        return _answer(notes=[f"{paths.home} holds no memory yet."])
    lock = filelock.FileLock(paths.lock, mode=0o600)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        fault = Fault(
            what="a coordinator holds the data directory and does not answer",
            unharmed="the store was not touched",
            next=f"look at the end of {paths.log}, stop that process, then: optchat doctor",
        )
        return _answer(faults=[fault])
    try:
        return _without_coordinator(paths, request)
    finally:
        lock.release()


def _without_coordinator(paths: Paths, request: DoctorRequest) -> DoctorResponse:
    try:
        settings = config.load(paths.home)
    except OptChatError:
        settings = config.Config()  # told of by the check of the configuration itself
    try:
        store = SqliteStore(paths.store)
    except OptChatError as error:
        fault = Fault(
            what=f"the store cannot be opened: {error.message}",
            unharmed="it was not changed",
            next=error.hint if error.hint != "optchat doctor" else f"move {paths.store} away",
        )
        return _answer(faults=[fault])
    try:
        # Only a repair makes anything that needs an id.
        epoch = store.write(lambda tx: tx.meta.raise_epoch()) if request.repair else 0
        return examine(store, Deps(settings, SystemClock(), CountedIds(epoch)), request)
    finally:
        store.close()


def examine(store: Store, deps: Deps, request: DoctorRequest) -> DoctorResponse:
    """Repair what is asked for, then look at everything; each session is one transaction."""
    visit = _Visit(store, deps, request)
    visit.run()
    return _answer(
        faults=visit.faults,
        repaired=visit.repaired,
        checked={
            "records": visit.records,
            "originals hashed": visit.hashed,
            "conversations": visit.sessions,
            "scopes": visit.scopes,
        },
    )


@dataclass(slots=True)
class _Visit:
    store: Store
    deps: Deps
    request: DoctorRequest
    faults: list[Fault] = field(default_factory=list[Fault])
    repaired: list[str] = field(default_factory=list[str])
    records: int = 0
    hashed: int = 0
    sessions: int = 0
    scopes: int = 0

    def run(self) -> None:
        damage = self.store.damage()
        if self.request.repair and any(d.kind is DamageKind.INDEX for d in damage):
            self._guarded("the search index", self._rebuild)
            damage = self.store.damage()
        self.faults += [_told(d) for d in damage]
        for scope, sessions in self._guarded("the list of scopes", self._scopes) or ():
            self.scopes += 1
            for session in sessions:
                self.sessions += 1
                self._guarded(f"s{session.number} of {scope.name}", partial(self._session, session))
            self._guarded(f"what {scope.name} shares", partial(self._scope, scope))

    def _scopes(self) -> tuple[tuple[Scope, tuple[Session, ...]], ...]:
        return self.store.read(
            lambda tx: tuple((s, tx.sessions.sessions(s.scope_id)) for s in tx.sessions.scopes())
        )

    def _rebuild(self) -> None:
        self.store.rebuild_search()
        self.repaired.append("the search index was made anew from the texts that are kept")

    def _session(self, session: Session) -> None:
        if self.request.repair:
            self.repaired += [
                f"s{session.number}: {done}"
                for done in self.store.write(lambda tx: repair_session(tx, self.deps, session))
            ]
        sampled = self._sample()
        self._take(self.store.read(lambda tx: check_session(tx, session, sampled)))

    def _scope(self, scope: Scope) -> None:
        if self.request.repair:
            self.repaired += [
                f"{scope.name}: {done}"
                for done in self.store.write(lambda tx: repair_scope(tx, self.deps, scope))
            ]
        self._take(self.store.read(lambda tx: check_scope(tx, scope)))

    def _sample(self) -> Callable[[], bool]:
        """All, or about ``SAMPLE_RECORDS`` of all there are, others at each visit."""
        if self.request.full:
            return lambda: True
        total = self.store.read(lambda tx: tx.records.count())
        stride = max(1, total // SAMPLE_RECORDS)
        counter = itertools.count(self.deps.clock.now_ms())
        return lambda: next(counter) % stride == 0

    def _take(self, found: Found) -> None:
        self.faults += found.faults
        self.records += found.records
        self.hashed += found.hashed

    def _guarded(self, name: str, work: Callable[[], T]) -> T | None:
        """Do one part; when it cannot be read at all that is its fault, and the rest goes on."""
        try:
            return work()
        except OptChatError as error:
            fault = Fault(
                what=f"{name} cannot be read: {error.message}",
                unharmed="the rest is served",
                next=SAVE,
            )
            self.faults.append(fault)
            return None


def _told(damage: Damage) -> Fault:
    match damage.kind:
        case DamageKind.INDEX:
            return Fault(
                what=f"the search index is damaged: {damage.told}",
                unharmed="all that is kept; only searching is affected",
                next="optchat doctor --repair",
            )
        case DamageKind.REFERENCES:
            return Fault(what=damage.told, unharmed="what does not lead there is served", next=SAVE)
        case DamageKind.PAGES:
            return Fault(
                what=f"the database file is damaged: {damage.told}",
                unharmed="whatever can be read is served",
                next=SAVE,
            )


def _answer(
    *,
    faults: list[Fault] | None = None,
    repaired: list[str] | None = None,
    notes: list[str] | None = None,
    checked: dict[str, int] | None = None,
) -> DoctorResponse:
    return DoctorResponse(
        faults=faults or [], repaired=repaired or [], notes=notes or [], checked=checked or {}
    )
