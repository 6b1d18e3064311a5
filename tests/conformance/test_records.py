"""I5: records are sealed once and in order; membership and turns (§3)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from optchat.core.records import Checkpoint, Generation, HostMessage, Outcome, Pin, RecordKind
from optchat.core.tree import SessionTree
from optchat.errors import Conflict, IntegrityError
from optchat.refs import BlobHash, Csn, FoldId, ScopeId, SessionId, TurnId


@pytest.fixture
def tree(world):
    return world.session("a")


@pytest.fixture
def payload(world):
    return world.write(lambda tx: tx.blobs.put(b"payload"))


def append(world, *records, text: str = "") -> None:
    world.write(lambda tx: tx.records.append(records, [text.encode()] * len(records)))


def test_a_sealed_record_comes_back_whole(world, tree, payload):
    made = world.a_record(
        tree,
        0,
        payload=payload,
        payload_bytes=7,
        kind=RecordKind.TOOL_RESULT,
        tool="bash",
        pair="m1/p1",
        status="completed",
        worktree="/w",
        commit="abc",
        truncated="by the host",
        attachments=("a", "b"),
    )
    append(world, made)
    assert world.read(lambda tx: tx.records.record(tree, 0)) == made
    assert world.read(lambda tx: tx.records.record(tree, 1)) is None


def test_many_records_are_sealed_as_one_is(world, tree, payload):
    """Each with its own place and payload, in one call."""
    other = world.write(lambda tx: tx.blobs.put(b"other"))
    made = [
        world.a_record(tree, 0, payload=payload, payload_bytes=7, worktree="/w"),
        world.a_record(tree, 1, payload=other, payload_bytes=5, worktree="/w", commit="abc"),
        world.a_record(tree, 2, payload=payload, payload_bytes=7, worktree="/w"),
    ]
    append(world, *made)
    later = world.a_record(tree, 3, payload=other, payload_bytes=5, commit="abc")
    append(world, later)
    assert world.read(lambda tx: tx.records.range(tree, 0, 9)) == (*made, later)
    append(world)
    assert world.read(lambda tx: tx.sessions.generation(tree.session_id, 0)).length == 4


def test_append_raises_the_generations_length(world, tree):
    assert world.seal(tree, "zero", "one") == (0, 1)
    found = world.read(lambda tx: tx.sessions.generation(tree.session_id, 0))
    assert found is not None
    assert found.length == 2


@pytest.mark.parametrize("seq", [0, 2, 5])
def test_a_taken_number_and_a_gap_are_conflicts(world, tree, payload, seq):
    world.seal(tree, "zero")
    with pytest.raises(Conflict):
        append(world, world.a_record(tree, seq, payload=payload))
    assert world.read(lambda tx: tx.records.count()) == 1


def test_a_gap_among_many_and_a_second_generation_are_conflicts(world, tree, payload):
    other = world.session("b")
    first = world.a_record(tree, 0, payload=payload)
    for second in (world.a_record(tree, 2, payload=payload), world.a_record(other, 1)):
        with pytest.raises(Conflict):
            append(world, first, second)
    assert world.read(lambda tx: tx.records.count()) == 0


def test_a_record_of_an_unknown_generation_is_a_conflict(world, tree, payload):
    unknown = SessionTree(tree.session_id, 7)
    with pytest.raises(Conflict):
        append(world, world.a_record(unknown, 0, payload=payload))


def test_a_record_without_its_payload_cannot_be_sealed(world, tree):
    """I1: what is displayed leads to retained bytes."""
    with pytest.raises(IntegrityError):
        append(world, world.a_record(tree, 0, payload=BlobHash("0" * 64)))
    assert world.read(lambda tx: tx.records.count()) == 0
    assert world.seal(tree, "zero") == (0,)


def test_a_caught_conflict_leaves_nothing_in_the_transaction(world, tree, payload):
    def work(tx):
        for record in (
            world.a_record(tree, 1, payload=payload),
            world.a_record(tree, 0, payload=BlobHash("0" * 64)),
        ):
            with pytest.raises((Conflict, IntegrityError)):
                tx.records.append([record], [b"text"])
        tx.records.append([world.a_record(tree, 0, payload=payload)], [b"text"])

    world.write(work)
    assert world.read(lambda tx: tx.records.count()) == 1


def test_a_generation_with_a_base_starts_after_what_it_inherits(world, tree, payload):
    world.seal(tree, "zero", "one", "two")
    child = SessionTree(tree.session_id, 1)
    world.write(
        lambda tx: tx.sessions.put_generation(
            Generation(session_id=child.session_id, number=1, base=tree, inherited=2, length=2)
        )
    )
    with pytest.raises(Conflict):
        append(world, world.a_record(child, 0, payload=payload))
    append(world, world.a_record(child, 2, payload=payload))
    # Own records only: lineage is the engine's to resolve.
    assert world.read(lambda tx: tx.records.record(child, 1)) is None
    assert [r.seq for r in world.read(lambda tx: tx.records.range(child, 0, 9))] == [2]


def test_a_range_is_half_open_and_in_order(world, tree):
    world.seal(tree, *"abcdef")
    found = world.read(lambda tx: tx.records.range(tree, 2, 5))
    assert [r.seq for r in found] == [2, 3, 4]
    assert world.read(lambda tx: tx.records.range(tree, 4, 4)) == ()


def a_message(position: int, message_id: str, session_id: str = "a") -> HostMessage:
    return HostMessage(
        session_id=SessionId(session_id),
        position=position,
        message_id=message_id,
        digest="d",
        turn_id=TurnId("t"),
        start_seq=0,
        end_seq_exclusive=1,
    )


def test_membership_is_kept_by_position_and_replaced_there(world):
    messages = [a_message(1, "m1"), a_message(0, "m0"), a_message(0, "x", "b")]
    for message in messages:
        world.write(lambda tx, m=message: tx.membership.put(m))
    changed = msgspec.structs.replace(messages[0], digest="other", message_id="m9")
    world.write(lambda tx: tx.membership.put(changed))
    found = world.read(lambda tx: tx.membership.messages(SessionId("a")))
    assert found == (messages[1], changed)


def test_a_message_id_stands_once_in_a_session(world):
    world.write(lambda tx: tx.membership.put(a_message(0, "m0")))
    with pytest.raises(Conflict):
        world.write(lambda tx: tx.membership.put(a_message(1, "m0")))
    world.write(lambda tx: tx.membership.put(a_message(1, "m0", "b")))


def test_membership_is_read_from_a_record_on(world):
    for position, (start, end) in enumerate(((0, 2), (2, 2), (2, 5), (5, 6))):
        made = msgspec.structs.replace(
            a_message(position, f"m{position}"), start_seq=start, end_seq_exclusive=end
        )
        world.write(lambda tx, m=made: tx.membership.put(m))
    found = world.read(lambda tx: tx.membership.messages(SessionId("a"), 2))
    assert [m.message_id for m in found] == ["m1", "m2", "m3"]


def test_a_message_is_found_by_the_hosts_id_in_its_own_session(world):
    for message in (a_message(0, "m0"), a_message(1, "m1"), a_message(0, "x", "b")):
        world.write(lambda tx, m=message: tx.membership.put(m))

    def found(session, name):
        return world.read(lambda tx: tx.membership.message(SessionId(session), name))

    assert found("a", "m1") == a_message(1, "m1")
    assert found("a", "x") is None
    assert found("b", "x") == a_message(0, "x", "b")


def test_truncating_membership_keeps_what_is_before(world):
    for position in range(4):
        message = a_message(position, f"m{position}")
        world.write(lambda tx, m=message: tx.membership.put(m))
    world.write(lambda tx: tx.membership.put(a_message(3, "x", "b")))
    world.write(lambda tx: tx.membership.truncate(SessionId("a"), 2))
    found = world.read(lambda tx: tx.membership.messages(SessionId("a")))
    assert [m.position for m in found] == [0, 1]
    assert len(world.read(lambda tx: tx.membership.messages(SessionId("b")))) == 1


def test_a_turn_comes_back_whole_open_and_closed(world):
    made = world.a_turn("t1")
    world.write(lambda tx: tx.turns.put(made))
    assert world.read(lambda tx: tx.turns.turn(TurnId("t1"))) == made
    closed = replace(
        made,
        scope_id=ScopeId("project:p1"),
        end_seq_exclusive=4,
        outcome=Outcome.INTERRUPTED,
        closed_ms=9,
        fold_id=FoldId("f"),
        news="<news>",
        checkpoints=(
            Checkpoint(after="m0", until="m3", start=1, end_exclusive=5, text="<what was done>"),
        ),
        pin=Pin(
            scope_id=ScopeId("s"),
            csn=1,
            publication_end=2,
            policy_revision=3,
            retention_epoch=4,
            own_generation=5,
            own_end=6,
        ),
    )
    world.write(lambda tx: tx.turns.put(closed))
    assert world.read(lambda tx: tx.turns.turn(TurnId("t1"))) == closed
    assert world.read(lambda tx: tx.turns.by_key(SessionId("a"), 0, made.key)) == closed
    assert world.read(lambda tx: tx.turns.by_key(SessionId("a"), 1, made.key)) is None


def test_many_turns_are_put_as_one_is(world):
    """What a fork inherits, in one statement: with scope and outcome, open and closed (§12)."""
    world.session("a")
    made = [
        world.a_turn("t0", key="m0", scope_id=ScopeId("profile:x")),
        world.a_turn(
            "t1",
            key="m1",
            start_seq=2,
            end_seq_exclusive=4,
            outcome=Outcome.FAILED,
            closed_ms=9,
        ),
    ]
    world.write(lambda tx: tx.turns.put_many(made))
    assert world.read(lambda tx: [tx.turns.turn(t.turn_id) for t in made]) == made


def test_a_message_opens_one_turn_of_a_generation(world):
    world.write(lambda tx: tx.turns.put(world.a_turn("t1", key="m")))
    with pytest.raises(Conflict):
        world.write(lambda tx: tx.turns.put(world.a_turn("t2", key="m")))
    world.write(lambda tx: tx.turns.put(world.a_turn("t2", key="m", generation=1)))


def test_the_open_the_last_pinned_the_folded_and_the_turns_of_a_fold_are_found(world):
    a = SessionId("a")
    pin = Pin(
        scope_id=world.scope_id,
        csn=Csn(1),
        publication_end=0,
        policy_revision=1,
        retention_epoch=1,
        own_generation=0,
        own_end=0,
    )
    told = (Checkpoint(after="m0", until="m3", start=1, end_exclusive=5, text="<done>"),)
    ended = {"end_seq_exclusive": 1, "outcome": Outcome.COMPLETED, "closed_ms": 9}
    for made in (
        world.a_turn("t1", key="1", pin=pin, fold_id=FoldId("f"), **ended),
        world.a_turn(
            "t2", key="2", start_seq=1, pin=pin, fold_id=FoldId("f"), checkpoints=told, **ended
        ),
        world.a_turn("t3", key="3", start_seq=2, fold_id=FoldId("g")),
        world.a_turn("t4", key="4", start_seq=1, generation=1, pin=pin),
        world.a_turn("t5", key="5", start_seq=9, generation=2, **ended),
    ):
        world.write(lambda tx, made=made: tx.turns.put(made))

    def ids(found):
        return [t.turn_id for t in found if t is not None]

    assert ids(world.read(lambda tx: [tx.turns.open(a, g) for g in range(4)])) == [
        "t3",
        "t4",
    ]
    assert ids(world.read(lambda tx: [tx.turns.last_pinned(a, g) for g in range(4)])) == [
        "t2",
        "t4",
    ]
    assert ids(world.read(lambda tx: tx.turns.folded(a, 0))) == ["t2"]
    assert world.read(lambda tx: tx.turns.folded(a, 1)) == ()
    assert ids(world.read(lambda tx: tx.turns.of_fold(a, FoldId("f")))) == ["t1", "t2"]
    assert world.read(lambda tx: tx.turns.of_fold(SessionId("b"), FoldId("f"))) == ()


def test_turns_of_all_generations_come_in_order(world):
    for turn_id, start, opened in (("z", 1, 5), ("y", 0, 9), ("x", 1, 4), ("w", 1, 4)):
        made = world.a_turn(turn_id, start_seq=start, opened_ms=opened, generation=opened)
        world.write(lambda tx, made=made: tx.turns.put(made))
    found = world.read(lambda tx: tx.turns.of_session(SessionId("a")))
    assert [t.turn_id for t in found] == ["y", "w", "x", "z"]
