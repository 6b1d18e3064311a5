"""I6, I7: all of a unit of work or nothing of it; counters, epochs and fencing (§9)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from optchat.core.tree import SessionTree
from optchat.errors import Conflict, Fenced, StorageError
from optchat.refs import Csn, SessionId, Span, TurnId
from optchat.storage.sqlite import SqliteStore
from tests.harness.found import records, searchable


def test_a_raise_leaves_nothing(world):
    tree = world.session("a")
    world.seal(tree, "zero")
    world.publish(tree, 0, 1)
    before = everything(world)

    def work(tx):
        tx.meta.next_csn()
        tx.meta.put("key", "value")
        tx.meta.raise_epoch()
        tx.blobs.put(b"new payload")
        tx.records.append([world.a_record(tree, 1, payload=tx.blobs.put(b"one"))], [b"one text"])
        tx.turns.put(world.a_turn("t9"))
        tx.trees.put_node(world.a_node(tree, Span(0, 1)))
        tx.publications.append(world.a_publication(tree, 1))
        tx.publications.retire(world.scope_id, 0, tx.meta.next_csn())
        tx.jobs.put(world.a_job("j1"), [(tree, Span(4, 1))])
        raise KeyError("a reason")

    with pytest.raises(KeyError, match="a reason"):
        world.write(work)
    assert everything(world) == before


def everything(world):
    tree = SessionTree(SessionId("a"), 0)
    now = world.now()
    return world.read(
        lambda tx: (
            tx.meta.csn(),
            tx.meta.epoch(),
            tx.meta.get("key"),
            tx.sessions.scopes(),
            tx.sessions.generation(tree.session_id, 0),
            tx.records.range(tree, 0, 99),
            tx.turns.turn(TurnId("t9")),
            tx.trees.node(tree, Span(0, 1)),
            tx.publications.range(world.scope_id, 0, 99),
            tx.jobs.counts(),
            searchable(tx, now),
            records(tx, now, "one", "zero"),
        )
    )


def test_a_unit_of_work_sees_its_own_writes(world):
    def work(tx):
        tx.meta.put("key", "value")
        return tx.meta.get("key")

    assert world.write(work) == "value"


def test_a_caught_error_keeps_the_rest_of_the_unit(world):
    def work(tx):
        tx.meta.put("key", "value")
        with pytest.raises(Conflict):
            tx.publications.append(world.a_publication(SessionTree(SessionId("a"), 0), 5))

    world.write(work)
    assert world.read(lambda tx: tx.meta.get("key")) == "value"


def test_a_unit_run_again_changes_nothing_more(world):
    tree = world.session("a")

    def work(tx):
        tx.blobs.put(b"payload")
        node = tx.trees.put_node(world.a_node(tree, Span(0, 1)))
        queued = tx.jobs.put(world.a_job("j1"))
        published = tx.publications.append(world.a_publication(tree, 0, turn_id=TurnId("t")))
        return node, queued, published

    assert world.write(work) == (True, True, True)
    before = everything(world)
    assert world.write(work) == (False, False, False)
    assert everything(world) == before


def test_writing_in_a_read_is_an_error_and_changes_nothing(world):
    tree = world.session("a")
    for work in (
        lambda tx: tx.meta.put("key", "value"),
        lambda tx: tx.meta.next_csn(),
        lambda tx: tx.blobs.put(b"new"),
        lambda tx: tx.trees.put_node(world.a_node(tree, Span(0, 1))),
        lambda tx: tx.jobs.put(world.a_job("j1")),
    ):
        with pytest.raises(StorageError):
            world.read(work)
    assert world.read(lambda tx: (tx.meta.get("key"), tx.meta.csn())) == (None, 0)


def test_an_error_in_a_read_reaches_the_caller_and_the_store_goes_on(world):
    with pytest.raises(ZeroDivisionError):
        world.read(lambda tx: 1 / 0)
    assert world.read(lambda tx: tx.meta.csn()) == 0


def test_a_unit_of_work_cannot_open_another(world):
    for outer in (world.write, world.read):
        for inner in (world.write, world.read):
            with pytest.raises(StorageError):
                outer(lambda tx, inner=inner: inner(lambda tx: tx.meta.csn()))
    assert world.read(lambda tx: tx.meta.csn()) == 0


def test_the_commit_number_is_one_for_a_transaction_and_grows_with_each(world):
    def work(tx):
        before = tx.meta.csn()
        taken = tx.meta.next_csn(), tx.meta.next_csn()
        return before, taken, tx.meta.csn()

    assert world.write(work) == (0, (1, 1), 1)
    assert world.write(work) == (1, (2, 2), 2)
    world.write(lambda tx: tx.meta.put("key", "value"))
    assert world.read(lambda tx: tx.meta.csn()) == 2


def test_many_threads_get_different_commit_numbers_and_none_is_left_out(world):
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: world.write(lambda tx: tx.meta.next_csn()), range(200)))
    assert sorted(taken) == [Csn(n) for n in range(1, 201)]


def test_many_threads_seal_without_gap_or_loss(world):
    """Correctness is in the conditions of the writes: a conflict is tried again."""
    tree = world.session("a")

    def seal(number: int) -> None:
        def work(tx):
            generation = tx.sessions.generation(tree.session_id, 0)
            payload = tx.blobs.put(b"payload")
            key = f"e{number}"
            if any(r.event_key == key for r in tx.records.range(tree, 0, generation.length)):
                return
            record = world.a_record(tree, generation.length, payload=payload, event_key=key)
            tx.records.append([record], [f"text {number}".encode()])

        world.write(work)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(seal, [*range(100), *range(50)]))
    found = world.read(lambda tx: tx.records.range(tree, 0, 999))
    assert [r.seq for r in found] == list(range(100))
    assert {r.event_key for r in found} == {f"e{n}" for n in range(100)}


def test_one_units_failure_does_not_touch_the_units_beside_it(world):
    def write(number: int) -> str:
        def work(tx):
            tx.meta.put(f"key-{number}", "value")
            if number % 3 == 0:
                raise ValueError(str(number))

        try:
            world.write(work)
        except ValueError:
            return "raised"
        return "kept"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(write, range(90)))
    kept = [world.read(lambda tx, n=n: tx.meta.get(f"key-{n}")) is not None for n in range(90)]
    assert kept == [n % 3 != 0 for n in range(90)]
    assert outcomes == ["kept" if k else "raised" for k in kept]


def test_a_read_sees_one_state_while_others_commit(world):
    """I3."""
    if not isinstance(world.store, SqliteStore):
        pytest.skip("the reference store lets nobody commit during a read")
    committed = threading.Event()

    def work(tx):
        before = tx.meta.csn()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(world.write, lambda tx: tx.meta.next_csn()).result()
        committed.set()
        return before, tx.meta.csn()

    assert world.read(work) == (0, 0)
    assert committed.is_set()
    assert world.read(lambda tx: tx.meta.csn()) == 1


def test_a_stale_owner_is_fenced_and_writes_nothing(world):
    first = world.write(lambda tx: tx.meta.raise_epoch())
    world.store.owner_epoch = first
    world.write(lambda tx: tx.meta.put("key", "first"))

    def take_over(tx):
        tx.meta.raise_epoch()

    world.write(take_over)
    with pytest.raises(Fenced):
        world.write(lambda tx: tx.meta.put("key", "stale"))
    assert world.read(lambda tx: (tx.meta.get("key"), tx.meta.epoch())) == ("first", first + 1)
    world.store.owner_epoch = first + 1
    world.write(lambda tx: tx.meta.put("key", "second"))


def test_named_values_are_replaced(world):
    for value in ("one", "two", ""):
        world.write(lambda tx, v=value: tx.meta.put("key", v))
        assert world.read(lambda tx: tx.meta.get("key")) == value
    assert world.read(lambda tx: tx.meta.get("other")) is None


def test_a_closed_store_refuses_and_closing_again_is_harmless(world):
    world.store.close()
    world.store.close()
    for call in (world.read, world.write):
        with pytest.raises(StorageError):
            call(lambda tx: tx.meta.csn())


def test_who_writes_hears_when_nothing_is_left_but_to_commit(world):
    """Once, after the work, before it returns; and not of work that raised."""
    heard: list[str] = []

    def fail(tx):
        raise KeyError("a reason")

    world.store.write(lambda tx: heard.append("work"), lambda: heard.append("committing"))
    assert heard == ["work", "committing"]
    with pytest.raises(KeyError):
        world.store.write(fail, lambda: heard.append("not this"))
    assert heard == ["work", "committing"]
