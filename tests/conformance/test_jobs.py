"""I7: leases, fencing tokens, dependencies and the outbox (§9, §10)."""

from __future__ import annotations

import pytest

from optchat.core.tree import SessionTree
from optchat.errors import Conflict
from optchat.refs import Csn, ScopeId, SessionId, Span
from optchat.storage.ports import JobKind, JobState

TREE = SessionTree(SessionId("a"), 0)


def put(world, *jobs, waits_for=()) -> list[bool]:
    return [world.write(lambda tx, job=job: tx.jobs.put(job, waits_for)) for job in jobs]


def claim(world, now_ms: int = 1000, lease_ms: int = 100):
    return world.write(lambda tx: tx.jobs.claim("worker", now_ms, lease_ms))


def job(world, job_id: str):
    return world.read(lambda tx: tx.jobs.job(job_id))


def release(world, job_id: str, token: int, *, at: int = 0, error: str = "", failed: bool = False):
    return world.write(
        lambda tx: tx.jobs.release(job_id, token, not_before_ms=at, error=error, failed=failed)
    )


def test_a_job_is_enqueued_once_in_whatever_state_it_is(world):
    assert put(world, world.a_job("j1", target="t")) == [True]
    assert put(world, world.a_job("j2", target="t")) == [False]
    taken = claim(world)
    assert put(world, world.a_job("j2", target="t")) == [False]
    world.write(lambda tx: tx.jobs.finish("j1", taken.token))
    assert put(world, world.a_job("j2", target="t")) == [False]
    assert put(world, world.a_job("j2", target="t", input_hash="other")) == [True]
    assert put(world, world.a_job("j3", target="t", kind=JobKind.TURN)) == [True]


def test_a_job_id_is_taken_once(world):
    put(world, world.a_job("j1"))
    with pytest.raises(Conflict):
        put(world, world.a_job("j1", target="other"))


def test_a_job_without_dependencies_is_ready_whatever_it_says(world):
    put(world, world.a_job("j1", state=JobState.FAILED))
    assert job(world, "j1").state is JobState.READY


def test_a_job_waits_for_its_missing_nodes_only(world):
    world.write(lambda tx: tx.trees.put_node(world.a_node(TREE, Span(0, 1))))
    put(world, world.a_job("j1"), waits_for=[(TREE, Span(0, 1)), (TREE, Span(1, 1))])
    put(world, world.a_job("j2"), waits_for=[(TREE, Span(0, 1))])
    assert job(world, "j1").state is JobState.WAITING
    assert job(world, "j2").state is JobState.READY
    assert world.write(lambda tx: tx.jobs.resolve(TREE, Span(1, 1))) == 1
    assert job(world, "j1").state is JobState.READY


def test_a_retired_node_is_missing(world):
    world.write(lambda tx: tx.trees.put_node(world.a_node(TREE, Span(0, 1))))
    world.write(lambda tx: tx.trees.retire_node(TREE, Span(0, 1), Csn(4)))
    put(world, world.a_job("j1"), waits_for=[(TREE, Span(0, 1))])
    assert job(world, "j1").state is JobState.WAITING


def test_a_job_becomes_ready_with_its_last_dependency(world):
    waits_for = [(TREE, Span(0, 1)), (TREE, Span(1, 1)), (TREE, Span(1, 1))]
    put(world, world.a_job("j1"), world.a_job("j2"), waits_for=waits_for)
    put(world, world.a_job("j3"), waits_for=waits_for[:1])
    assert claim(world) is None
    assert world.write(lambda tx: tx.jobs.resolve(TREE, Span(0, 1))) == 1
    assert world.write(lambda tx: tx.jobs.resolve(TREE, Span(0, 1))) == 0
    assert world.write(lambda tx: tx.jobs.resolve(TREE, Span(1, 1))) == 2


def test_a_claim_leases_raises_the_token_and_counts_an_attempt(world):
    put(world, world.a_job("j1"))
    taken = claim(world, 1000, 100)
    assert taken == job(world, "j1")
    assert (taken.state, taken.token, taken.attempts) == (JobState.LEASED, 1, 1)
    assert (taken.lease_until_ms, taken.worker) == (1100, "worker")
    assert claim(world, 1000) is None


def test_turns_go_before_nodes_and_older_before_newer(world):
    put(
        world,
        world.a_job("z"),
        world.a_job("y"),
        world.a_job("t2", kind=JobKind.TURN),
        world.a_job("t1", kind=JobKind.TURN),
    )
    order = [claim(world).job_id for _ in range(4)]
    assert order == ["t2", "t1", "z", "y"]


def test_a_job_is_not_claimed_before_it_is_due(world):
    put(world, world.a_job("j1", not_before_ms=2000))
    assert claim(world, 1999) is None
    assert claim(world, 2000) is not None


def test_a_lease_that_ran_out_is_claimed_again_under_a_new_token_and_is_no_attempt(world):
    """§9: a machine that slept has not failed, however often."""
    put(world, world.a_job("j1"))
    first = claim(world, 1000, 100)
    assert claim(world, 1099) is None
    second = claim(world, 1100, 100)
    assert (second.token, second.attempts) == (first.token + 1, 1)
    third = world.write(lambda tx: tx.jobs.lease("j1", "w", 1200, 100))
    assert (third.token, third.attempts) == (first.token + 2, 1)


def test_a_new_owner_ends_every_lease_and_counts_what_was_attempted(world):
    """I7, §10: what an owner held that is gone is due at once; its late results are fenced."""
    tree = world.session("a")
    put(world, world.a_job("j1"), world.a_job("j2"))
    old = claim(world, 1000, 10**9)
    world.write(lambda tx: tx.jobs.put(world.a_job("j3"), [(tree, Span(0, 1))]))
    along = world.write(lambda tx: tx.jobs.lease("j3", "w", 1000, 10**9))
    assert world.write(lambda tx: tx.jobs.end_leases()) == 2
    assert world.write(lambda tx: tx.jobs.end_leases()) == 0
    assert not world.write(lambda tx: tx.jobs.finish("j1", old.token))
    assert not world.write(lambda tx: tx.jobs.finish("j3", along.token))
    assert (job(world, "j1").state, job(world, "j1").worker) == (JobState.READY, "")
    assert job(world, "j3").state is JobState.WAITING
    again = claim(world, 1000)
    assert (again.job_id, again.attempts) == ("j1", 2)


def test_a_result_under_an_older_token_is_fenced(world):
    put(world, world.a_job("j1"))
    old = claim(world, 1000, 100)
    new = claim(world, 2000, 100)
    assert not world.write(lambda tx: tx.jobs.renew("j1", old.token, 9999))
    assert not world.write(lambda tx: tx.jobs.finish("j1", old.token))
    assert not release(world, "j1", old.token)
    assert job(world, "j1") == new
    assert world.write(lambda tx: tx.jobs.finish("j1", new.token))


def test_a_late_result_is_good_while_nobody_claimed_the_job_again(world):
    put(world, world.a_job("j1"))
    taken = claim(world, 1000, 100)
    assert claim(world, 500) is None
    assert world.write(lambda tx: tx.jobs.finish("j1", taken.token))


def test_a_finished_job_cannot_be_finished_renewed_or_given_back(world):
    put(world, world.a_job("j1"))
    taken = claim(world)
    assert world.write(lambda tx: tx.jobs.finish("j1", taken.token))
    assert job(world, "j1").state is JobState.DONE
    assert not world.write(lambda tx: tx.jobs.finish("j1", taken.token))
    assert not world.write(lambda tx: tx.jobs.renew("j1", taken.token, 9999))
    assert not release(world, "j1", taken.token)
    assert not world.write(lambda tx: tx.jobs.finish("unknown", 1))
    assert claim(world, 10**9) is None


def test_renewing_extends_the_lease(world):
    put(world, world.a_job("j1"))
    taken = claim(world, 1000, 100)
    assert world.write(lambda tx: tx.jobs.renew("j1", taken.token, 5000))
    assert claim(world, 4999) is None
    assert claim(world, 5000) is not None


def test_a_released_job_is_ready_again_later_and_remembers_why(world):
    put(world, world.a_job("j1"))
    taken = claim(world)
    assert release(world, "j1", taken.token, at=3000, error="no answer")
    found = job(world, "j1")
    assert (found.state, found.error, found.worker) == (JobState.READY, "no answer", "")
    assert claim(world, 2999) is None
    again = claim(world, 3000)
    assert (again.token, again.attempts) == (2, 2)


def test_a_failed_job_stays_visible_and_is_not_claimed(world):
    put(world, world.a_job("j1"), world.a_job("j2"), world.a_job("j3"))
    for _ in range(2):
        taken = claim(world)
        assert release(world, taken.job_id, taken.token, error="bad", failed=True)
    assert [j.job_id for j in world.read(lambda tx: tx.jobs.failed(9))] == ["j2", "j1"]
    assert [j.job_id for j in world.read(lambda tx: tx.jobs.failed(1))] == ["j2"]
    assert claim(world).job_id == "j3"


def test_of_target_gives_the_newest_job(world):
    put(world, *(world.a_job(f"j{n}", target="t", input_hash=f"{n}") for n in range(3)))
    found = world.read(lambda tx: tx.jobs.of_target(JobKind.NODE, "t"))
    assert found.job_id == "j2"
    assert world.read(lambda tx: tx.jobs.of_target(JobKind.TURN, "t")) is None
    assert job(world, "unknown") is None


def test_counts_are_by_state_of_all_or_of_one_session(world):
    put(world, world.a_job("j1"), world.a_job("j2", session_id=None))
    put(world, world.a_job("j3"), waits_for=[(TREE, Span(0, 1))])
    claim(world)
    every = dict.fromkeys(JobState, 0)
    assert world.read(lambda tx: tx.jobs.counts()) == every | {
        JobState.LEASED: 1,
        JobState.READY: 1,
        JobState.WAITING: 1,
    }
    of_a = world.read(lambda tx: tx.jobs.counts(SessionId("a")))
    assert of_a == every | {JobState.LEASED: 1, JobState.WAITING: 1}
    assert world.read(lambda tx: tx.jobs.counts(SessionId("b"))) == every


def test_the_next_due_time_is_of_the_earliest_claimable_job(world):
    assert world.read(lambda tx: tx.jobs.next_due_ms()) is None
    put(world, world.a_job("j1"), waits_for=[(TREE, Span(0, 1))])
    assert world.read(lambda tx: tx.jobs.next_due_ms()) is None
    put(world, world.a_job("j2", not_before_ms=500))
    assert world.read(lambda tx: tx.jobs.next_due_ms()) == 500
    taken = claim(world, 500, 300)
    assert world.read(lambda tx: tx.jobs.next_due_ms()) == 800
    world.write(lambda tx: tx.jobs.finish("j2", taken.token))
    assert world.read(lambda tx: tx.jobs.next_due_ms()) is None


def test_a_job_enqueued_in_a_failed_transaction_was_never_there(world):
    """The outbox: what is to be done commits with what it follows from (§9)."""

    def work(tx):
        tx.turns.put(world.a_turn("t1"))
        tx.jobs.put(world.a_job("j1", kind=JobKind.TURN))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        world.write(work)
    assert job(world, "j1") is None
    assert claim(world) is None
    assert put(world, world.a_job("j1", kind=JobKind.TURN)) == [True]


def test_queues_are_served_in_turn(world):
    """A session with much to do does not keep the others waiting."""
    put(world, *(world.a_job(f"a{n}") for n in range(3)))
    put(world, world.a_job("b0", session_id=SessionId("b")))
    put(world, world.a_job("scope", session_id=None))
    order = [claim(world).job_id for _ in range(5)]
    assert order == ["a0", "b0", "scope", "a1", "a2"]


def test_a_claim_can_be_kept_to_scopes(world):
    other = ScopeId("project:other")
    put(world, world.a_job("a"), world.a_job("b", session_id=SessionId("b"), scope_id=other))
    taken = world.write(lambda tx: tx.jobs.claim("w", 0, 1, [other]))
    assert taken.job_id == "b"
    assert world.write(lambda tx: tx.jobs.claim("w", 0, 1, [])) is None
    assert world.write(lambda tx: tx.jobs.claim("w", 0, 1, [other, world.scope_id])).job_id == "a"


def test_a_certain_job_can_be_leased_to_go_along(world):
    put(world, world.a_job("due", not_before_ms=10**6))
    put(world, world.a_job("waits"), waits_for=[(TREE, Span(0, 1))])

    def lease(job_id: str):
        return world.write(lambda tx: tx.jobs.lease(job_id, "w", 1000, 100))

    for job_id in ("due", "waits"):
        taken = lease(job_id)
        assert (taken.state, taken.token, taken.lease_until_ms) == (JobState.LEASED, 1, 1100)
        assert lease(job_id) is None
    assert lease("unknown") is None
    # What misses a node is not claimed when its lease runs out, and waits again when given back.
    assert claim(world, 5000).job_id == "due"
    assert claim(world, 5000) is None
    assert release(world, "waits", 1)
    assert job(world, "waits").state is JobState.WAITING


def test_open_jobs_of_a_queue_come_oldest_first(world):
    put(world, world.a_job("j1"), world.a_job("other", session_id=SessionId("b")))
    put(world, world.a_job("j2"), waits_for=[(TREE, Span(0, 1))])
    put(world, world.a_job("j3"))
    claim(world)

    def open_in(limit: int) -> list[str]:
        return [j.job_id for j in world.read(lambda tx: tx.jobs.open_in("a", 0, limit))]

    assert open_in(9) == ["j2", "j3"]
    assert open_in(1) == ["j2"]


def test_hurrying_makes_due_what_was_put_off_and_not_tried(world):
    put(world, world.a_job("b", session_id=SessionId("b")))
    put(world, world.a_job("late", not_before_ms=9000), world.a_job("tried"))
    taken = world.write(lambda tx: tx.jobs.lease("tried", "w", 0, 10))
    release(world, "tried", taken.token, at=9000)
    assert world.write(lambda tx: tx.jobs.hurry("a", 1000, first=True)) == 1
    assert job(world, "tried").not_before_ms == 9000
    assert claim(world).job_id == "late"
    assert world.write(lambda tx: tx.jobs.hurry("a", 1000, first=False)) == 0


def test_a_postponed_job_keeps_its_attempts(world):
    put(world, world.a_job("j1"))
    taken = claim(world)
    assert not world.write(
        lambda tx: tx.jobs.postpone("j1", taken.token + 1, not_before_ms=0, error="")
    )
    assert world.write(
        lambda tx: tx.jobs.postpone("j1", taken.token, not_before_ms=3000, error="no budget")
    )
    found = job(world, "j1")
    assert (found.state, found.attempts, found.error) == (JobState.READY, 0, "no budget")
    assert claim(world, 3000).token == taken.token + 1


def test_failed_jobs_can_be_tried_again(world):
    put(world, world.a_job("j1"), world.a_job("j2"))
    for _ in range(2):
        taken = claim(world)
        release(world, taken.job_id, taken.token, error="bad", failed=True)
    assert world.write(lambda tx: tx.jobs.retry(1000, "j1")) == 1
    assert world.write(lambda tx: tx.jobs.retry(1000, "j1")) == 0
    found = job(world, "j1")
    assert (found.state, found.attempts, found.error) == (JobState.READY, 0, "")
    assert found.token == 1, "a result from before is still fenced"
    assert world.write(lambda tx: tx.jobs.retry(1000)) == 1


def test_a_redo_waits_for_the_next_commit_of_a_node_that_is_there(world):
    world.write(lambda tx: tx.trees.put_node(world.a_node(TREE, Span(0, 1))))
    again = [(TREE, Span(0, 1))]
    assert world.write(lambda tx: tx.jobs.redo(world.a_job("j1"), again))
    assert not world.write(lambda tx: tx.jobs.redo(world.a_job("j1"), again))
    assert job(world, "j1").state is JobState.WAITING
    assert world.write(lambda tx: tx.jobs.resolve(TREE, Span(0, 1))) == 1


def test_jobs_are_listed_by_state_newest_first(world):
    put(world, world.a_job("j1"), world.a_job("j2"), world.a_job("j3"))
    claim(world)

    def listed(state: JobState, limit: int) -> list[str]:
        return [j.job_id for j in world.read(lambda tx: tx.jobs.listed(state, limit))]

    assert listed(JobState.READY, 9) == ["j3", "j2"]
    assert listed(JobState.READY, 1) == ["j3"]
    assert listed(JobState.LEASED, 9) == ["j1"]
    assert listed(JobState.DONE, 9) == []
