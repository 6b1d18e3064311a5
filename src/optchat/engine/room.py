"""What a request may fill, and whether its live turn can be sent in it at all (§7)."""

from __future__ import annotations

from dataclasses import dataclass

from optchat.engine.checkpoint import least_tokens
from optchat.engine.tail import Live
from optchat.errors import NotReady, TurnTooLarge

LIVE_RESERVE_PART = 0.2
"""The part of the window kept free at admission for the turn to grow into."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a request may fill and what it fills already, in tokens."""

    usable: int
    overhead: int
    live: int
    factor: float

    def available(self, *, reserve: bool) -> int:
        """What is left for memory and the native tail (§7)."""
        live = max(self.live, int(self.usable * LIVE_RESERVE_PART)) if reserve else self.live
        return max(0, self.usable - self.overhead - live)


def check_live(model: str, room: Room, live: Live) -> None:
    """Stop where the live turn cannot be sent whole, in itself or by what stands for it (§7)."""
    needed, least = room.overhead + room.live, room.overhead + least_tokens(live)
    if least >= room.usable:
        raise TurnTooLarge(
            f"the request and its newest step alone need about {least} tokens of the "
            f"{room.usable} that {model} takes, and neither can be folded; it was not "
            "sent and nothing is lost.",
            hint="use a model with a larger window, or take the last message back (/undo) and ask "
            "for less at once",
        )
    if needed >= room.usable or not live.whole:
        raise NotReady(
            f"this turn needs about {needed} tokens of the {room.usable} that {model} "
            "takes, and its steps are not summarised as far as that; it was not sent and nothing "
            "is lost.",
            hint="send a message when `optchat status` shows no pending jobs, or use a model with "
            "a larger window",
        )
