"""Bringing a session up to what its host holds: the only way that records come to be (§3, §12).

The host's membership (ids, digests, order) is compared with ours, so an event lost, doubled or out
of order changes nothing. What is final and follows what is sealed is sealed; a turn that ended is
closed and its publication scheduled, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from optchat.core.records import HostMessage, Session
from optchat.core.tree import SessionTree
from optchat.engine import past
from optchat.engine.deps import Deps
from optchat.engine.draft import Draft
from optchat.engine.keys import kept_digest, revised
from optchat.engine.lifecycle import branch, fork
from optchat.engine.payloads import Prepared
from optchat.engine.sealing import Sealing
from optchat.engine.sessions import (
    begin_session,
    follow,
    generation_of,
    open_turn,
    own_lineage,
    session_of,
)
from optchat.engine.tombstones import FORGOTTEN, NO_DIGEST, forgotten_messages, is_forgotten
from optchat.errors import BadInput, EventConflict
from optchat.limits import MESSAGES_MAX
from optchat.storage.ports import Tx
from optchat.wire import OWN_TOOLS, MessageInfo, SessionInfo, SyncRequest, SyncResponse


@dataclass(frozen=True, slots=True)
class Taken:
    """What comes with a session that is taken in as history.

    ``mark`` is its host's store's, and ``draft`` what can be sealed of it if it is new here.
    """

    publishing: past.Publishing
    mark: str
    draft: Draft | None

    def mark_when(self, draft: Draft | None) -> str:
        """The mark, once all that it stands for is sealed with ``draft``."""
        return self.mark if draft is not None and not draft.need else ""


def sync(
    tx: Tx,
    deps: Deps,
    request: SyncRequest,
    prepared: Prepared,
    commit: str | None = None,
    *,
    taken: Taken | None = None,
) -> SyncResponse:
    """Compare and seal one session; safe to repeat.

    ``prepared``: what ``prepare`` made of the request before the transaction.
    ``taken``: it is history. Then no job is made: its turns are published under a line that only
    names them, and nodes are left to when the session is used again.
    ``commit`` is the revision observed in the session's directory, if any. A history that was read
    later and is no append (an edit, a rewind, a removal) begins a new generation; one that was read
    earlier, such as a late or repeated delivery, changes nothing.

    Raises:
        BadInput: over ``MESSAGES_MAX`` messages, or an id twice; nothing is written.
        EventConflict: one reading of a message with two contents; nothing is written.
    """
    if len(request.messages) > MESSAGES_MAX:
        raise BadInput(f"a session of {len(request.messages)} messages is over {MESSAGES_MAX}.")
    if len({m.id for m in request.messages}) != len(request.messages):
        raise BadInput("a message id is there twice in the session; nothing was sealed.")
    if is_forgotten(tx, request.session):
        return SyncResponse(
            session="", generation=0, need=[], records=0, sealed=0, disabled=FORGOTTEN
        )
    if request.session.parent_id is not None and not deps.config.sharing.subagents:
        raise BadInput(
            "a subagent's transcript is private; nothing of it was kept.",
            hint="sharing.subagents = true in config.toml takes them in, then: optchat stop",
        )
    known = tx.sessions.session_of_host(request.session.host, request.session.id)
    if known is None:
        session = begin_session(
            tx,
            deps,
            request.session,
            observed_ms=request.observed_ms,
            mark=taken.mark_when(taken.draft) if taken is not None else "",
            as_history=taken is not None,
        )
    else:
        session = follow(tx, deps, known, request.session)
        if session.disabled is not None:
            return _unchanged(tx, session, taken)
    is_new = known is None and request.session.fork_of is None
    held: Sequence[HostMessage] = ()
    if not is_new:
        session = fork(tx, deps, session, request)
        held = tx.membership.messages(session.session_id)
        common = _common_prefix(held, request.messages)
        if common < len(held):
            if request.observed_ms <= session.observed_ms:
                _check_same_reading(session, request, held[common])
                return _unchanged(tx, session, taken)
            if taken is not None:
                taken.publishing.put_down()  # no line over what is taken back is on its way then
            session = branch(tx, deps, session, held, common)
            held = held[:common]
        _check_content(tx, session, request, held, prepared)
    publishing = taken.publishing if taken is not None else None
    sealing = Sealing(
        tx, deps, session, request.session, commit, is_new=is_new, publishing=publishing
    )
    draft = taken.draft if taken is not None and is_new else None
    if draft is None or forgotten_messages(tx, request.session, [m.id for m in request.messages]):
        draft, prepared = sealing.draft(request, prepared, held)
    sealed = sealing.put(draft, prepared)
    session = _noted(tx, sealing.session, request, draft, taken)
    return SyncResponse(
        session=f"s{session.number}",
        generation=session.generation,
        need=draft.need,
        records=sealing.lineage.length,
        sealed=sealed,
        turn=sealing.turn.turn_id if sealing.turn is not None else None,
    )


def _common_prefix(stored: Sequence[HostMessage], given: Sequence[MessageInfo]) -> int:
    """How many messages at the start are the same in the host and here."""
    for position, (ours, theirs) in enumerate(zip(stored, given, strict=False)):
        same = ours.digest in (kept_digest(theirs.digest), NO_DIGEST)
        if ours.message_id != theirs.id or not same:
            return position
    return min(len(stored), len(given))


def _check_same_reading(session: Session, request: SyncRequest, ours: HostMessage) -> None:
    """One reading of the host cannot have held two contents of a message (§3)."""
    if request.observed_ms < session.observed_ms:
        return  # an earlier reading: the message may well have been another then
    if ours.digest == NO_DIGEST:
        return
    if any(
        m.id == ours.message_id and kept_digest(m.digest) != ours.digest for m in request.messages
    ):
        raise EventConflict(
            f"message {ours.message_id} of {session.host_session} arrived a second time with other "
            "content; what was sealed stands.",
        )


def _check_content(
    tx: Tx,
    session: Session,
    request: SyncRequest,
    held: Sequence[HostMessage],
    prepared: Prepared,
) -> None:
    """What is sealed and was sent again, by a sender that has just started, must be the same (§3).

    Attachments and our own results are left out: the form of a manifest may change with a version.
    So is what a fork inherits, which was sealed under its origin's keys.
    """
    history = own_lineage(tx, session)
    own_start = history.own_start(session.session_id)
    again = [
        (message, ours)
        for message, ours in zip(request.messages, held, strict=False)
        if message.parts is not None and ours.end_seq_exclusive > own_start
    ]
    if not again:
        return
    start, end = again[0][1].start_seq, again[-1][1].end_seq_exclusive
    sealed = {
        record.event_key: record.payload
        for piece in history.owners(max(start, own_start), end)
        for record in tx.records.range(piece.tree, piece.start, piece.end_exclusive)
    }
    for message, _ in again:
        for source in prepared[message.id]:
            if source.facet == "file" or (source.facet == "result" and source.tool in OWN_TOOLS):
                continue
            keys = (revised(source.key, number) for number in range(session.generation, -1, -1))
            payload = next((sealed[key] for key in keys if key in sealed), None)
            if payload is not None and payload != source.blob:
                raise EventConflict(
                    f"message {message.id} of {session.host_session} arrived a second time with "
                    "other content under the same digest; what was sealed stands.",
                )


def _unchanged(tx: Tx, session: Session, taken: Taken | None) -> SyncResponse:
    """The answer when nothing of what the host told is to be sealed."""
    if taken is not None and session.host_mark != taken.mark:
        tx.sessions.put_session(replace(session, host_mark=taken.mark))
    return _response(tx, session)


def _noted(
    tx: Tx, session: Session, request: SyncRequest, draft: Draft, taken: Taken | None
) -> Session:
    """The session as it says how far its host was read."""
    noted = replace(
        session,
        observed_ms=max(session.observed_ms, request.observed_ms),
        host_mark=(taken.mark_when(draft) if taken is not None else "") or session.host_mark,
    )
    if noted != session:
        tx.sessions.put_session(noted)
    return noted


def _response(tx: Tx, session: Session) -> SyncResponse:
    turn = open_turn(tx, session)
    return SyncResponse(
        session=f"s{session.number}",
        generation=session.generation,
        need=[],
        records=generation_of(tx, SessionTree(session.session_id, session.generation)).length,
        sealed=0,
        turn=turn.turn_id if turn is not None else None,
        disabled=session.disabled,
    )


def disable(tx: Tx, info: SessionInfo, reason: str) -> None:
    """Turn memory off until a resync: the session's deliveries contradict each other (§12)."""
    session = tx.sessions.session_of_host(info.host, info.id)
    if session is not None:
        tx.sessions.put_session(replace(session, disabled=reason))


def resync(tx: Tx, deps: Deps, name: str) -> SyncResponse:
    """Enable memory of a session again and read its host's history anew (§12).

    Everything that was sealed of it is superseded: its publications are retired and made again from
    what the host holds at the session's next turn.

    Raises:
        NotFound: no session of that host id, or more than one.
    """
    enabled = replace(session_of(tx, name), disabled=None)
    stored = tx.membership.messages(enabled.session_id)
    session = branch(tx, deps, enabled, stored, 0)
    return _response(tx, session)
