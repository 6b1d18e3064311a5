"""A fork is a generation over its origin's: nothing copied, nothing published twice (§5, §12)."""

from __future__ import annotations

import pytest

from optchat.core.tree import SessionTree
from optchat.engine.sessions import own_lineage
from optchat.errors import NotFound
from tests.harness.request_reader import check_sent


def nodes_of(bench, name) -> int:
    """How many nodes the session's own trees hold."""

    def work(tx):
        held = tx.sessions.session_of_host("scripted", name)
        total = 0
        for number in range(held.generation + 1):
            tree = SessionTree(held.session_id, number)
            total += len(tx.trees.made_otherwise(tree, "nobody", "nothing"))
            own = own_lineage(tx, held).own_start(held.session_id)
            total += len(tx.trees.leaves_from(tree, own, 999))
        return total

    return bench.read(work)


@pytest.fixture
def parent(bench):
    a = bench.session()
    for index in range(6):
        a.turn(f"request {index}", f"answer {index} " + "and much more of it " * 40)
    bench.drain()
    return a


def test_a_fork_inherits_its_prefix_without_a_record_node_or_job_of_its_own(bench, parent):
    before = bench.read(lambda tx: (tx.records.count(), sum(tx.jobs.counts().values())))
    child = parent.fork("B")
    assert child.sync(idle=True).need == []
    assert bench.read(lambda tx: (tx.records.count(), sum(tx.jobs.counts().values()))) == before
    assert bench.records("B") == ()
    assert nodes_of(bench, "B") == 0
    assert [r.message_id for r in bench.history("B")] == [r.message_id for r in bench.history("A")]
    assert [bench.payload(r) for r in bench.history("B")] == [
        bench.payload(r) for r in bench.history("A")
    ]


def test_inherited_turns_are_not_published_again_and_new_ones_are(bench, parent):
    assert len(bench.publications()) == 6
    child = parent.fork("B")
    child.turn("in the fork", "done in the fork")
    bench.drain()
    found = bench.publications()
    assert [p.session_id == bench.held("B").session_id for p in found] == [False] * 6 + [True]
    assert (found[-1].start_seq, found[-1].end_seq_exclusive) == (12, 14)


def test_a_fork_s_request_holds_the_inherited_prefix_and_nothing_later_as_its_own(bench, parent):
    child = parent.fork("B", 8)
    parent.turn("later in the parent", "only the parent decided this")
    bench.drain()
    child.user("go on")
    child.sync()
    answer = child.assemble()
    check_sent(child, answer)
    own = answer.base.partition("<own_history")[2]
    assert "only the parent decided this" not in own
    news = "".join(n.text for n in answer.news)
    assert "only the parent decided this" in answer.base + news  # as what another session did


def test_refs_into_the_prefix_resolve_for_the_fork_in_its_own_name(bench, parent):
    child = parent.fork("B")
    child.user("go on")
    child.sync()
    child.assemble()
    number = bench.held("B").number
    for seq, record in enumerate(bench.history("A")):
        shown = child.call("memory_zoom", ref=f"s{number}:0:{seq}", max_tokens=8_000).output
        assert bench.payload(record).decode()[:40] in shown
    assert "answer 0" in child.call("memory_zoom", ref=f"s{number}:0:0+8").output
    with pytest.raises(NotFound):
        child.call("memory_zoom", ref=f"s{number}:0:12")


def test_a_parent_s_later_turns_are_foreign_to_the_fork(bench, parent):
    child = parent.fork("B", 4)
    parent.turn("a question for the parent", "the parent alone says xylophone")
    bench.drain()
    child.turn("a question for the fork", "the fork answers")
    bench.drain()
    child.user("?")
    child.sync()
    child.assemble()
    assert [bench.payload(r).decode() for r in bench.history("B")][4:6] == [
        "a question for the fork",
        "the fork answers",
    ]
    hits = child.call("memory_search", query="xylophone", family=True).output
    assert f"s{bench.held('A').number}:0:" in hits
    assert f"s{bench.held('B').number}:0:" not in hits


def test_the_origin_s_rewind_after_a_fork_leaves_the_fork_whole(bench, parent):
    child = parent.fork("B")
    child.turn("in the fork", "done")
    expected = [bench.payload(r) for r in bench.history("B")]
    parent.edited(3, "another answer")
    parent.sync(idle=True)
    bench.drain()
    assert [bench.payload(r) for r in bench.history("B")] == expected
    child.user("go on")
    child.sync()
    check_sent(child, child.assemble())


def test_a_fork_of_a_fork_and_a_fork_after_a_rewind_share_what_they_have_in_common(bench, parent):
    child = parent.fork("B", 6)
    child.turn("in B", "B did it")
    grandchild = child.fork("C")
    grandchild.turn("in C", "C did it")
    assert len(bench.records("C")) == 2
    assert [bench.payload(r).decode() for r in bench.history("C")][6:] == [
        "in B",
        "B did it",
        "in C",
        "C did it",
    ]
    del parent.messages[4:]
    parent.turn("another way", "after the rewind")
    late = parent.fork("D")
    late.turn("in D", "D did it")
    assert len(bench.records("D")) == 2
    bench.drain()
    for session in (child, grandchild, late):
        session.user("go on")
        session.sync()
        check_sent(session, session.assemble())


def test_a_fork_at_the_first_message_is_a_new_session_with_nothing_inherited(bench, parent):
    child = parent.fork("B", 0)
    child.turn("from the start", "anew")
    bench.drain()
    assert len(bench.records("B")) == 2
    assert bench.publications()[-1].start_seq == 0


def test_a_fork_in_the_middle_of_a_turn_publishes_only_what_it_did_itself(bench):
    a = bench.session()
    a.turn("first", "answered")
    a.user("a long task")
    a.assistant("step one of the parent", tools=(("bash", {"command": "make"}, "built"),))
    a.sync()
    a.assistant("step two of the parent", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    child = a.fork("B", 4)
    child.assistant("step two of the fork", terminal="completed")
    child.sync(idle=True)
    bench.drain()
    last = bench.publications()[-1]
    assert last.session_id == bench.held("B").session_id
    kept = len(bench.history("B")) - 1
    assert (last.start_seq, last.end_seq_exclusive) == (kept, kept + 1)
    assert all(part.tree.session_id == last.session_id for part in last.cover)


def test_a_rewind_in_a_fork_into_its_prefix_leaves_the_origin_alone(bench, parent):
    child = parent.fork("B")
    child.turn("in the fork", "done")
    bench.drain()
    theirs = bench.publications()[:6]
    del child.messages[5:]
    child.turn("back in the prefix", "another way")
    bench.drain()
    found = bench.publications()
    assert found[:6] == theirs
    assert found[6].died is not None
    assert (found[7].start_seq, found[7].died) == (5, None)
    assert [bench.payload(r).decode() for r in bench.history("B")][5:] == [
        "back in the prefix",
        "another way",
    ]
    child.user("go on")
    child.sync()
    check_sent(child, child.assemble())


def test_copied_turns_of_an_unknown_origin_are_sealed_and_not_published(bench, parent):
    """The host keeps no link: where none was found, the copy's times still tell (§5)."""
    child = parent.fork("B", known=False)
    child.turn("in the fork", "done")
    bench.drain()
    assert len(bench.records("B")) == 14
    assert [p.session_id for p in bench.publications()].count(bench.held("B").session_id) == 1


def test_an_origin_that_is_not_known_here_or_has_other_content_gives_nothing(bench, parent):
    child = parent.fork("B")
    child.fork_of = "nobody"
    child.sync(idle=True)
    assert len(bench.records("B")) == 12
    other = parent.fork("C")
    other.edited(0, "other words from the start")
    other.sync(idle=True)
    assert len(bench.records("C")) == 12


def test_a_fork_of_ten_thousand_records_takes_fewer_than_fifty_statements(bench):
    """No new node for the prefix, whatever its length (§12)."""
    a = bench.session()
    for index in range(5_000):
        a.user(f"request {index}")
        a.assistant(f"answer {index}", terminal="completed")
    for end in range(2_000, 10_001, 2_000):
        messages, a.messages = a.messages, a.messages[:end]
        a.sync(idle=True)
        a.messages = messages
    a.user("a first request with memory")
    a.sync()
    a.assemble()
    del a.messages[-1]
    child = a.fork("B")
    started = bench.store.statements
    child.sync(idle=True)
    assert bench.store.statements - started < 50  # it was 37
    assert len(bench.history("B")) == 10_000
