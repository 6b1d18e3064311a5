"""Folding the live turn: finished steps give way to lines of their own tree (§7).

What the user said stays as it is, and so do the newest steps and whatever is not sealed or has no
durable leaf yet. A step is a whole message of the host, calls with their results, so that no call
is parted from its result (I9).
"""

from __future__ import annotations

from dataclasses import dataclass

from optchat.core import context
from optchat.core.budget import text_tokens
from optchat.core.records import Checkpoint
from optchat.core.tree import cover
from optchat.core.views import Entry, View, coarsest_tokens, project
from optchat.engine.forest import Forest
from optchat.engine.tail import Live, LiveMessage
from optchat.refs import Span

NODES_MAX = 256
"""About how many nodes of a stretch are looked at; its lines are a few dozen."""


@dataclass(slots=True)
class _Stretch:
    """Steps in a row, behind the kept message ``after``, and what they are told from."""

    after: str
    start: int
    end_exclusive: int
    last: int  # the index of its last message

    def holds(self, span: Span) -> bool:
        return self.start <= span.start and span.end_exclusive <= self.end_exclusive


def checkpoints(forest: Forest, live: Live, session: str, target: int) -> tuple[Checkpoint, ...]:
    """Fold the live turn's oldest steps so that it takes about ``target`` tokens.

    Half of what the user's own messages leave of that is for the newest steps, of which one always
    stays, and the rest for the lines; these are as fine as fits, and as coarse as there is. None
    when no step can be folded, also because the compactor is behind: its nodes come first.
    """
    messages = live.messages
    kept = _kept(live)
    steps = [i for i, m in enumerate(messages) if m.sent and m.message_id not in kept]
    if not kept or not steps:
        return ()
    said = sum(m.tokens for m in messages if m.message_id in kept)
    budget = max(0, target - said)
    first = _first_native(messages, kept, steps[-1], budget // 2)
    stretches, entries = _stretches(forest, messages, kept, first)
    if not entries:
        return ()
    native_from = min(first, stretches[-1].last + 1)
    native = sum(m.tokens for m in messages[native_from:] if m.message_id not in kept)
    frames = len(stretches) * text_tokens(
        context.checkpoint_block((), session=session, start=0, end_exclusive=0)
    )
    room = int(max(0, budget - native) / live.factor) - frames

    def parent_of(span: Span) -> Entry | None:
        return forest.entry(span) if any(s.holds(span) for s in stretches) else None

    view = View(entries=tuple(entries))
    room = max(room, coarsest_tokens(view, parent_of))
    chosen = project(view, parent_of, budget_tokens=room) or ()
    return tuple(
        Checkpoint(
            after=stretch.after,
            until=_until(messages, kept, stretch, native_from),
            start=stretch.start,
            end_exclusive=stretch.end_exclusive,
            text=context.checkpoint_block(
                forest.lines(tuple(e for e in chosen if stretch.holds(e.span))),
                session=session,
                start=stretch.start,
                end_exclusive=stretch.end_exclusive,
            ),
        )
        for stretch in stretches
    )


def least_tokens(live: Live) -> int:
    """What the live turn takes if every step but the newest is folded, without the lines."""
    kept = _kept(live)
    steps = [m for m in live.messages if m.sent and m.message_id not in kept]
    said = sum(m.tokens for m in live.messages if m.message_id in kept)
    return said + (steps[-1].tokens if steps else 0)


def _kept(live: Live) -> list[str]:
    """The messages that stay as they are, in order; the first one opens the turn for a provider.

    Where the host left out the request itself, the first message that is not the model's does.
    """
    sent = [m for m in live.messages if m.sent]
    opener = next((m for m in sent if m.message_id == live.turn.key), None) or next(
        (m for m in sent if m.role != "assistant"), None
    )
    if opener is None:
        return []
    return [m.message_id for m in sent if m is opener or m.role == "user"]


def _first_native(
    messages: tuple[LiveMessage, ...], kept: list[str], newest: int, room: int
) -> int:
    """The index from which on steps stay native: as many as fit ``room``, the newest always."""
    first, native = newest, messages[newest].tokens
    while first:
        before = messages[first - 1]
        if before.message_id not in kept:
            native += before.tokens
        if native > room or not before.sent:
            break
        first -= 1
    unsealed = next((i for i, m in enumerate(messages) if not m.sealed), len(messages))
    return min(first, unsealed)


def _stretches(
    forest: Forest, messages: tuple[LiveMessage, ...], kept: list[str], first: int
) -> tuple[list[_Stretch], list[Entry]]:
    """What is folded before ``first``, with its nodes, up to the first leaf that is not there."""
    stretches: list[_Stretch] = []
    after = kept[0]
    for index, message in enumerate(messages[:first]):
        last = stretches[-1] if stretches else None
        if message.message_id in kept:
            after = message.message_id
        elif message.start == message.end_exclusive:
            continue
        elif last is not None and (last.after, last.end_exclusive) == (after, message.start):
            last.end_exclusive, last.last = message.end_exclusive, index
        else:
            stretches.append(_Stretch(after, message.start, message.end_exclusive, index))
    entries: list[Entry] = []
    for at, stretch in enumerate(stretches):
        found = _frontier(forest, stretch.start, stretch.end_exclusive)
        covered = found[-1].span.end_exclusive if found else stretch.start
        if covered == stretch.end_exclusive:
            entries += found
            continue
        whole = [
            (m.end_exclusive, i)
            for i, m in enumerate(messages[: stretch.last])
            if stretch.start < m.end_exclusive <= covered
        ]
        if not whole:
            return stretches[:at], entries
        stretch.end_exclusive, stretch.last = whole[-1]
        entries += _frontier(forest, stretch.start, stretch.end_exclusive)
        return stretches[: at + 1], entries
    return stretches, entries


def _frontier(forest: Forest, start: int, end_exclusive: int) -> list[Entry]:
    """Durable nodes that cover a range from its start without a gap: its leaves, if it is short.

    Of a long one the nodes over several, since its lines will be coarser than that anyway.
    """
    grain = 1
    while grain * NODES_MAX < end_exclusive - start:
        grain *= 2
    pending = list(reversed(cover(start, end_exclusive)))
    found: list[Entry] = []
    while pending:
        span = pending.pop()
        entry = forest.entry(span) if span.count <= grain else None
        if entry is not None:
            found.append(entry)
        elif span.count > 1:
            pending += reversed(span.children)
        else:
            break
    return found


def _until(
    messages: tuple[LiveMessage, ...], kept: list[str], stretch: _Stretch, native_from: int
) -> str:
    """The next message that is sent as it is behind a stretch; the newest step is the last one."""
    opener = next(i for i, m in enumerate(messages) if m.message_id == stretch.after)
    behind = range(max(opener, stretch.last) + 1, len(messages))
    return next(
        messages[i].message_id
        for i in behind
        if messages[i].sent and (i >= native_from or messages[i].message_id in kept)
    )
