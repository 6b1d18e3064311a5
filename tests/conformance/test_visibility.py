"""I3 and I4: what a snapshot sees, in search, counts and session lists (§8, §9, §11)."""

from __future__ import annotations

from dataclasses import replace

from optchat.core.records import Generation, Lineage, Segment
from optchat.core.tree import NodeKind, ScopeTree, SessionTree
from optchat.refs import Csn, ScopeId, SessionId, Span
from tests.harness import found
from tests.harness.found import searchable


def own(*segments: Segment) -> Lineage:
    return Lineage(segments)


def test_nothing_unpublished_is_seen_by_others(world):
    tree = world.session("a")
    world.seal(tree, "a secret", "another secret")
    assert world.search(world.now(), "secret") == {}
    now = world.now()
    assert world.read(lambda tx: searchable(tx, now)) == 0


def test_a_published_record_is_found_and_its_unpublished_neighbour_is_not(world):
    tree = world.session("a")
    world.seal(tree, "broker zero", "broker one", "broker two")
    world.publish(tree, 1, 2)
    assert world.search(world.now(), "broker") == {"g:a:0:1": {"broker"}}


def test_a_snapshot_does_not_see_later_publications(world):
    tree = world.session("a")
    world.seal(tree, "broker zero", "broker one")
    world.publish(tree, 0, 1)
    before = world.now()
    world.publish(tree, 1, 2)
    assert world.search(before, "broker") == {"g:a:0:0": {"broker"}}
    assert len(world.search(world.now(), "broker")) == 2


def test_the_number_and_the_commit_must_both_be_within_the_snapshot(world):
    tree = world.session("a")
    world.seal(tree, "broker zero")
    made = world.publish(tree, 0, 1)
    now = world.now()
    assert world.search(replace(now, publication_end=0), "broker") == {}
    assert world.search(replace(now, csn=Csn(made.born - 1)), "broker") == {}


def test_a_retired_publication_is_seen_before_its_end_and_never_after(world):
    tree = world.session("a")
    world.seal(tree, "broker zero")
    made = world.publish(tree, 0, 1)
    before = world.now()
    world.write(lambda tx: tx.publications.retire(made.scope_id, made.seq, tx.meta.next_csn()))
    assert world.search(world.now(), "broker") == {}
    assert world.search(before, "broker") == {"g:a:0:0": {"broker"}}


def test_another_scope_sees_nothing(world):
    tree = world.session("a")
    other = ScopeId("project:other")
    world.session("b", other)
    world.seal(tree, "broker zero")
    world.publish(tree, 0, 1)
    assert world.search(replace(world.now(), scope_id=other), "broker") == {}


def test_own_records_are_seen_up_to_the_boundary_without_being_published(world):
    tree = world.session("a")
    world.seal(tree, "broker zero", "broker one", "broker two")
    reader = world.now(session_id=SessionId("a"), own=own(Segment(tree, 0, 2)))
    assert set(world.search(reader, "broker")) == {"g:a:0:0", "g:a:0:1"}


def test_a_fork_sees_the_inherited_prefix_and_not_its_parents_later_records(world):
    parent = world.session("a")
    world.seal(parent, "broker zero", "broker one", "broker two")
    world.session("b")
    child = SessionTree(SessionId("b"), 1)
    world.write(
        lambda tx: tx.sessions.put_generation(
            Generation(session_id=child.session_id, number=1, base=parent, inherited=2, length=2)
        )
    )
    world.seal(child, "broker of the child")
    reader = world.now(own=own(Segment(parent, 0, 2), Segment(child, 2, 3)))
    assert set(world.search(reader, "broker")) == {"g:a:0:0", "g:a:0:1", "g:b:1:2"}


def test_a_record_that_is_own_and_published_is_one_hit(world):
    tree = world.session("a")
    world.seal(tree, "broker zero")
    world.publish(tree, 0, 1)
    reader = world.now(own=own(Segment(tree, 0, 1)))
    assert world.search(reader, "broker") == {"g:a:0:0": {"broker"}}
    assert world.read(lambda tx: searchable(tx, reader)) == 1


def test_searchable_counts_what_is_visible_and_has_text(world):
    tree = world.session("a")
    world.seal(tree, "zero", "one", "", "three", "four")
    world.publish(tree, 1, 4)
    now = world.now()
    assert world.read(lambda tx: searchable(tx, now)) == 2
    reader = replace(now, own=own(Segment(tree, 0, 2)))
    assert world.read(lambda tx: searchable(tx, reader)) == 3


def test_visible_count_counts_published_own_records_of_the_range(world):
    tree = world.session("a")
    world.seal(tree, *(f"record {n}" for n in range(20)))
    world.publish(tree, 3, 11)
    made = world.publish(tree, 12, 17)
    now = world.now()

    def count(start: int, end: int, visibility=now) -> int:
        return world.read(lambda tx: tx.publications.visible_count(visibility, tree, start, end))

    assert count(0, 20) == 13
    assert count(0, 4) == 1
    assert count(5, 7) == 2
    assert count(11, 12) == 0
    assert count(0, 0) == 0
    assert count(10, 1000) == 6
    assert count(0, 20, replace(now, publication_end=made.seq)) == 8
    # The reader's own unpublished records are not counted: they are no publication's.
    assert count(0, 20, replace(now, own=own(Segment(tree, 0, 20)))) == 13


def test_visible_count_counts_a_record_that_two_publications_cover_once(world):
    tree = world.session("a")
    world.seal(tree, "zero", "one", "two", "three")
    world.publish(tree, 0, 4)
    world.publish(tree, 2, 4)
    now = world.now()
    assert world.read(lambda tx: tx.publications.visible_count(now, tree, 0, 8)) == 4


def test_a_cover_in_the_base_tree_makes_the_base_records_visible(world):
    base = world.session("a")
    world.seal(base, "broker zero", "broker one")
    rewound = SessionTree(SessionId("a"), 1)
    world.write(
        lambda tx: tx.sessions.put_generation(
            Generation(session_id=base.session_id, number=1, base=base, inherited=1, length=1)
        )
    )
    world.publish(rewound, 0, 1, cover_of=base)
    assert set(world.search(world.now(), "broker")) == {"g:a:0:0"}


def test_visible_sessions_tell_only_of_what_is_visible(world):
    a, b = world.session("a"), world.session("b")
    world.session("silent")
    world.seal(a, "zero", "one")
    world.seal(b, "zero")
    world.publish(a, 0, 1, opened_ms=100, completed_ms=110)
    world.publish(b, 0, 1, opened_ms=200, completed_ms=210)
    before = world.now()
    world.publish(a, 1, 2, opened_ms=300, completed_ms=310)

    def shown(visibility):
        found = world.read(lambda tx: tx.publications.visible_sessions(visibility))
        return [(session.session_id, *rest) for session, *rest in found]

    assert shown(before) == [("b", 1, 200, 210), ("a", 1, 100, 110)]
    assert shown(world.now()) == [("a", 2, 100, 310), ("b", 1, 200, 210)]


def test_of_session_gives_visible_publications_newest_first_below_a_number(world):
    a, b = world.session("a"), world.session("b")
    world.seal(a, "zero", "one", "two")
    world.seal(b, "zero")
    world.publish(a, 0, 1)
    world.publish(b, 0, 1)
    world.publish(a, 1, 2)
    last = world.publish(a, 2, 3)
    world.write(lambda tx: tx.publications.retire(last.scope_id, 2, tx.meta.next_csn()))
    now = world.now()

    def numbers(before: int | None, limit: int) -> list[int]:
        found = world.read(lambda tx: tx.publications.of_session(now, a.session_id, before, limit))
        return [p.seq for p in found]

    assert numbers(None, 10) == [3, 0]
    assert numbers(None, 1) == [3]
    assert numbers(3, 10) == [0]
    assert numbers(0, 10) == []
    assert numbers(None, 0) == []


def test_every_record_of_a_long_cover_is_found_and_nothing_beside_it(world):
    tree = world.session("a")
    world.seal(tree, *(f"broker {n}" for n in range(40)))
    world.publish(tree, 5, 38)  # 5, 6+2, 8+8, 16+16, 32+4, 36+2
    hits = world.search(world.now(), "broker")
    assert set(hits) == {f"{tree}:{n}" for n in range(5, 38)}
    now = world.now()
    assert world.read(lambda tx: searchable(tx, now)) == 33


def test_retired_since_tells_whether_a_snapshot_lost_something(world):
    tree = world.session("a")
    world.seal(tree, "zero", "one")
    world.publish(tree, 0, 1)
    world.publish(tree, 1, 2)

    def since(csn: int, before: int) -> bool:
        return world.read(
            lambda tx: tx.publications.retired_since(world.scope_id, Csn(csn), before)
        )

    assert not since(0, 99)
    world.write(lambda tx: tx.publications.retire(world.scope_id, 1, tx.meta.next_csn()))
    assert since(2, 2)
    assert not since(2, 1), "it was not in the snapshot"
    assert not since(3, 2), "the snapshot was taken after it had gone"
    other = ScopeId("project:other")
    assert not world.read(lambda tx: tx.publications.retired_since(other, Csn(0), 99))


def summaries(world, visibility, *told: str, **more) -> dict[str, set[str]]:
    hits = world.read(lambda tx: found.summaries(tx, visibility, *told, **more))
    return {f"{tree}#{span}": matched for (tree, span, _), matched in hits.items()}


def test_a_summary_is_found_when_all_below_it_is_visible(world):
    tree = world.session("a")
    world.seal(tree, *"abcdefgh")
    shared = ScopeTree(world.scope_id)
    for node in (
        world.a_node(tree, Span(0, 2), text="the broker was chosen"),
        world.a_node(tree, Span(2, 2), text="the broker was built"),
        world.a_node(tree, Span(4, 4), text="the broker was dropped"),
        world.a_node(tree, Span(0, 1), text="broker", kind=NodeKind.VERBATIM),
        world.a_node(tree, Span(1, 1), text="broker", kind=NodeKind.FALLBACK),
        world.a_node(shared, Span(0, 1), text="a broker"),
        world.a_node(shared, Span(0, 2), text="a broker and more"),
    ):
        world.write(lambda tx, node=node: tx.trees.put_node(node))
    world.publish(tree, 0, 3)
    now = world.now()
    assert summaries(world, now, "broker") == {
        "g:a:0#0+2": {"broker"},
        "p:project:p1#0": {"broker"},
    }
    member = replace(now, own=own(Segment(tree, 2, 8)))
    assert set(summaries(world, member, "broker")) == {
        "g:a:0#0+2",
        "g:a:0#2+2",
        "g:a:0#4+4",
        "p:project:p1#0",
    }
    assert set(summaries(world, now, "broker", excluded=("chosen",))) == {"p:project:p1#0"}
    assert summaries(world, replace(now, csn=Csn(0)), "broker") == {}


def test_a_retired_summary_is_found_by_older_snapshots_only(world):
    tree = world.session("a")
    world.seal(tree, "zero", "one")
    world.publish(tree, 0, 2)
    world.write(lambda tx: tx.trees.put_node(world.a_node(tree, Span(0, 2), text="broker")))
    before = world.now()
    world.write(lambda tx: tx.trees.retire_node(tree, Span(0, 2), tx.meta.next_csn()))
    assert summaries(world, world.now(), "broker") == {}
    assert set(summaries(world, before, "broker")) == {"g:a:0#0+2"}
