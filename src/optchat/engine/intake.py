"""Taking a host's history in: sessions read from its store, sealed as it would tell them (§3).

The same reconciliation as a live session's, without a job: what is known already changes nothing,
and what a live session adds later is a plain append.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from optchat.engine import past
from optchat.engine.deps import Deps
from optchat.engine.payloads import Source, prepare
from optchat.engine.sync import sync
from optchat.storage.ports import Tx
from optchat.wire import SyncRequest, SyncResponse


class Reading(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One session as its host's store has it; ``mark`` moves with whatever changes there.

    Its content is in ``prepared`` alone: the messages' parts are there, and empty.
    """

    request: SyncRequest
    mark: str
    prepared: dict[str, list[Source]]


def reading_of(request: SyncRequest, mark: str, *, mask: bool) -> Reading:
    """A session with everything done to it that needs no transaction."""
    prepared = prepare(request, mask=mask, told=past.request_words)
    messages = [
        msgspec.structs.replace(message, parts=[]) if message.parts else message
        for message in request.messages
    ]
    return Reading(msgspec.structs.replace(request, messages=messages), mark, prepared)


def take_in(tx: Tx, deps: Deps, readings: Sequence[Reading]) -> list[SyncResponse]:
    """Seal and publish sessions of the past, in one transaction; safe to repeat.

    The answers are in order; ``need`` names messages whose content is still to come.

    Raises:
        BadInput, EventConflict: as ``sync``; nothing of any of them is written.
    """
    answers: list[SyncResponse] = []
    publishing = past.Publishing(tx, deps)
    for reading in readings:
        info = reading.request.session
        answer = sync(tx, deps, reading.request, reading.prepared, publishing=publishing)
        answers.append(answer)
        session = tx.sessions.session_of_host(info.host, info.id)
        if session is not None and not answer.need and session.host_mark != reading.mark:
            tx.sessions.put_session(replace(session, host_mark=reading.mark))
    publishing.put_down()
    return answers
