"""What was forgotten is in no later read, whatever comes late (§12, I4, I8)."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from optchat.compactor import results
from optchat.config import Sharing
from optchat.core.records import Generation
from optchat.core.tree import ScopeTree, SessionTree, cover
from optchat.engine.erase import withdraw
from optchat.errors import BadInput, NotFound, OptChatError, SnapshotExpired
from optchat.refs import Span
from optchat.wire import DoctorRequest, ForgetRequest, ForgottenRequest, PresentRequest, ToolRequest
from tests.harness.remains import remains
from tests.harness.request_reader import check_sent

LONG = "and the reasons for it at some length, with all that was weighed " * 12


def forget(bench, what: str, name: str, **more):
    more.setdefault("directory", "/project")
    return bench.service.forget(ForgetRequest(what=what, name=name, **more))


def present(bench, ids, gone=(), store="a store", key="/project"):
    request = PresentRequest(
        host="scripted", store=store, project_key=key, ids=list(ids), gone=list(gone)
    )
    return bench.service.present(request)


def person(bench, tool: str, **args):
    """A call at the command line, or the error that it gave."""
    try:
        request = ToolRequest(tool=tool, args_json=json.dumps(args), directory="/project")
        return bench.service.tool(request).output
    except OptChatError as error:
        return error.message


def every_answer(bench) -> str:
    """All that can be read of the project: views, every ref there may be, search, the list."""
    scope = bench.scope()
    end = scope.publications if scope is not None else 0
    refs = [f"pub:{span}" for count in (1, 2, 4, 8) for span in _aligned(end, count)]
    refs += [f"s{n}:{g}:{seq}" for n in range(1, 6) for g in range(4) for seq in range(12)]
    refs += [f"s{n}:{g}:{seq}+2" for n in range(1, 6) for g in range(3) for seq in range(0, 12, 2)]
    told = [person(bench, "memory_zoom", ref=ref) for ref in refs]
    told += [person(bench, "memory_date", ref=ref) for ref in refs]
    told += [person(bench, "memory_sessions")]
    reader = bench.session(f"reader{bench.clock.now_ms()}")
    reader.user("what is known?")
    reader.sync()
    assembled = reader.assemble()
    check_sent(reader, assembled)
    return "\n".join([*told, assembled.base, *(n.text for n in assembled.news)])


def _aligned(end: int, count: int) -> list[Span]:
    return [Span(at, count) for at in range(0, end - count + 1, count)]


def gone(bench, *words: str) -> None:
    """No read and no byte on disk has any of the words, which were there before."""
    bench.drain()
    told = every_answer(bench)
    assert not [w for w in words if w in told]
    for word in words:
        assert "0 of" in person(bench, "memory_search", query=word), word
    bench.service.scrub_when_needed()
    assert remains(bench.folder, words, bench.folder.with_name("copy")) == {}


def two_sessions(bench) -> tuple:
    """A says apricot, banana and cherry; B is told of all of it."""
    a, b = bench.session("A", title="about aubergine"), bench.session("B")
    for word in ("apricot", "banana", "cherry"):
        a.turn(f"request {word}one", f"answer {word}two {LONG}")
        bench.drain()
        b.turn(f"other things {len(b.messages)}", f"were done {LONG}")
        bench.drain()
    return a, b


A_WORDS = ("apricotone", "apricottwo", "bananaone", "bananatwo", "cherryone", "cherrytwo")


# --- sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["s1", "A"])
def test_a_forgotten_session_is_in_no_later_read_and_no_byte(bench, name):
    """Views, zoom, search, date, sessions, counts, news, titles and payloads (I8)."""
    two_sessions(bench)
    assert "apricotone" in every_answer(bench)
    told = forget(bench, "session", name)
    assert told.removal.what == "session s1"
    assert {
        k: told.removal.counts[k] for k in ("sessions", "turns", "records", "publications")
    } == {
        "sessions": 1,
        "turns": 3,
        "records": 6,
        "publications": 3,
    }
    gone(bench, *A_WORDS, "aubergine")
    assert bench.held("A") is None
    assert "1 conversation" in person(bench, "memory_sessions") or "s2" in person(
        bench, "memory_sessions"
    )


def test_what_is_left_is_whole_and_leads_to_its_originals(bench):
    """The numbers of the rest hold; the tree over the gaps is made again (I1, I2)."""
    _, b = two_sessions(bench)
    forget(bench, "session", "s1")
    bench.drain()
    for seq in (1, 3, 5):
        assert "were done" in person(bench, "memory_zoom", ref=f"pub:{seq}")
        assert "names nothing" in person(bench, "memory_zoom", ref=f"pub:{seq - 1}")
    check_every_tree_is_whole(bench)
    scope = bench.scope()
    nodes = bench.read(
        lambda tx: [tx.trees.node(ScopeTree(scope.scope_id), s) for s in (Span(0, 2), Span(0, 4))]
    )
    assert all(node is not None for node in nodes)
    b.user("go on")
    b.sync()
    assembled = b.assemble()
    check_sent(b, assembled)
    assert assembled.notice is None


def test_forgetting_again_or_what_is_not_there_says_so_and_changes_nothing(bench):
    """An unknown session, an unknown ref, a range, no project: errors with a next step."""
    two_sessions(bench)
    forget(bench, "session", "s1")
    before = bench.state()
    for what, name in (
        ("session", "s1"),
        ("session", "A"),
        ("session", "nobody"),
        ("turn", "pub:0"),
    ):
        with pytest.raises(NotFound):
            forget(bench, what, name)
    with pytest.raises(NotFound):
        forget(bench, "turn", "s9:0:0")
    with pytest.raises(NotFound):
        forget(bench, "project", "/nowhere")
    with pytest.raises(BadInput):
        forget(bench, "turn", "pub:0+2")
    with pytest.raises(BadInput):
        forget(bench, "before", "yesterday-ish")
    assert bench.state() == before


def test_an_unknown_and_a_forgotten_ref_get_the_same_answer(bench):
    """No answer tells that something was there (I4)."""
    two_sessions(bench)
    forget(bench, "session", "s1")
    for tool in ("memory_zoom", "memory_date"):
        assert person(bench, tool, ref="s1:0:0") == "s1:0:0 names nothing in this memory."
        assert person(bench, tool, ref="s7:0:0") == "s7:0:0 names nothing in this memory."
        assert person(bench, tool, ref="pub:0") == "pub:0 names nothing in this memory."
        assert person(bench, tool, ref="pub:99") == "pub:99 names nothing in this memory."


@pytest.mark.parametrize(
    "what, name", [("session", "s1"), ("turn", "pub:2"), ("before", "2100-01-01")]
)
def test_a_dry_run_tells_what_the_real_run_does_and_writes_nothing(bench, what, name):
    two_sessions(bench)
    before = bench.state()
    tried = forget(bench, what, name, dry_run=True)
    assert tried.dry_run
    assert bench.state() == before
    assert bench.service.forgotten(ForgottenRequest()).removals == []
    done = forget(bench, what, name)
    assert not done.dry_run
    assert (done.removal, done.unreachable) == (tried.removal, tried.unreachable)


def test_the_log_shows_earlier_removals_without_a_word_of_them(bench):
    two_sessions(bench)
    first = forget(bench, "turn", "pub:2").removal
    bench.clock.advance(5_000)
    second = forget(bench, "session", "s1").removal
    assert bench.service.forgotten(ForgottenRequest()).removals == [second, first]
    assert bench.service.forgotten(ForgottenRequest(limit=1)).removals == [second]
    assert second.at_ms == first.at_ms + 5_000
    assert second.counts["turns"] == 2


def test_an_empty_scope_has_nothing_to_forget(bench):
    with pytest.raises(NotFound):
        forget(bench, "before", "2100-01-01")
    bench.session("A").sync()
    told = forget(bench, "before", "2100-01-01")
    assert not any(told.removal.counts.values())
    assert told.unreachable == []


def test_a_whole_project_goes_with_its_directory_and_scope(bench):
    two_sessions(bench)
    other = bench.session("O", directory="/other")
    other.turn("kept there", "as it was")
    bench.drain()
    told = forget(bench, "project", "/project", directory=None)
    assert told.removal.counts["sessions"] == 2
    bench.drain()
    words = (*A_WORDS, "aubergine", "/project")
    assert remains(bench.folder, words, bench.folder.with_name("copy")) == {}
    assert [s.name for s in bench.service.status().scopes] == ["/other"]
    assert bench.counts()["failed"] == 0
    assert (
        "kept there"
        in bench.service.tool(
            ToolRequest(tool="memory_zoom", args_json='{"ref": "pub:0"}', directory="/other")
        ).output
    )


# --- a turn in the middle -------------------------------------------------------------------------


@pytest.mark.parametrize("ref", ["pub:2", "s1:0:2", "s1:0:3"])
def test_a_turn_goes_out_of_the_middle_of_a_session_that_stays(bench, ref):
    """Positions and lineage stay whole; the session goes on, covered, without it (I2, I8)."""
    a, _ = two_sessions(bench)
    told = forget(bench, "turn", ref)
    assert told.removal.counts["turns"] == 1
    assert told.removal.counts["records"] == 2
    gone(bench, "bananaone", "bananatwo")
    check_every_tree_is_whole(bench)
    assert "apricotone" in person(bench, "memory_zoom", ref="s1:0:0")
    assert "cherrytwo" in person(bench, "memory_zoom", ref="s1:0:5")
    a.user("go on")
    a.sync()
    a.model = replace_window(a.model, 9_000)
    check_sent(a, a.assemble())


def replace_window(model, tokens: int):
    return type(model)(provider="fake", id=f"m{tokens}", context_tokens=tokens, output_tokens=1_000)


def test_a_forgotten_turn_stays_so_while_the_host_tells_of_it_again(bench):
    """Late, repeated and after an edit of an earlier message, which seals all that follows anew."""
    a, _ = two_sessions(bench)
    forget(bench, "turn", "pub:2")
    before = bench.state()
    a.sync(idle=True)
    assert bench.state() == before
    a.edited(1, "another answer than before")
    a.sync(idle=True)
    a.turn("one more", "of them")
    gone(bench, "bananaone", "bananatwo")
    assert "cherryone" in person(bench, "memory_search", query="cherryone")
    assert "another answer" in person(bench, "memory_search", query="another")


def test_an_edit_of_a_forgotten_message_is_of_no_interest(bench):
    """The host may change what is not remembered; nothing branches, nothing comes back."""
    a, _ = two_sessions(bench)
    forget(bench, "turn", "pub:2")
    generation = bench.held("A").generation
    a.edited(3, "bananaedited instead")
    a.sync(idle=True)
    assert bench.held("A").generation == generation
    gone(bench, "bananaone", "bananaedited")


def test_an_open_turn_is_not_forgotten_by_halves(bench):
    a, _ = two_sessions(bench)
    a.user("still going on")
    a.sync()
    with pytest.raises(BadInput, match="has not ended"):
        forget(bench, "turn", "s1:0:6")
    told = forget(bench, "before", "2100-01-01")
    assert told.removal.counts["turns"] == 6
    a.assistant("and ended", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    assert "and ended" in person(bench, "memory_search", query="ended")


def test_every_version_of_a_turn_goes(bench):
    """An edited request leaves its first form in an older generation: both are the turn (§12)."""
    a, _ = two_sessions(bench)
    a.edited(4, "request cherryedited")
    a.sync(idle=True)
    bench.drain()
    assert bench.held("A").generation == 1
    told = forget(bench, "turn", "s1:1:4")
    assert told.removal.counts["turns"] == 2
    gone(bench, "cherryone", "cherrytwo", "cherryedited")


def test_before_a_date_takes_what_ended_earlier_and_nothing_else(bench):
    a, _ = two_sessions(bench)
    cut = next(t for t in bench.turns("A") if t.key == a.messages[2].id).closed_ms + 1
    when = datetime.fromtimestamp(cut / 1000).astimezone().isoformat()
    told = forget(bench, "before", when)
    assert told.removal.counts["turns"] == sum(
        t.closed_ms < cut for n in "AB" for t in bench.turns(n)
    )
    gone(bench, "apricotone", "bananatwo")
    assert "cherryone" in person(bench, "memory_search", query="cherryone")


# --- what comes late ------------------------------------------------------------------------------


def test_a_late_event_does_not_bring_a_session_back(bench):
    """A host that still has it tells of it again: memory stays off for it, and says why (I5)."""
    a, _ = two_sessions(bench)
    forget(bench, "session", "s1")
    before = bench.state()
    answer = a.sync(idle=True)
    assert "forgotten" in answer.disabled
    assert answer.need == []
    a.user("hello again")
    assert "forgotten" in a.sync().disabled
    assembled = a.assemble()
    assert (assembled.state, assembled.base) == ("native", "")
    assert "forgotten" in assembled.notice
    assert bench.state() == before
    gone(bench, *A_WORDS)


@pytest.mark.parametrize("what", ["session", "turn"])
def test_a_late_summary_result_is_fenced(bench, what):
    """A leased job whose source is forgotten meanwhile commits nothing (I7)."""
    a = bench.session("A")
    a.turn("request apricotone", f"answer apricottwo {LONG}")
    job = bench.store.write(lambda tx: tx.jobs.claim("slow", bench.clock.now_ms(), 60_000))
    tree, span = results.target(job)
    record = bench.read(lambda tx: tx.records.record(tree, span.start))
    made = results.Made(text="apricotsummary", model="m", prompt_version="p")
    forget(bench, what, "s1" if what == "session" else "s1:0:0")
    assert not bench.store.write(lambda tx: results.commit_leaf(tx, bench.deps, job, record, made))
    gone(bench, "apricotone", "apricottwo", "apricotsummary")


def test_late_summaries_of_turns_and_ancestors_are_fenced(bench):
    """Every kind of job that was leased when its session went (I7)."""
    a, b = bench.session("A"), bench.session("B")
    for n in range(4):
        (a if n % 2 else b).turn(f"request apricot{n}", f"answer apricot{n} {LONG}")
    leased = []
    for _ in range(60):
        job = bench.store.write(lambda tx: tx.jobs.claim("slow", bench.clock.now_ms(), 60_000))
        if job is None:
            break
        leased.append(job)
    forget(bench, "session", "s1")
    for job in leased:
        kept = bench.read(lambda tx, j=job: tx.jobs.job(j.job_id))
        assert (kept is None) == (job.session_id != bench.held("A").session_id)
        if kept is None:
            assert not bench.store.write(lambda tx, j=job: tx.jobs.finish(j.job_id, j.token))


def test_a_turn_that_runs_on_an_older_snapshot_is_rebuilt_and_says_so(bench):
    """The retention epoch refuses the snapshot; a continuation gets a fresh one (§9, §12)."""
    _, b = two_sessions(bench)
    b.user("what did the other one say?")
    b.sync()
    first = b.assemble()
    assert first.notice is None
    assert "cherryone" in first.base + "".join(n.text for n in first.news)
    forget(bench, "session", "s1")
    with pytest.raises(SnapshotExpired):
        b.call("memory_search", query="cherryone")
    b.assistant(tools=(("bash", {"command": "ls"}, "files"),))
    b.sync()
    again = b.assemble()
    check_sent(b, again)
    assert "made anew" in again.notice
    told = again.base + "".join(n.text for n in again.news)
    assert not [word for word in A_WORDS if word in told]
    assert "0 of" in b.call("memory_search", query="cherryone").output
    assert b.assemble().notice is None
    assert b.assemble().base == again.base


# --- what cannot be reached -----------------------------------------------------------------------


def test_places_that_opened_or_repeat_it_are_named(bench):
    """The answer says where copies are that deletion does not erase (§12)."""
    _, b = two_sessions(bench)
    b.user("repeat it")
    b.assistant(
        "As was said: answer apricottwo and the reasons for it at some length, with all that was",
        terminal="completed",
    )
    b.sync(idle=True)
    place = f"s2:0:{bench.records('B')[-1].seq}"
    told = forget(bench, "session", "s1")
    assert place in told.removal.places
    assert any("places" in line for line in told.unreachable)
    assert any("sent already" in line for line in told.unreachable)


# --- what a host no longer has --------------------------------------------------------------------


def test_absence_from_a_list_only_asks_and_the_hosts_word_decides(bench):
    """An empty, partial or failed listing forgets nothing (§12)."""
    two_sessions(bench)
    before = bench.state()
    assert present(bench, []).missing == ["A", "B"]
    assert present(bench, ["B"]).missing == ["A"]
    assert bench.state() == before
    answer = present(bench, ["B"], gone=["A"])
    assert (answer.missing, answer.forgotten) == ([], 1)
    gone(bench, *A_WORDS)
    removal = bench.service.forgotten(ForgottenRequest()).removals[0]
    assert removal.what == "session s1, gone from the host"


def test_another_store_or_project_of_the_host_says_nothing_of_this_one(bench):
    two_sessions(bench)
    before = bench.state()
    for answer in (
        present(bench, [], gone=["A"], store="another store"),
        present(bench, [], gone=["A"], store=""),
        present(bench, [], gone=["A"], key="/another"),
        present(bench, ["A"], gone=["A"]),
    ):
        assert answer.forgotten == 0
        assert "A" not in answer.missing
    assert bench.state() == before


def test_a_subagents_session_goes_with_its_parent(make_bench):
    bench = make_bench(sharing=Sharing(subagents=True))
    two_sessions(bench)
    child = bench.session("child", parent="A")
    child.turn("do apricotchild", "done")
    bench.drain()
    told = forget(bench, "session", "s1")
    assert told.removal.counts["sessions"] == 2
    gone(bench, *A_WORDS, "apricotchild")


# --- forks ----------------------------------------------------------------------------------------


def fork(bench, name: str, base: SessionTree, inherited: int):
    """A session of the store whose history begins with ``inherited`` records of ``base``."""
    session = bench.session(name)
    session.sync()
    held = bench.held(name)
    bench.store.write(
        lambda tx: tx.sessions.put_generation(
            Generation(
                session_id=held.session_id,
                number=0,
                base=base,
                inherited=inherited,
                length=inherited,
            )
        )
    )
    return session


@pytest.fixture
def forked(make_bench):
    def make(forks: str):
        bench = make_bench(sharing=Sharing(forks=forks))
        a, _ = two_sessions(bench)
        a.edited(4, "request cherryedited")  # generation 1 begins after four records
        a.sync(idle=True)
        a.turn("request dateone", f"answer datetwo {LONG}")
        bench.drain()
        held = bench.held("A")
        assert held.generation == 1
        second = SessionTree(held.session_id, 1)
        f = fork(bench, "F", second, 6)
        g = fork(bench, "G", SessionTree(held.session_id, 0), 2)
        f.turn("fork figone", f"answer figtwo {LONG}")
        g.turn("fork grapeone", f"answer grapetwo {LONG}")
        bench.drain()
        return bench, f, g

    return make


def texts(bench, name: str) -> list[str]:
    return [bench.payload(r).decode().split(" and the")[0] for r in bench.history(name)]


def test_a_surviving_fork_keeps_its_inherited_prefix_whole(forked):
    """The rows become the fork's own: no ref is left without its rows, nothing is half (§12)."""
    bench, f, g = forked("keep")
    f_had, g_had = texts(bench, "F"), texts(bench, "G")
    told = forget(bench, "session", "A")
    assert told.removal.counts["sessions"] == 1
    assert texts(bench, "F") == f_had
    assert texts(bench, "G") == g_had
    gone(bench, "cherryone", "dateone", "datetwo", "aubergine")
    check_every_tree_is_whole(bench)
    for session in (f, g):
        session.user("go on")
        session.sync()
        answer = session.assemble()
        assert answer.state == "ready"
        assert "apricotone" in session.call("memory_search", query="apricotone", family=True).output
        ref = session.call("memory_search", query="apricotone", family=True).refs[0]
        assert "apricotone" in session.call("memory_zoom", ref=ref).output
        session.assistant("ok", terminal="completed")
        session.sync(idle=True)
    bench.drain()
    assert bench.counts()["failed"] == 0
    # The prefix is each fork's own memory; it was never published by it.
    assert "0 of" in person(bench, "memory_search", query="apricotone")


def test_a_fork_of_a_fork_survives_both(forked):
    bench, _, _ = forked("keep")
    held = bench.held("F")
    fork(bench, "H", SessionTree(held.session_id, 0), 7)
    had = texts(bench, "H")
    assert len(had) == 7
    forget(bench, "session", "A")
    forget(bench, "session", "F")
    assert texts(bench, "H") == had
    forget(bench, "session", "G")
    assert texts(bench, "H") == had
    check_every_tree_is_whole(bench)
    told = forget(bench, "session", "H")
    assert told.removal.counts["sessions"] == 1
    gone(bench, "apricotone", "apricottwo", "figone", "figtwo", "grapeone")


def test_a_fork_that_still_waits_for_summaries_gets_them(forked):
    """What was queued for the prefix is queued for its new owner (§10)."""
    bench, _, _ = forked("keep")
    a = bench.session("Q")
    a.turn(f"request quinceone {LONG}", f"answer quincetwo {LONG}")
    tree = SessionTree(bench.held("Q").session_id, 0)
    fork(bench, "K", tree, 2)
    forget(bench, "session", "Q")
    bench.drain()
    own = bench.held("K")
    renamed = SessionTree(own.session_id, 1)
    for span in (Span(0, 1), Span(1, 1), Span(0, 2)):
        assert bench.read(lambda tx, s=span: tx.trees.node(renamed, s)) is not None
    assert bench.counts()["failed"] == bench.counts()["waiting"] == 0


def test_a_fork_loses_the_prefix_where_the_policy_says_so(forked):
    bench, f, _ = forked("forget")
    forget(bench, "session", "A")
    gone(bench, *A_WORDS, "dateone", "cherryedited")
    assert [t.split()[1] for t in texts(bench, "F")] == ["figone", "figtwo"]
    assert [t.split()[1] for t in texts(bench, "G")] == ["grapeone", "grapetwo"]
    check_every_tree_is_whole(bench)
    f.user("go on")
    f.sync()
    assert f.assemble().state == "ready"


def test_a_turn_is_forgotten_in_the_forks_that_inherited_it(forked):
    """It is one record for all of them, and it goes for all of them."""
    bench, _, _ = forked("keep")
    forget(bench, "turn", "s1:0:0")
    gone(bench, "apricotone", "apricottwo")
    assert texts(bench, "F")[0].split()[1] == "bananaone"
    check_every_tree_is_whole(bench)


def test_a_fork_as_the_host_makes_it_goes_on_covered_without_its_origin(bench):
    """Its turns, its view and its place in the scope are its own already (§12, I2)."""
    a, _ = two_sessions(bench)
    child = a.fork("child")
    child.turn("fork figone", f"answer figtwo {LONG}")
    bench.drain()
    a.turn("request dateone", "after the fork")
    bench.drain()
    forget(bench, "session", "A")
    gone(bench, "dateone")  # the fork's title is its own, and has the origin's in it
    check_every_tree_is_whole(bench)
    child.user("go on")
    child.sync()
    check_sent(child, child.assemble())
    assert "apricotone" in child.call("memory_search", query="apricotone", family=True).output
    child.edited(3, "another answer, bananatwo as it was")  # a rewind into what was inherited
    child.sync()
    check_sent(child, child.assemble())
    child.assistant("ok", terminal="completed")
    child.sync(idle=True)
    bench.drain()
    check_every_tree_is_whole(bench)
    assert "0 of" in person(bench, "memory_search", query="apricotone")


@pytest.mark.parametrize("published", [False, True])
def test_a_fork_cut_inside_a_turn_publishes_only_its_own_part_of_it(bench, published):
    """What it has from a forgotten session is history, and never becomes work of its own (§5)."""
    a = bench.session("A")
    a.user("request apricotone")
    a.assistant(f"answer apricottwo {LONG}", tools=(("bash", {"n": 1}, "apricotout"),))
    a.sync()
    child = a.fork("child")
    child.sync()
    a.assistant("the end", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    if not published:
        forget(bench, "session", "A")
    child.assistant("figend", terminal="completed")
    child.sync(idle=True)
    bench.drain()
    if published:
        assert "asked: request apricotone" in every_answer(bench)
        forget(bench, "session", "A")
        bench.drain()
    told = every_answer(bench)
    assert "figend" in told
    assert not [w for w in ("apricotone", "apricottwo", "apricotout") if w in told]
    check_every_tree_is_whole(bench)


def test_a_fork_that_is_made_later_does_not_bring_a_forgotten_turn_back(bench):
    """The host copies the messages under new ids; they stay forgotten in the copy (I5)."""
    a, _ = two_sessions(bench)
    forget(bench, "turn", "pub:2")
    child = a.fork("child")
    child.turn("fork figone", "answer figtwo")
    gone(bench, "bananaone", "bananatwo")
    child.edited(1, "another first answer")  # all that follows is sealed anew
    child.sync(idle=True)
    gone(bench, "bananaone", "bananatwo")
    check_every_tree_is_whole(bench)


def check_every_tree_is_whole(bench) -> None:
    """Each generation's history is contiguous, and each of its nodes is there when all has run."""
    bench.drain()
    assert bench.service.doctor(DoctorRequest()).faults == []

    def work(tx):
        for scope in tx.sessions.scopes():
            for session in tx.sessions.sessions(scope.scope_id):
                for generation in tx.sessions.generations(session.session_id):
                    history = results.lineage(tx, generation.tree)
                    assert history.length == generation.length
                    at = 0
                    for piece in history.segments:
                        assert piece.start == at
                        at = piece.end_exclusive
                        assert tx.sessions.session(piece.tree.session_id) is not None
                    for span in cover(0, generation.length):
                        assert tx.trees.node(history.tree_of(span), span) is not None, span

    bench.read(work)


# --- revoking -------------------------------------------------------------------------------------


def test_withdrawn_publications_leave_the_scope_with_their_bytes(bench):
    """What stops being shared goes from every other session's memory; its own stays (§12)."""
    a, _ = two_sessions(bench)
    epoch = bench.scope().retention_epoch
    theirs = [p for p in bench.publications() if p.session_id == bench.held("A").session_id]
    bench.store.write(lambda tx: withdraw(tx, bench.deps, theirs))
    bench.drain()
    assert bench.scope().retention_epoch == epoch + 1
    told = every_answer(bench)
    assert not [word for word in A_WORDS if word in told]
    assert "0 of" in person(bench, "memory_search", query="apricotone")
    a.user("go on")
    a.sync()
    check_sent(a, a.assemble())
    assert "apricotone" in a.call("memory_search", query="apricotone", family=True).output
