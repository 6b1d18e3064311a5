"""The bill: what summaries have cost, by day, session, purpose and model, beside the caps."""

from __future__ import annotations

from collections.abc import Sequence

from optchat.compactor.desk import Desk
from optchat.compactor.money import day_of, resumed
from optchat.refs import SessionId
from optchat.storage.ports import Spent, Tx
from optchat.wire import CapInfo, FindingInfo, SpendResponse, SpendRow

DAY_MS = 86_400_000


def bill(tx: Tx, desk: Desk, days: int, now_ms: int) -> SpendResponse:
    """The meter's last ``days`` in tables, and how far each cap is used."""
    since_ms = now_ms - max(1, days) * DAY_MS
    names = {
        s.session_id: f"s{s.number} {s.title}"
        for scope in tx.sessions.scopes()
        for s in tx.sessions.sessions(scope.scope_id)
    }
    by_session = tx.ledger.table("session", since_ms)
    prices = desk.meter.prices
    caps = desk.meter.caps
    today = tx.ledger.spent(resumed(tx), day=day_of(now_ms))
    return SpendResponse(
        total=_row("total", tx.ledger.spent(since_ms)),
        by_day=_rows(tx.ledger.table("day", since_ms)),
        by_session=[
            _row(names.get(SessionId(name), name) if name else "(shared tree)", spent)
            for name, spent in by_session
        ],
        by_purpose=_rows(tx.ledger.table("purpose", since_ms)),
        by_model=_rows(tx.ledger.table("model", since_ms)),
        caps=[
            CapInfo(name="calls a day", used=today.calls, limit=caps.day_calls),
            CapInfo(name="tokens a day", used=today.tokens, limit=caps.day_tokens),
            CapInfo(name="calls a turn", used=0, limit=caps.turn_calls),
            CapInfo(name="tokens a turn", used=0, limit=caps.turn_tokens),
            CapInfo(name="calls an idle hour", used=0, limit=caps.idle_hour_calls),
            CapInfo(name="tokens an idle hour", used=0, limit=caps.idle_hour_tokens),
            CapInfo(name="calls an oversized payload", used=0, limit=caps.payload_calls),
        ],
        currency=prices.currency if prices is not None else "",
        unfinished=tx.ledger.unfinished(),
        notices=desk.notices(),
        findings=[
            FindingInfo(model=m, prompt_version=v, finding=f, times=t)
            for m, v, f, t in tx.ledger.findings()
        ],
    )


def _rows(table: Sequence[tuple[str, Spent]]) -> list[SpendRow]:
    return [_row(name, spent) for name, spent in table]


def _row(name: str, spent: Spent) -> SpendRow:
    return SpendRow(
        name=name,
        calls=spent.calls,
        input_tokens=spent.input_tokens,
        cached_tokens=spent.cached_tokens,
        output_tokens=spent.output_tokens,
        cost=None if spent.unpriced else spent.micros / 1_000_000,
    )
