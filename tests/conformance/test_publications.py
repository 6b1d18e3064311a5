"""Publications are numbered once and without gaps; folds and shared bases (§5, §9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optchat.core.publications import CoverPart
from optchat.core.records import Fold, Generation, Outcome, Pin
from optchat.core.tree import SessionTree, cover
from optchat.errors import Conflict, IntegrityError
from optchat.refs import Csn, FoldId, ScopeId, SessionId, TurnId
from optchat.storage.ports import SharedBase

A = SessionTree(SessionId("a"), 0)
B = SessionTree(SessionId("b"), 2)


@pytest.fixture(autouse=True)
def generations(world) -> None:
    """What covers are made from."""
    for tree in (A, B):
        made = Generation(session_id=tree.session_id, number=tree.generation)
        world.write(lambda tx, made=made: tx.sessions.put_generation(made))


def append(world, publication) -> bool:
    return world.write(lambda tx: tx.publications.append(publication))


def test_a_publication_comes_back_whole_with_its_cover_in_order(world):
    world.scope()
    parts = (CoverPart(B, cover(3, 4)[0]), *(CoverPart(A, span) for span in cover(4, 11)))
    made = world.a_publication(
        A, 0, start_seq=3, end_seq_exclusive=11, outcome=Outcome.FAILED, cover=parts
    )
    assert append(world, made)
    assert world.read(lambda tx: tx.publications.publication(world.scope_id, 0)) == made
    assert world.read(lambda tx: tx.publications.publication(world.scope_id, 1)) is None
    assert world.read(lambda tx: tx.publications.publication(ScopeId("x"), 0)) is None


def test_a_publication_from_an_unknown_generation_is_an_integrity_error(world):
    """I1."""
    world.scope()
    unknown = SessionTree(SessionId("a"), 7)
    with pytest.raises(IntegrityError):
        append(world, world.a_publication(unknown, 0))
    assert append(world, world.a_publication(A, 0))


def test_numbers_follow_each_other_and_the_scope_counts_them(world):
    world.scope()
    assert append(world, world.a_publication(A, 0))
    assert append(world, world.a_publication(A, 1))
    for wrong in (0, 1, 3):
        with pytest.raises(Conflict):
            append(world, world.a_publication(A, wrong))
    scope = world.read(lambda tx: tx.sessions.scope(world.scope_id))
    assert scope is not None
    assert scope.publications == 2


def test_each_scope_numbers_for_itself(world):
    other = ScopeId("project:other")
    world.scope()
    world.scope(other)
    assert append(world, world.a_publication(A, 0))
    assert append(world, world.a_publication(B, 0, scope_id=other))


def test_a_publication_of_an_unknown_scope_is_a_conflict(world):
    with pytest.raises(Conflict):
        append(world, world.a_publication(A, 0))


def test_a_turn_is_published_once_whatever_number_the_replay_has(world):
    """I5."""
    world.scope()
    made = world.a_publication(A, 0)
    assert append(world, made)
    assert not append(world, made)
    assert not append(world, replace(made, seq=1, published_ms=99))
    world.write(lambda tx: tx.publications.retire(world.scope_id, 0, Csn(9)))
    assert not append(world, replace(made, seq=1))
    scope = world.read(lambda tx: tx.sessions.scope(world.scope_id))
    assert scope is not None
    assert scope.publications == 1


def test_publications_in_a_row_are_appended_together_or_not_at_all(world):
    """I5."""
    world.scope()
    made = [world.a_publication(A, seq, turn_id=TurnId(f"t{seq}")) for seq in range(4)]

    def append_many(*publications) -> None:
        world.write(lambda tx: tx.publications.append_many(publications))

    append_many()
    append_many(made[0])
    unknown = SessionTree(SessionId("a"), 7)
    for wrong, error in (
        ((replace(made[0], seq=1), made[2]), Conflict),
        ((made[1], replace(made[1], seq=2)), Conflict),
        ((made[1], made[3]), Conflict),
        ((made[2], made[1]), Conflict),
        ((made[1], world.a_publication(unknown, 2)), IntegrityError),
    ):
        with pytest.raises(error):
            append_many(*wrong)
    append_many(*made[1:])
    found = world.read(lambda tx: tx.publications.range(world.scope_id, 0, 9))
    assert list(found) == made
    assert world.read(lambda tx: tx.sessions.scope(world.scope_id)).publications == 4


def test_the_same_turn_in_another_generation_is_another_publication(world):
    world.scope()
    made = world.a_publication(A, 0)
    assert append(world, made)
    assert append(world, replace(made, seq=1, generation=1))


def test_of_turn_gives_the_live_one(world):
    world.scope()
    made = world.a_publication(A, 0, turn_id=TurnId("t"))
    append(world, made)
    assert world.read(lambda tx: tx.publications.of_turn(TurnId("t"))) == made
    later = replace(made, seq=1, generation=1, born=Csn(4))
    append(world, later)
    assert world.read(lambda tx: tx.publications.of_turn(TurnId("t"))) == later
    world.write(lambda tx: tx.publications.retire(world.scope_id, 1, Csn(5)))
    assert world.read(lambda tx: tx.publications.of_turn(TurnId("t"))) == made
    assert world.read(lambda tx: tx.publications.of_turn(TurnId("u"))) is None


def test_a_range_includes_the_retired(world):
    world.scope()
    made = [world.a_publication(A, n) for n in range(4)]
    for publication in made:
        append(world, publication)
    world.write(lambda tx: tx.publications.retire(world.scope_id, 2, Csn(7)))
    found = world.read(lambda tx: tx.publications.range(world.scope_id, 1, 4))
    assert found == (made[1], replace(made[2], died=Csn(7)), made[3])


def test_retiring_again_or_what_is_not_there_changes_nothing(world):
    world.scope()
    append(world, world.a_publication(A, 0))
    for seq, csn in ((0, 7), (0, 8), (5, 9)):
        world.write(lambda tx, s=seq, c=csn: tx.publications.retire(world.scope_id, s, Csn(c)))
    found = world.read(lambda tx: tx.publications.publication(world.scope_id, 0))
    assert found is not None
    assert found.died == 7


def test_a_fold_comes_back_whole_and_is_replaced(world):
    pin = Pin(
        scope_id=world.scope_id,
        csn=1,
        publication_end=2,
        policy_revision=3,
        retention_epoch=4,
        own_generation=0,
        own_end=6,
    )
    fold = Fold(
        fold_id=FoldId("f"),
        session_id=SessionId("a"),
        generation=0,
        pin=pin,
        boundary=5,
        first_turn_key="m5",
        publication_end=2,
        shared_text="<shared>\n",
        own_text="<own>\n",
        window="200000/8000",
        cause="tail",
        made_ms=7,
    )
    world.write(lambda tx: tx.folds.put(fold))
    assert world.read(lambda tx: tx.folds.fold(FoldId("f"))) == fold
    changed = replace(fold, coverage="partial")
    world.write(lambda tx: tx.folds.put(changed))
    assert world.read(lambda tx: tx.folds.fold(FoldId("f"))) == changed
    assert world.read(lambda tx: tx.folds.fold(FoldId("g"))) is None
    for fold_id, session in (("g", fold.session_id), ("h", SessionId("another"))):
        other = replace(fold, fold_id=FoldId(fold_id), session_id=session)
        world.write(lambda tx, f=other: tx.folds.put(f))
    kept = [FoldId("f"), FoldId("unknown")]
    assert world.write(lambda tx: tx.folds.prune(fold.session_id, kept)) == 1
    found = [world.read(lambda tx, f=f: tx.folds.fold(FoldId(f))) for f in "fgh"]
    assert [f is not None for f in found] == [True, False, True]


def test_a_scope_has_one_shared_base_the_newest(world):
    base = SharedBase(
        scope_id=world.scope_id,
        csn=Csn(3),
        publication_end=2,
        policy_revision=1,
        retention_epoch=1,
        text="<shared>",
    )
    assert world.read(lambda tx: tx.folds.shared_base(world.scope_id)) is None
    world.write(lambda tx: tx.folds.put_shared_base(base))
    newer = replace(base, csn=Csn(9), text="newer")
    world.write(lambda tx: tx.folds.put_shared_base(newer))
    assert world.read(lambda tx: tx.folds.shared_base(world.scope_id)) == newer


def test_the_publication_of_a_record_is_found_after_it_was_retired_and_not_before_it_was_born(
    world,
):
    """§12: what a reader could see once, and nothing that it never could (I4)."""
    tree = world.session("a")
    world.seal(tree, "zero", "one", "two")
    before = world.now()
    first, second = world.publish(tree, 0, 2), world.publish(tree, 2, 3)

    def find(visibility, seq):
        return world.read(lambda tx: tx.publications.covering(visibility, tree.session_id, 0, seq))

    assert [find(before, seq) for seq in (0, 2)] == [None, None]
    assert [find(world.now(), seq) for seq in (0, 1, 2, 3)] == [first, first, second, None]
    csn = world.write(lambda tx: tx.meta.next_csn())
    world.write(lambda tx: tx.publications.retire(first.scope_id, first.seq, csn))
    assert find(world.now(), 1) == replace(first, died=csn)
    assert find(world.now(publication_end=1), 2) is None
