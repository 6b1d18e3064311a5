"""Removing rows: all of what is named, nothing else, and what is left keeps its place (§12, I8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optchat.core.publications import CoverPart
from optchat.core.records import Fold, Generation, Pin, RecordKind
from optchat.core.scopes import Project
from optchat.core.tree import NodeKind, ScopeTree, SessionTree
from optchat.core.views import Entry, View
from optchat.errors import IntegrityError
from optchat.refs import Csn, FoldId, ProjectId, SessionId, Span, TurnId
from optchat.storage.ports import (
    Chunk,
    JobKind,
    JobState,
    ModelCall,
    Removal,
    SharedBase,
)
from tests.harness.found import searchable, summaries

B = SessionTree(SessionId("b"), 3)


def generation(world, tree: SessionTree, **more) -> Generation:
    made = Generation(session_id=tree.session_id, number=tree.generation, **more)
    world.write(lambda tx: tx.sessions.put_generation(made))
    return made


# --- records and payloads -------------------------------------------------------------------------


def test_removed_records_go_with_their_text_and_the_positions_stay_taken(world):
    a = world.session("a")
    world.seal(a, "apple", "banana", "cherry", "date")
    world.publish(a, 0, 4)
    payloads = world.write(lambda tx: tx.records.remove(a, 1, 3))
    assert len(payloads) == 2
    assert [r.seq for r in world.read(lambda tx: tx.records.range(a, 0, 9))] == [0, 3]
    assert world.search(world.now(), "banana", "date") == {f"{a}:3": {"date"}}
    visibility = world.now()
    assert world.read(lambda tx: searchable(tx, visibility)) == 2
    assert world.seal(a, "elder") == (4,)
    assert world.write(lambda tx: tx.records.remove(a, 1, 3)) == ()


def test_only_payloads_that_no_record_refers_to_are_dropped(world):
    a, b = world.session("a"), world.session("b")
    world.seal(a, "shared", "alone")
    world.seal(b, "shared")
    kept, gone = (r.payload for r in world.read(lambda tx: tx.records.range(a, 0, 2)))
    chunk = Chunk(
        payload=gone, plan="p", level=0, position=0, start=0, end_exclusive=5, read=5, text="a line"
    )
    world.write(lambda tx: tx.chunks.put(chunk))

    def work(tx) -> int:
        return tx.blobs.drop_unused(tx.records.remove(a, 0, 2))

    assert world.write(work) == 1
    assert world.read(lambda tx: tx.blobs.size(kept)) == 6
    assert world.read(lambda tx: tx.chunks.of(gone, "p")) == ()
    with pytest.raises(IntegrityError):
        world.read(lambda tx: tx.blobs.size(gone))
    assert world.write(lambda tx: tx.blobs.drop_unused([gone, kept])) == 0


def test_moved_records_are_the_other_tree_s_with_their_text_and_keys(world):
    a = world.session("a")
    world.session("b")
    world.seal(a, "apple", "banana", "cherry")
    generation(world, B, length=2)
    world.write(lambda tx: tx.records.move(a, B, 2))
    moved = world.read(lambda tx: tx.records.range(B, 0, 9))
    assert [(r.session_id, r.generation, r.seq) for r in moved] == [("b", 3, 0), ("b", 3, 1)]
    assert [r.seq for r in world.read(lambda tx: tx.records.range(a, 0, 9))] == [2]
    world.publish(B, 0, 2)
    assert world.search(world.now(), "apple", "cherry") == {f"{B}:0": {"apple"}}


def test_own_results_are_those_of_the_memory_tools_and_their_aliases(world):
    a = world.session("a")
    payload = world.write(lambda tx: tx.blobs.put(b"{}"))
    for seq, (kind, tool) in enumerate(
        (
            (RecordKind.TOOL_RESULT, "memory_zoom"),
            (RecordKind.TOOL_CALL, "memory_zoom"),
            (RecordKind.TOOL_RESULT, "memoryzoom"),
            (RecordKind.TOOL_RESULT, "bash"),
            (RecordKind.TOOL_RESULT, "memory_search"),
            (RecordKind.TOOL_RESULT, "recall_get"),
        )
    ):
        record = world.a_record(a, seq, kind=kind, tool=tool, payload=payload)
        world.write(lambda tx, r=record: tx.records.append([r], [b""]))
    found = world.read(lambda tx: tx.records.own_results(a.session_id))
    assert [r.seq for r in found] == [0, 4, 5]


# --- trees ----------------------------------------------------------------------------------------


def node(world, tree, span, revision=1, **more):
    made = world.a_node(tree, span, revision, **more)
    world.write(lambda tx: tx.trees.put_node(made))
    return made


def test_a_removed_node_goes_in_every_revision_and_out_of_the_index(world):
    a = world.session("a")
    world.seal(a, "x", "y")
    world.publish(a, 0, 2)
    node(world, a, Span(0, 2), 1, text="apricot once", died=Csn(1))
    node(world, a, Span(0, 2), 2, text="apricot again")
    node(world, a, Span(0, 1), 1, text="apricot kept")

    def hits(tx):
        return {span for _, span, _ in summaries(tx, visibility, "apricot")}

    visibility = world.now()
    assert world.read(hits) == {Span(0, 2), Span(0, 1)}
    assert world.write(lambda tx: tx.trees.remove_node(a, Span(0, 2))) == 2
    assert world.read(hits) == {Span(0, 1)}
    assert world.read(lambda tx: tx.trees.last_revision(a, Span(0, 2))) == 0
    assert world.write(lambda tx: tx.trees.remove_node(a, Span(0, 2))) == 0


def test_a_removed_tree_leaves_other_trees_alone(world):
    a, scope = world.session("a"), ScopeTree(world.scope_id)
    for tree in (a, scope):
        node(world, tree, Span(0, 1))
        view = View(revision=1, entries=(Entry(Span(0, 1), 1, 10, 3),))
        world.write(lambda tx, t=tree, v=view: tx.trees.put_view(t, v, Csn(1)))
    assert world.write(lambda tx: tx.trees.remove_tree(a)) == 1
    assert world.read(lambda tx: tx.trees.view(a)) == View()
    assert world.read(lambda tx: tx.trees.node(a, Span(0, 1))) is None
    assert world.read(lambda tx: tx.trees.view(scope)).covered == 1
    assert world.read(lambda tx: tx.trees.node(scope, Span(0, 1))) is not None


def test_moved_nodes_are_those_that_end_in_time(world):
    a = world.session("a")
    world.session("b")
    for span in (Span(0, 1), Span(1, 1), Span(0, 2), Span(2, 1), Span(0, 4)):
        node(world, a, span, kind=NodeKind.VERBATIM)
    world.write(lambda tx: tx.trees.move(a, B, 2))
    moved = [world.read(lambda tx, s=s: tx.trees.node(B, s)) for s in (Span(0, 1), Span(0, 2))]
    assert [n.tree for n in moved] == [B, B]
    assert world.read(lambda tx: tx.trees.node(a, Span(0, 2))) is None
    assert world.read(lambda tx: tx.trees.node(a, Span(2, 1))) is not None
    assert world.read(lambda tx: tx.trees.node(a, Span(0, 4))) is not None


# --- publications and what was rendered -----------------------------------------------------------


def test_a_removed_publication_keeps_its_number_taken(world):
    a = world.session("a")
    world.seal(a, "apple", "banana")
    world.publish(a, 0, 1)
    second = world.publish(a, 1, 2)
    world.write(lambda tx: tx.publications.remove(world.scope_id, 0))
    assert world.read(lambda tx: tx.publications.range(world.scope_id, 0, 9)) == (second,)
    assert world.read(lambda tx: tx.publications.completed(world.scope_id, 0, 9)) == (20, 20)
    assert world.read(lambda tx: tx.publications.completed(world.scope_id, 0, 1)) is None
    assert world.search(world.now(), "apple") == {}
    assert world.publish(a, 0, 1).seq == 2


def test_every_publication_of_a_turn_is_found_the_retired_ones_too(world):
    a = world.session("a")
    world.seal(a, "apple")
    made = world.publish(a, 0, 1)
    world.write(lambda tx: tx.publications.retire(world.scope_id, 0, tx.meta.next_csn()))
    assert world.read(lambda tx: tx.publications.of_turn(made.turn_id)) is None
    (found,) = world.read(lambda tx: tx.publications.of_turn_ever(made.turn_id))
    assert (found.seq, found.died is None) == (0, False)


def test_covers_follow_the_tree_that_was_renamed(world):
    a = world.session("a")
    world.session("b")
    world.seal(a, "apple", "banana")
    made = world.publish(a, 0, 2)
    generation(world, B)
    world.write(lambda tx: tx.publications.move_covers(a, B))
    found = world.read(lambda tx: tx.publications.publication(world.scope_id, made.seq))
    assert found == replace(made, cover=(CoverPart(B, Span(0, 2)),))


def test_what_was_rendered_of_a_scope_goes_and_of_another_stays(world):
    other = type(world.scope_id)("project:other")
    world.session("a")
    world.session("b", other)
    for name, scope_id in (("a", world.scope_id), ("b", other)):
        pin = Pin(
            scope_id=scope_id,
            csn=1,
            publication_end=0,
            policy_revision=1,
            retention_epoch=1,
            own_generation=0,
            own_end=0,
        )
        turn = world.a_turn(name, session_id=SessionId(name), news=f"news of {name}", pin=pin)
        fold = Fold(
            fold_id=FoldId(name),
            session_id=SessionId(name),
            generation=0,
            pin=pin,
            boundary=0,
            first_turn_key="k",
            publication_end=0,
            shared_text="shared",
            own_text="own",
            window="w",
            cause="first",
        )
        base = SharedBase(
            scope_id=scope_id,
            csn=Csn(1),
            publication_end=0,
            policy_revision=1,
            retention_epoch=1,
            text="base",
        )
        world.write(
            lambda tx, t=turn, f=fold, b=base: (
                tx.turns.put(t),
                tx.folds.put(f),
                tx.folds.put_shared_base(b),
            )
        )
    assert world.write(lambda tx: tx.folds.remove_rendered(world.scope_id)) == 3

    def left(tx):
        return [
            (
                tx.turns.turn(TurnId(name)).news,
                tx.folds.fold(FoldId(name)) is not None,
                tx.folds.shared_base(scope_id) is not None,
            )
            for name, scope_id in (("a", world.scope_id), ("b", other))
        ]

    assert world.read(left) == [("", False, False), ("news of b", True, True)]
    assert world.write(lambda tx: tx.folds.remove_rendered(world.scope_id)) == 0


# --- sessions -------------------------------------------------------------------------------------


def test_a_removed_session_goes_with_its_generations_and_its_number_stays_taken(world):
    world.session("a")
    world.session("b")
    base = SessionTree(SessionId("a"), 0)
    begun = generation(world, SessionTree(SessionId("b"), 1), base=base, inherited=0)
    assert world.read(lambda tx: tx.sessions.derived(base)) == (begun,)
    assert [g.number for g in world.read(lambda tx: tx.sessions.generations(SessionId("b")))] == [
        0,
        1,
    ]
    world.write(lambda tx: tx.sessions.remove_session(SessionId("a")))
    assert world.read(lambda tx: tx.sessions.session(SessionId("a"))) is None
    assert world.read(lambda tx: tx.sessions.generations(SessionId("a"))) == ()
    assert world.read(lambda tx: tx.sessions.generation(SessionId("b"), 1)) == begun
    world.session("c")
    assert world.read(lambda tx: tx.sessions.session(SessionId("c"))).number == 3


def test_a_project_lists_its_sessions_and_can_go(world):
    project = Project(project_id=ProjectId("p1"), host="h", host_key="k", directory="/d")
    world.write(lambda tx: tx.sessions.put_project(project))
    world.session("b")
    world.session("a")
    found = world.read(lambda tx: tx.sessions.of_project(ProjectId("p1")))
    assert [s.session_id for s in found] == ["a", "b"]
    assert world.read(lambda tx: tx.sessions.of_project(ProjectId("p2"))) == ()
    world.write(lambda tx: tx.sessions.remove_project(ProjectId("p1")))
    world.write(lambda tx: tx.sessions.remove_scope(world.scope_id))
    assert world.read(lambda tx: (tx.sessions.projects(), tx.sessions.scopes())) == ((), ())


def test_an_adopted_generation_stays_marked(world):
    world.session("a")
    made = generation(world, SessionTree(SessionId("a"), 1), length=3, adopted=True)
    assert world.read(lambda tx: tx.sessions.generation(SessionId("a"), 1)) == made


# --- jobs and money -------------------------------------------------------------------------------


def test_jobs_of_a_target_and_of_a_queue_go_in_every_state(world):
    world.session("a")
    for name in "abc":
        world.write(lambda tx, n=name: tx.jobs.put(world.a_job(n)))
    claimed = world.write(lambda tx: tx.jobs.claim("w", 1, 1_000))
    assert world.write(lambda tx: tx.jobs.remove(JobKind.NODE, claimed.target)) == 1
    assert not world.write(lambda tx: tx.jobs.finish(claimed.job_id, claimed.token))
    done = world.write(lambda tx: tx.jobs.claim("w", 1, 1_000))
    assert world.write(lambda tx: tx.jobs.finish(done.job_id, done.token))
    left = world.write(lambda tx: tx.jobs.remove_queue("a"))
    assert [job.state for job in left] == [JobState.READY]
    assert not any(world.read(lambda tx: tx.jobs.counts()).values())


def test_what_waits_follows_the_tree_that_was_renamed(world):
    a = world.session("a")
    world.session("b")
    world.write(lambda tx: tx.jobs.put(world.a_job("x"), [(a, Span(0, 1)), (a, Span(1, 1))]))
    world.write(lambda tx: tx.jobs.move_waits(a, B))
    assert world.write(lambda tx: tx.jobs.resolve(a, Span(0, 1))) == 0
    assert world.write(lambda tx: tx.jobs.resolve(B, Span(0, 1))) == 0
    assert world.write(lambda tx: tx.jobs.resolve(B, Span(1, 1))) == 1


def test_calls_keep_their_money_and_lose_whose_they_were(world):
    for name, turn in (("1", "t1"), ("2", "t2")):
        call = ModelCall(
            call_id=name,
            at_ms=5,
            day="d",
            purpose="leaf",
            model="m",
            scope_id=world.scope_id,
            session_id=SessionId("a"),
            turn_id=TurnId(turn),
            input_tokens=7,
        )
        world.write(lambda tx, c=call: tx.ledger.open(c))
    world.write(lambda tx: tx.ledger.disown(turn_id=TurnId("t1")))
    assert world.read(lambda tx: tx.ledger.spent(0, turn_id=TurnId("t1"))).calls == 0
    assert [n for n, _ in world.read(lambda tx: tx.ledger.table("session", 0))] == ["a"]
    world.write(lambda tx: tx.ledger.disown(session_id=SessionId("a")))
    assert [n for n, _ in world.read(lambda tx: tx.ledger.table("session", 0))] == [""]
    assert world.read(lambda tx: tx.ledger.spent(0)).input_tokens == 14
    assert world.read(lambda tx: tx.ledger.spent(0, turn_id=TurnId("t2"))).calls == 0


# --- tombstones and the log -----------------------------------------------------------------------


def test_tombstones_last_and_removals_are_listed_newest_first(world):
    assert not world.read(lambda tx: tx.removals.has_buried())
    world.write(lambda tx: (tx.removals.bury("k"), tx.removals.bury("k")))
    assert world.read(lambda tx: tx.removals.has_buried())
    assert world.read(lambda tx: tx.removals.buried(("k", "j"))) == {"k"}
    first = Removal(at_ms=1, what="one", counts={"records": 2}, places=("s1:0:3",))
    second = Removal(at_ms=2, what="two", counts={})
    world.write(lambda tx: tx.removals.log(first))
    world.write(lambda tx: tx.removals.log(second))
    assert world.read(lambda tx: tx.removals.logged(9)) == (second, first)
    assert world.read(lambda tx: tx.removals.logged(1)) == (second,)


def test_a_scrubbed_store_is_as_it_was(world):
    a = world.session("a")
    world.seal(a, "apple", "banana")
    world.publish(a, 0, 2)
    world.write(lambda tx: tx.records.remove(a, 0, 1))
    assert world.store.scrub()
    assert world.search(world.now(), "apple", "banana") == {f"{a}:1": {"banana"}}
    assert world.seal(a, "cherry") == (2,)
