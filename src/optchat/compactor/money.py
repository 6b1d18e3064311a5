"""The meter's rules: caps by day, turn and idle hour, and when they end (I12).

The question is asked in the transaction that claims a job or opens a call's row, so that two
workers cannot both take the last call that a cap allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from optchat.compactor.models import Reply
from optchat.config import Caps, Prices
from optchat.refs import TurnId
from optchat.storage.ports import ModelCall, Spent, Tx

HOUR_MS = 3_600_000
DAY_MS_MAX = 26 * HOUR_MS
"""The longest day that a clock change makes, with something to spare: what is looked through."""

IDLE_AFTER_MS = 10 * 60_000
"""Without a host's request for so long, an hour counts as idle."""

RESUMED = "compactor.resumed_ms"
BYTES_PER_TOKEN = 3
"""For the estimate of a call that is not answered yet, or whose usage nobody reports."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A cap that was reached: nothing is sent before ``until_ms`` or ``optchat resume``."""

    cap: str
    used: int
    limit: int
    until_ms: int

    def told(self) -> str:
        until = datetime.fromtimestamp(self.until_ms / 1000).astimezone()
        return (
            f"summaries wait: {self.used:,} of {self.limit:,} {self.cap} are used; they go on at "
            f"{until:%Y-%m-%d %H:%M} or with: optchat resume"
        )


def day_of(now_ms: int) -> str:
    """The calendar day where the person is."""
    return datetime.fromtimestamp(now_ms / 1000).astimezone().strftime("%Y-%m-%d")


def next_day_ms(now_ms: int) -> int:
    """When that day ends."""
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    # A day of 23 or 25 hours: the next midnight is looked for, not counted.
    following = (midnight + timedelta(hours=36)).replace(hour=0, tzinfo=None).astimezone()
    return int(following.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Meter:
    """What may still be spent under the configured caps."""

    caps: Caps
    prices: Prices | None = None

    def stop(self, tx: Tx, now_ms: int, *, active_ms: int) -> Stop | None:
        """The cap of the day or of the idle hour that is reached, if any."""
        caps, resumed_ms = self.caps, resumed(tx)
        day = tx.ledger.spent(max(resumed_ms, now_ms - DAY_MS_MAX), day=day_of(now_ms))
        found = _reached(day, "today's", caps.day_calls, caps.day_tokens, next_day_ms(now_ms))
        if found is None and is_idle(now_ms, active_ms):
            since_ms = max(now_ms - HOUR_MS, resumed_ms)
            hour = tx.ledger.spent(since_ms, idle=True)
            until_ms = now_ms + HOUR_MS // 4  # the window slides; asked again from time to time
            found = _reached(
                hour, "the idle hour's", caps.idle_hour_calls, caps.idle_hour_tokens, until_ms
            )
        return found

    def turn_stop(self, tx: Tx, now_ms: int, turn_id: TurnId) -> Stop | None:
        """The turn's own cap, if it is reached."""
        spent = tx.ledger.spent(
            max(resumed(tx), now_ms - DAY_MS_MAX), day=day_of(now_ms), turn_id=turn_id
        )
        caps = self.caps
        until_ms = next_day_ms(now_ms)
        return _reached(spent, "this turn's", caps.turn_calls, caps.turn_tokens, until_ms)

    def opened(self, call: ModelCall, input_bytes: int, output_tokens: int) -> ModelCall:
        """The row before the call, with an estimate that counts if nothing better ever comes."""
        return self._with(call, "sent", input_bytes // BYTES_PER_TOKEN, 0, output_tokens, True, 0)

    def closed(self, call: ModelCall, reply: Reply, input_bytes: int, took_ms: int) -> ModelCall:
        """The row after the call: the provider's own figures where it gives them."""
        used = reply.usage
        if used is not None:
            return self._with(
                call,
                reply.outcome.value,
                used.input_tokens,
                used.cached_tokens,
                used.output_tokens,
                False,
                took_ms,
            )
        output = len(reply.text.encode("utf-8", "replace")) // BYTES_PER_TOKEN
        paid = input_bytes // BYTES_PER_TOKEN if reply.sent else 0
        return self._with(call, reply.outcome.value, paid, 0, output, True, took_ms)

    def _with(
        self,
        call: ModelCall,
        outcome: str,
        input_tokens: int,
        cached_tokens: int,
        output_tokens: int,
        estimated: bool,  # noqa: FBT001
        duration_ms: int,
    ) -> ModelCall:
        return ModelCall(
            call_id=call.call_id,
            at_ms=call.at_ms,
            day=call.day,
            purpose=call.purpose,
            model=call.model,
            scope_id=call.scope_id,
            session_id=call.session_id,
            turn_id=call.turn_id,
            idle=call.idle,
            outcome=outcome,
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
            estimated=estimated,
            micros=self._micros(input_tokens, cached_tokens, output_tokens),
            duration_ms=duration_ms,
        )

    def _micros(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> int | None:
        if self.prices is None:
            return None
        prices = self.prices
        cached = prices.input if prices.cached is None else prices.cached
        fresh = max(0, input_tokens - cached_tokens)
        # A price for a million tokens is millionths for one.
        return round(fresh * prices.input + cached_tokens * cached + output_tokens * prices.output)


def _reached(
    spent: Spent, whose: str, calls_max: int, tokens_max: int, until_ms: int
) -> Stop | None:
    if calls_max and spent.calls >= calls_max:
        return Stop(f"{whose} calls", spent.calls, calls_max, until_ms)
    if tokens_max and spent.tokens >= tokens_max:
        return Stop(f"{whose} tokens", spent.tokens, tokens_max, until_ms)
    return None


def is_idle(now_ms: int, active_ms: int) -> bool:
    return now_ms - active_ms > IDLE_AFTER_MS


def resumed(tx: Tx) -> int:
    """Since when calls count: from the last ``optchat resume`` on."""
    return int(tx.meta.get(RESUMED) or 0)
