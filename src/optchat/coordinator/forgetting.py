"""Forgetting as a command: dry runs, the bytes on disk, and what cannot be reached (§12)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from optchat.coordinator.readers import chosen_scope
from optchat.engine import forget, presence, targets
from optchat.engine.deps import Deps
from optchat.engine.recall.query import parse_time
from optchat.errors import OptChatError
from optchat.storage.ports import Removal, Store, Tx
from optchat.wire import (
    ForgetRequest,
    ForgetResponse,
    ForgottenRequest,
    ForgottenResponse,
    PresentRequest,
    PresentResponse,
    RemovalInfo,
)

SCRUB_ATTEMPTS = 5
SCRUB_PAUSE_S = 0.2

SENT = "requests that were sent already, with the models that they went to"
HOST = "the host's own transcript: delete the session there too, if it should be gone"
COPIES = "copies, exports and backups that you made yourself"


class _DryRun(Exception):
    """Carries what a removal would have been out of the transaction that it undoes."""

    def __init__(self, removal: Removal) -> None:
        self.removal = removal


@dataclass(slots=True)
class Forgetting:
    """The routes that remove."""

    store: Store
    deps: Deps

    def forget(self, request: ForgetRequest) -> ForgetResponse:
        """Remove, and empty the log, so that no byte of it is left in the store.

        Raises:
            NotFound, BadInput: what was named is not there or not clear; nothing was removed.
        """

        def work(tx: Tx) -> Removal:
            removal = self._forget(tx, request)
            if request.dry_run:
                raise _DryRun(removal)
            return removal

        try:
            removal = self.store.write(work)
        except _DryRun as tried:
            return ForgetResponse(
                removal=info(tried.removal), dry_run=True, unreachable=_unreachable(tried.removal)
            )
        unreachable = _unreachable(removal)
        try:
            if not self.scrub():
                unreachable.append("the store's log, until a long read of it has ended")
        except OptChatError as error:
            # The removal stands: nothing reads it any more. Only its bytes are not overwritten yet.
            unreachable.append(f"unused parts of the store's file, for now: {error.message}")
        return ForgetResponse(removal=info(removal), dry_run=False, unreachable=unreachable)

    def _forget(self, tx: Tx, request: ForgetRequest) -> Removal:
        if request.what == "project":
            project = targets.project_in(tx.sessions.projects(), request.name)
            return forget.forget_project(tx, self.deps, project)
        scope = chosen_scope(tx, self.deps, request.scope, request.directory)
        match request.what:
            case "session":
                session = targets.session_named(tx, scope, request.name)
                what = f"session s{session.number}"
                return forget.forget_sessions(tx, self.deps, [session], what)
            case "turn":
                found = targets.turn_named(tx, scope, request.name)
            case "before":
                time_ms = parse_time(request.name, "the time")
                found = targets.turns_before(tx, scope, time_ms, request.name.strip())
        return forget.forget_turns(tx, self.deps, found.turns, found.what)

    def present(self, request: PresentRequest) -> PresentResponse:
        """Compare a host's sessions with ours; forget those that the host says are gone.

        Their bytes are overwritten when the coordinator is quiet: a turn may wait for this answer.
        """
        forgotten = 0
        if request.gone:
            forgotten = self.store.write(lambda tx: presence.forget_gone(tx, self.deps, request))
        missing = self.store.read(
            lambda tx: [session.host_session for session in presence.absent(tx, request)]
        )
        return PresentResponse(missing=missing, forgotten=forgotten)

    def forgotten(self, request: ForgottenRequest) -> ForgottenResponse:
        """The removals so far, newest first."""
        found = self.store.read(lambda tx: tx.removals.logged(min(request.limit, 1_000)))
        return ForgottenResponse(removals=[info(removal) for removal in found])

    def is_scrubbed(self) -> bool:
        """Whether no removal has left bytes in the store's files."""
        return self.store.read(lambda tx: tx.meta.get(forget.UNSCRUBBED)) != "1"

    def scrub(self) -> bool:
        """Overwrite what removals left in the store's files; False when it is to be tried again."""
        for _ in range(SCRUB_ATTEMPTS):
            if self.store.scrub():
                self.store.write(lambda tx: tx.meta.put(forget.UNSCRUBBED, "0"))
                return True
            time.sleep(SCRUB_PAUSE_S)
        return False


def info(removal: Removal) -> RemovalInfo:
    return RemovalInfo(
        at_ms=removal.at_ms,
        what=removal.what,
        counts=removal.counts,
        places=list(removal.places),
    )


def _unreachable(removal: Removal) -> list[str]:
    """Where what was removed may still be, as far as it is known (§12)."""
    if not any(removal.counts.values()):
        return []
    quoted = [f"{len(removal.places)} places in other turns that opened or repeat it"]
    return [SENT, HOST, COPIES, *(quoted if removal.places else [])]
