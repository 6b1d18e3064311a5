"""The state of everything, for a person who looks."""

from __future__ import annotations

from optchat.coordinator.readers import newest
from optchat.core.records import Session
from optchat.engine.deps import Deps
from optchat.storage.ports import JobState, Tx
from optchat.wire import Health, ScopeStatus, SessionCounts, StatusResponse


def status(tx: Tx, deps: Deps, health: Health, waiting: list[str]) -> StatusResponse:
    """Counts of everything, the queue, and what is wrong. ``waiting``: why no summary is made."""
    rows_of: list[ScopeStatus] = []
    notices = list(waiting)
    for scope in tx.sessions.scopes():
        visibility = newest(tx, scope)
        published = {
            row[0].session_id: row[1] for row in tx.publications.visible_sessions(visibility)
        }
        rows: list[SessionCounts] = []
        for session in tx.sessions.sessions(scope.scope_id):
            rows.append(_counts(tx, session, published.get(session.session_id, 0)))
            if session.disabled is not None:
                notices.append(
                    f"memory is off for s{session.number} ({session.title}): "
                    f"{session.disabled}. To enable it: optchat resync {session.host_session}"
                )
        rows_of.append(
            ScopeStatus(
                scope=scope.scope_id,
                name=scope.name,
                publications=scope.publications,
                retention_epoch=scope.retention_epoch,
                policy_revision=scope.policy_revision,
                sessions=rows,
            )
        )
    failed = tx.jobs.failed(20)
    told = "; its line only says: needs inspection" if deps.config.memory.fallback else ""
    notices += [f"a summary failed for good: {j.target} ({j.error}){told}" for j in failed]
    return StatusResponse(
        health=health,
        records=tx.records.count(),
        jobs={s.value: tx.jobs.counts().get(s, 0) for s in JobState},
        failed_jobs=[job.target for job in failed],
        scopes=rows_of,
        summariser=deps.config.compactor.model,
        notices=notices,
    )


def _counts(tx: Tx, session: Session, published: int) -> SessionCounts:
    generation = tx.sessions.generation(session.session_id, session.generation)
    return SessionCounts(
        ref=f"s{session.number}",
        title=session.title,
        host_session=session.host_session,
        turns=len(tx.turns.of_session(session.session_id)),
        records=generation.length if generation is not None else 0,
        published=published,
        disabled=session.disabled,
        archived=session.archived,
        sharing=session.sharing,
    )
