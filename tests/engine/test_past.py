"""History from before the memory: published without a model, whole, and found (§3, §5)."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from optchat.core.records import RecordKind
from optchat.core.tree import NodeKind, ScopeTree, SessionTree
from optchat.engine.forget import forget_sessions, forget_turns
from optchat.engine.intake import Reading, reading_of, take_in
from optchat.engine.summarise import enqueue, wanted
from optchat.engine.tombstones import message_key
from optchat.refs import Span
from optchat.testing.scripted import ScriptedSession
from optchat.wire import DoctorRequest, OwnResult, SyncRequest, ToolRequest

LONG = "word " * 400
"""More than a leaf may repeat, so that it would take a model to summarise it."""


def reading(session: ScriptedSession, mark: str = "", *, idle: bool = True) -> Reading:
    request = SyncRequest(
        session=session.info,
        messages=list(session.messages),
        idle=idle,
        observed_ms=session.clock_ms,
    )
    return reading_of(request, mark or str(len(session.messages)), mask=True)


def taken(bench: Any, *sessions: ScriptedSession) -> list[Any]:
    readings = [reading(s) for s in sessions]
    return bench.store.write(lambda tx: take_in(tx, bench.deps, readings))


def past(bench: Any, name: str, turns: int, **options: Any) -> ScriptedSession:
    """A conversation that nobody has told of yet."""
    session = bench.session(name, **options)
    for number in range(turns):
        session.user(f"question {number} of {name}")
        tools = (("bash", {"command": f"ls {number}"}, LONG), ("edit", {"file": "a.py"}, "done"))
        session.assistant(f"{LONG} answer {number}", tools=tools, terminal="completed")
    return session


def tool(bench: Any, name: Any, **args: Any) -> Any:
    asked = ToolRequest(tool=name, args_json=json.dumps(args), directory="/project")
    return bench.service.tool(asked)


def whole(bench: Any) -> None:
    """Nothing is wrong by the doctor's word, and the shared view covers all there is."""
    assert bench.service.doctor(DoctorRequest(full=True)).faults == []


def busy(bench: Any) -> int:
    return sum(bench.counts().values())


def test_a_session_drafted_by_who_reads_it_is_sealed_as_one_that_is_drafted_here(make_bench):
    """§3: the same records, messages, turns and lines, whoever made out what they are."""
    found: list[Any] = []
    for is_drafted in (True, False):
        bench = make_bench()
        session = past(bench, "A", 3)
        session.user("and then?")
        read = reading(session, idle=False)
        assert read.draft is not None
        assert read.draft.turns[0].line
        read = read if is_drafted else msgspec.structs.replace(read, draft=None)
        bench.store.write(lambda tx, deps=bench.deps, one=read: take_in(tx, deps, [one]))
        tree = ScopeTree(bench.scope().scope_id)
        leaves = bench.read(lambda tx, tree=tree: tx.trees.leaves_from(tree, 0, 9))
        found.append((bench.state(), leaves, bench.held()))
    assert found[0] == found[1]


def test_a_session_of_which_something_was_forgotten_is_drafted_anew_and_no_other(bench):
    """I8: what was forgotten is not sealed again; the others go in as they were drafted."""
    sessions = past(bench, "A", 2), past(bench, "B", 2)
    info, gone = sessions[0].info, sessions[0].messages[0].id
    bench.store.write(lambda tx: tx.removals.bury(message_key(info.host, info.id, gone)))
    readings = [reading(session) for session in sessions]
    for read in readings:
        assert read.draft is not None
        read.draft.turns[1].line = "(history) as drafted"
    bench.store.write(lambda tx: take_in(tx, bench.deps, readings))
    tree = ScopeTree(bench.scope().scope_id)
    told = [leaf.text for leaf in bench.read(lambda tx: tx.trees.leaves_from(tree, 0, 9))]
    assert ["(history) as drafted" in text for text in told] == [False, False, False, True]
    assert "question 0 of A" not in tool(bench, "memory_search", query="question").output
    assert "question 0 of B" in tool(bench, "memory_search", query="question").output
    whole(bench)


def test_a_past_turn_is_published_at_once_under_a_line_that_only_names_it(bench):
    """§5, §10; I12: date, first words, counts; no job, no call, nothing in the meter."""
    taken(bench, past(bench, "A", 3))
    published = bench.publications()
    assert [p.seq for p in published] == [0, 1, 2]
    leaf = bench.read(lambda tx: tx.trees.leaves_from(ScopeTree(published[0].scope_id), 0, 10))[1]
    assert (leaf.kind, leaf.model) == (NodeKind.FALLBACK, "import")
    assert leaf.text.startswith("(history) 2023-11-14 asked: question 1 of A / 6 records, ")
    assert leaf.text.endswith("bash 1, edit 1")
    assert busy(bench) == 0
    assert bench.read(lambda tx: tx.ledger.spent(0).calls) == 0
    whole(bench)


def test_a_past_turn_leads_by_refs_down_to_its_exact_originals(bench):
    """I1: no node of it is made, and each range says what to open."""
    taken(bench, past(bench, "A", 2))
    opened = tool(bench, "memory_zoom", ref="pub:1")
    assert "(not summarised yet; zoom into it)" in opened.output
    originals: list[str] = []
    pending = list(opened.refs)
    while pending:
        ref = pending.pop(0)
        found = tool(bench, "memory_zoom", ref=ref)
        if "+" in ref:
            pending += found.refs
        else:
            originals.append(found.output)
    assert len(originals) == 6
    assert "question 1 of A" in originals[0]
    assert tool(bench, "memory_date", ref="pub:1").complete
    assert "question" in tool(bench, "memory_search", query="question").output


def test_taking_it_in_twice_changes_nothing(bench):
    """I5."""
    sessions = [past(bench, name, 3) for name in "AB"]
    taken(bench, *sessions)
    before = bench.state()
    taken(bench, *sessions)
    assert bench.state() == before


@pytest.mark.parametrize("count", [1, 2, 3, 64, 500])
def test_the_shared_view_stays_bounded_and_whole_without_any_model(bench, count):
    """§6, I2, I10: parents over the past are lines of its own kind."""
    taken(bench, *(past(bench, f"S{n}", 1) for n in range(count)))
    scope = bench.scope()
    view = bench.read(lambda tx: tx.trees.view(ScopeTree(scope.scope_id)))
    assert view.covered == count == scope.publications
    shown = sum(entry.line_bytes for entry in view.entries)
    assert shown <= bench.config.memory.shared_high_bytes
    assert busy(bench) == 0
    whole(bench)


def test_what_was_taken_in_goes_on_live_and_then_gets_its_summaries(bench):
    """§10: used again, a session's nodes are made like any other's."""
    session = past(bench, "A", 5)
    taken(bench, session)
    before = bench.records()
    session.turn("and now?", "more of it")
    assert bench.records()[: len(before)] == before
    assert bench.held().generation == 0
    assert busy(bench) > 0
    bench.drain()
    whole(bench)
    zoomed = tool(bench, "memory_zoom", ref="pub:0")
    assert "not summarised yet" not in zoomed.output
    assert [p.seq for p in bench.publications()] == list(range(6))


def test_a_session_that_is_only_told_of_again_costs_nothing(bench):
    """I12: the plugin looks at a session that nobody goes on with."""
    session = past(bench, "A", 3)
    taken(bench, session)
    session.sync(idle=True)
    assert busy(bench) == 0


def test_sessions_that_are_taken_in_together_are_published_as_one_after_the_other(make_bench):
    """§5, §6: the same lines, parents and view, whatever one transaction holds."""
    together, apart = make_bench(), make_bench()
    for bench, size in ((together, 30), (apart, 1)):
        told = [past(bench, f"A{number}", 1 + number % 4) for number in range(30)]
        for at in range(0, len(told), size):
            taken(bench, *told[at : at + size])
        whole(bench)

    def shared(bench: Any) -> Any:
        tree = ScopeTree(bench.scope().scope_id)
        count = bench.scope().publications
        spans = [
            Span(start, size)
            for size in (1, 2, 4, 8, 16, 32)
            for start in range(0, count - size + 1, size)
        ]
        nodes = bench.read(lambda tx: [tx.trees.node(tree, span) for span in spans])
        told = [(n.span, n.kind, n.label, n.text, n.input_hash) for n in nodes]
        return told, bench.read(lambda tx: tx.trees.view(tree)).entries

    assert len(together.publications()) == sum(1 + n % 4 for n in range(30))
    assert shared(together) == shared(apart)


def test_what_a_session_takes_back_stands_in_no_line_of_its_transaction(make_bench):
    """I8: another session's turn has just been given a parent over it."""
    bench = make_bench()
    rewound = past(bench, "quagga", 3)
    taken(bench, rewound)
    del rewound.messages[4:]
    rewound.clock_ms += 60_000
    other = past(bench, "B", 2)
    taken(bench, other, rewound)
    whole(bench)
    tree = ScopeTree(bench.scope().scope_id)
    for span in (Span(1, 1), Span(2, 1), Span(2, 2), Span(0, 4)):
        node = bench.read(lambda tx, span=span: tx.trees.node(tree, span))
        assert "2 of quagga" not in node.text, node


@pytest.mark.parametrize("name", ["memory_search", "recall"])
def test_a_result_of_ours_is_told_by_reference_whatever_it_was_called(make_bench, name):
    """§3: what it showed is other sessions' text."""
    bench = make_bench()
    session = past(bench, "A", 1)
    session.user("and before?")
    told = session.assistant("asking", tools=((name, {"query": "x"}, "quagga"),))
    assert told.parts is not None
    told.parts[-1].output = None
    told.parts[-1].own = OwnResult(refs=["pub:0"], snapshot="pub<1", sha256="ab" * 32)
    session.assistant("found", terminal="completed")
    taken(bench, session)
    session.turn("go on", "going on")
    bench.drain()
    [result] = [r for r in bench.records() if r.kind is RecordKind.TOOL_RESULT and r.tool == name]
    tree = SessionTree(result.session_id, result.generation)
    leaf = bench.read(lambda tx: tx.trees.node(tree, Span(result.seq, 1)))
    assert leaf.text == "(kept by reference)"


def test_a_session_that_was_taken_in_before_it_held_anything_goes_on_as_a_live_one(bench):
    """§3, §4: its host was just writing its first message; what comes has nodes at once."""
    session = bench.session("A")
    session.user("one")
    first = session.messages.pop()
    taken(bench, session)
    assert bench.records() == ()
    session.messages.append(first)
    session.assistant("two", terminal="completed")
    session.sync(idle=True)
    tree = SessionTree(bench.held().session_id, 0)
    assert bench.read(lambda tx: tx.sessions.generation(tree.session_id, 0)).unmade_from is None
    assert len(bench.read(lambda tx: tx.trees.leaves_from(tree, 0, 9))) == 2
    whole(bench)


def test_an_open_turn_that_was_taken_in_is_published_when_it_ends_live(bench):
    """§5: its first records have no nodes until then."""
    session = past(bench, "A", 2)
    session.user("unfinished")
    read = reading(session, idle=False)
    bench.store.write(lambda tx: take_in(tx, bench.deps, [read]))
    assert len(bench.publications()) == 2
    session.sync(idle=True)
    bench.drain()
    assert len(bench.publications()) == 3
    whole(bench)


def test_the_words_of_a_line_are_masked(bench):
    """§14: a request may begin with a secret."""
    session = bench.session("A")
    session.user("use postgres://app:kT9vqLw2Zx7@db.internal/orders for it")
    session.assistant("ok", terminal="completed")
    taken(bench, session)
    line = tool(bench, "memory_zoom", ref="pub:0").output.splitlines()[0]
    assert "asked: use postgres://app:[masked: " in line
    assert "kT9vqLw2Zx7" not in line


def test_what_a_fork_has_from_a_past_session_is_summarised_when_the_fork_is_used(bench):
    """§12: as far as the fork has it, and the rest of the origin stays as it is."""
    origin = past(bench, "A", 4)
    taken(bench, origin)
    fork = origin.fork("B", 4)
    fork.turn("another way", "found")
    bench.drain()
    whole(bench)
    origin.turn("and here?", "also")
    bench.drain()
    whole(bench)
    assert len(bench.publications()) == 6


@pytest.mark.parametrize("seed", range(40))
def test_any_mixture_of_past_and_present_is_whole(bench, seed):
    """I1, I2, I7: taken in, used, edited, forked, forgotten in any order; summarised at last."""
    dice = random.Random(seed)
    sessions = [past(bench, f"S{n}", dice.randint(1, 5)) for n in range(4)]
    for _ in range(14):
        session = dice.choice(sessions)
        match dice.randrange(8):
            case 0 | 1:
                taken(bench, *dice.sample(sessions, 2))
            case 2:
                session.turn("go on", "gone on")
            case 3:
                session.user("more")
                session.assistant(LONG, terminal="completed")
            case 4:
                session.edited(dice.randrange(len(session.messages)), "changed")
            case 5:
                count = dice.randrange(1, len(session.messages) + 1)
                sessions.append(session.fork(f"F{len(sessions)}", count))
            case 6:
                bench.drain(dice.randrange(10))
            case _:
                forget(bench, dice)
        whole(bench)
    taken(bench, *sessions)
    whole(bench)
    bench.drain()
    whole(bench)
    for session in sessions:
        session.turn("last", "said")
    bench.drain()
    whole(bench)
    bench.clock.advance(3_600_000)  # a job whose child was being made anew is tried again
    bench.drain()
    assert not [s for s in ("waiting", "ready", "leased", "failed") if bench.counts()[s]]


def forget(bench: Any, dice: random.Random) -> None:
    """A session or a turn, if there is one."""

    def work(tx: Any) -> None:
        held = tx.sessions.of_host("scripted")
        if not held:
            return
        session = dice.choice(held)
        if dice.random() < 0.3:
            forget_sessions(tx, bench.deps, [session], "s")
            return
        turns = [t for t in tx.turns.of_session(session.session_id) if t.outcome is not None]
        if turns:
            forget_turns(tx, bench.deps, [dice.choice(turns)], "t")

    bench.store.write(work)


def test_summarising_it_makes_each_line_once_and_nothing_else(bench):
    """§10: the publication's line is a new revision; what is over it follows."""
    taken(bench, *(past(bench, name, 4) for name in "ABC"))
    service = bench.service
    scope = bench.scope()
    tree = ScopeTree(scope.scope_id)

    def work(tx: Any) -> int:
        found = wanted(tx, scope, since_ms=0, directory=None, bytes_max=65_536)
        assert found.turns == 12
        return enqueue(tx, bench.deps, found)

    assert bench.store.write(work) == 12
    bench.drain()
    whole(bench)
    leaves = bench.read(lambda tx: tx.trees.leaves_from(tree, 0, 20))
    assert len(leaves) == 12
    assert {leaf.kind for leaf in leaves} == {NodeKind.SUMMARY}
    spans = [Span(at, count) for count in (2, 4, 8) for at in range(0, 12 - count + 1, count)]
    over = bench.read(lambda tx: [tx.trees.node(tree, span) for span in spans])
    assert {node.kind for node in over} <= {NodeKind.SUMMARY, NodeKind.VERBATIM}
    assert {node.revision for node in over} == {2}
    assert not [s for s in ("waiting", "ready", "leased", "failed") if bench.counts()[s]]
    found = bench.read(lambda tx: wanted(tx, scope, since_ms=0, directory=None, bytes_max=1))
    assert found.turns == 0
    assert (
        "| asked: question 0 of A / answered: word"
        in tool(bench, "memory_zoom", ref="pub:0").output
    )
    assert service.doctor(DoctorRequest()).faults == []
