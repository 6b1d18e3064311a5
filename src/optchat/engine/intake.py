"""Taking a host's history in: sessions read from its store, sealed as it would tell them (§3).

The same reconciliation as a live session's, without a job: what is known already changes nothing,
and what a live session adds later is a plain append.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from optchat.engine import past
from optchat.engine.deps import Deps
from optchat.engine.draft import Draft, Start, draft_of
from optchat.engine.payloads import Source, prepare
from optchat.engine.sync import Taken, sync
from optchat.storage.ports import Tx
from optchat.wire import SyncRequest, SyncResponse


class Reading(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One session as its host's store has it; ``mark`` moves with whatever changes there.

    Its content is in ``prepared`` alone: the messages' parts are there, and empty. ``draft`` is
    what can be sealed of it if it is new here, and ``chars`` about how much there is of it.
    """

    request: SyncRequest
    mark: str
    prepared: dict[str, list[Source]]
    draft: Draft | None
    chars: int


def reading_of(request: SyncRequest, mark: str, *, mask: bool) -> Reading:
    """A session with everything done to it that needs no transaction."""
    prepared = prepare(request, mask=mask, told=past.request_words)
    draft = draft_of(request, prepared, request.observed_ms, Start())
    past.name_turns(draft, draft.sources(prepared))
    messages = [
        msgspec.structs.replace(message, parts=[]) if message.parts else message
        for message in request.messages
    ]
    request = msgspec.structs.replace(request, messages=messages)
    return Reading(request, mark, prepared, draft, sum(map(chars_of, prepared.values())))


def chars_of(sources: Sequence[Source]) -> int:
    """About how much a message holds."""
    return 200 + sum(len(source.payload) for source in sources)


def take_in(tx: Tx, deps: Deps, readings: Sequence[Reading]) -> list[SyncResponse]:
    """Seal and publish sessions of the past, in one transaction; safe to repeat.

    The answers are in order; ``need`` names messages whose content is still to come.

    Raises:
        BadInput, EventConflict: as ``sync``; nothing of any of them is written.
    """
    publishing = past.Publishing(tx, deps)
    answers = [
        sync(
            tx,
            deps,
            reading.request,
            reading.prepared,
            taken=Taken(publishing, reading.mark, reading.draft),
        )
        for reading in readings
    ]
    publishing.put_down()
    return answers
