"""I12: no call to a summary model that the meter does not show; pieces of payloads (§4, §10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optchat.errors import Conflict, IntegrityError
from optchat.refs import BlobHash, SessionId, TurnId
from optchat.storage.ports import Chunk, ModelCall, Spent


def a_call(world, call_id: str, **changes) -> ModelCall:
    made = ModelCall(
        call_id=call_id,
        at_ms=100,
        day="2026-01-01",
        purpose="node",
        model="small",
        scope_id=world.scope_id,
        session_id=SessionId("a"),
        input_tokens=10,
        cached_tokens=4,
        output_tokens=2,
        micros=7,
    )
    return replace(made, **changes)


def open_all(world, *calls: ModelCall) -> None:
    for call in calls:
        world.write(lambda tx, call=call: tx.ledger.open(call))


def spent(world, since_ms: int = 0, **conditions) -> Spent:
    return world.read(lambda tx: tx.ledger.spent(since_ms, **conditions))


def test_a_call_counts_from_before_it_is_sent(world):
    open_all(world, a_call(world, "c1"))
    assert spent(world) == Spent(
        calls=1, input_tokens=10, cached_tokens=4, output_tokens=2, micros=7
    )
    assert world.read(lambda tx: tx.ledger.unfinished()) == 1


def test_an_id_is_opened_once(world):
    open_all(world, a_call(world, "c1"))
    with pytest.raises(Conflict):
        open_all(world, a_call(world, "c1", input_tokens=99))
    assert spent(world).input_tokens == 10


def test_closing_replaces_what_was_estimated(world):
    open_all(world, a_call(world, "c1"))
    answered = a_call(world, "c1", outcome="ok", input_tokens=20, estimated=False, micros=None)
    world.write(lambda tx: tx.ledger.close(answered))
    assert spent(world) == Spent(
        calls=1, input_tokens=20, cached_tokens=4, output_tokens=2, micros=0, unpriced=1
    )
    assert world.read(lambda tx: tx.ledger.unfinished()) == 0


def test_a_dropped_call_is_gone_and_closing_it_does_not_bring_it_back(world):
    open_all(world, a_call(world, "c1"))
    world.write(lambda tx: tx.ledger.drop("c1"))
    world.write(lambda tx: tx.ledger.drop("c1"))
    world.write(lambda tx: tx.ledger.close(a_call(world, "c1", outcome="ok")))
    assert spent(world) == Spent()


def test_sums_are_of_the_calls_that_all_conditions_fit(world):
    open_all(
        world,
        a_call(world, "c1", input_tokens=1),
        a_call(world, "c2", input_tokens=10, at_ms=200, day="2026-01-02", turn_id=TurnId("t")),
        a_call(world, "c3", input_tokens=100, at_ms=300, day="2026-01-02", idle=True),
    )
    assert spent(world).input_tokens == 111
    assert spent(world, 200).input_tokens == 110
    assert spent(world, 201).input_tokens == 100
    assert spent(world, day="2026-01-02").input_tokens == 110
    assert spent(world, turn_id=TurnId("t")).input_tokens == 10
    assert spent(world, idle=False).input_tokens == 11
    assert spent(world, day="2026-01-02", idle=True).input_tokens == 100
    assert spent(world, 301) == Spent()


def test_a_table_sums_by_one_column_in_its_order(world):
    open_all(
        world,
        a_call(world, "c1", session_id=None, model="large"),
        a_call(world, "c2", session_id=SessionId("b")),
        a_call(world, "c3", session_id=SessionId("a"), purpose="turn"),
        a_call(world, "c4", session_id=SessionId("b"), day="2026-01-02"),
    )

    def names(by) -> list[tuple[str, int]]:
        found = world.read(lambda tx: tx.ledger.table(by, 0))
        return [(name, sums.calls) for name, sums in found]

    assert names("session") == [("", 1), ("a", 1), ("b", 2)]
    assert names("model") == [("large", 1), ("small", 3)]
    assert names("purpose") == [("node", 3), ("turn", 1)]
    assert names("day") == [("2026-01-01", 3), ("2026-01-02", 1)]
    assert world.read(lambda tx: tx.ledger.table("day", 101)) == ()


def test_findings_add_up(world):
    for model, times in (("small", 2), ("large", 1), ("small", 3)):
        world.write(lambda tx, m=model, t=times: tx.ledger.count(m, "1", "too long", t))
    assert world.read(lambda tx: tx.ledger.findings()) == (
        ("large", "1", "too long", 1),
        ("small", "1", "too long", 5),
    )


def a_chunk(payload: BlobHash, level: int, position: int, text: str = "text") -> Chunk:
    return Chunk(
        payload=payload,
        plan="plan",
        level=level,
        position=position,
        start=position,
        end_exclusive=position + 1,
        read=1,
        text=text,
    )


def test_pieces_come_by_level_and_position_and_are_replaced(world):
    payload = world.write(lambda tx: tx.blobs.put(b"payload"))
    for level, position in ((1, 0), (0, 1), (0, 0)):
        chunk = a_chunk(payload, level, position)
        world.write(lambda tx, c=chunk: tx.chunks.put(c))
    newer = a_chunk(payload, 0, 1, "newer")
    world.write(lambda tx: tx.chunks.put(newer))
    found = world.read(lambda tx: tx.chunks.of(payload, "plan"))
    assert found == (a_chunk(payload, 0, 0), newer, a_chunk(payload, 1, 0))
    assert world.read(lambda tx: tx.chunks.of(payload, "other plan")) == ()


def test_a_piece_of_a_payload_that_is_not_kept_is_an_integrity_error(world):
    """I8: what goes with a payload cannot come after it is gone."""
    with pytest.raises(IntegrityError):
        world.write(lambda tx: tx.chunks.put(a_chunk(BlobHash("0" * 64), 0, 0)))
