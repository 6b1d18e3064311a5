"""A session's scope: settled at its next turn, chosen by a person, withdrawn at once (§11, §12)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from optchat.config import Sharing
from optchat.engine.deps import Deps
from optchat.errors import BadInput, NotFound, SnapshotExpired
from optchat.wire import FollowRequest, ShareRequest, ToolRequest

PROFILE = Sharing(profiles={"work": ["/project", "/other"]})


def restart(bench: Any, sharing: Sharing) -> None:
    """The coordinator starts again with another config.toml."""
    bench.config = msgspec.structs.replace(bench.config, sharing=sharing)
    bench.deps = Deps(bench.config, bench.clock, bench.ids)
    bench.service.deps = bench.service.requests.deps = bench.deps
    bench.reopen()
    bench.service.start()


def told(bench: Any, session: Any, asked: str, answered: str) -> Any:
    found = session.turn(asked, answered)
    bench.drain()
    return found


def sent(answer: Any) -> str:
    """All memory in a request."""
    return answer.base + "".join(block.text for block in answer.news)


def choose(bench: Any, session: str, sharing: str | None) -> Any:
    return bench.service.share(ShareRequest(session=session, sharing=sharing))


def scope_id(bench: Any, name: str = "A") -> str:
    return bench.held(name).scope_id


def shown(bench: Any, scope: str, tool: str, **args: Any) -> Any:
    """What a person sees of a scope now."""
    request = ToolRequest(tool=tool, args_json=json.dumps(args), scope=scope)
    return json.loads(bench.service.tool(request).data_json)


# --- the rules change ---


def test_a_changed_rule_takes_a_session_along_at_its_next_turn_and_never_within_one(bench):
    """§11: deterministic configuration; a turn stays where it opened, its publication too."""
    a = bench.session("A")
    told(bench, a, "one", "answer one")
    project = scope_id(bench)
    a.user("two")
    a.sync()
    before = a.assemble()
    restart(bench, PROFILE)
    assert a.assemble() == before
    a.assistant("answer two", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    assert scope_id(bench) == project
    assert [p.turn_id for p in bench.publications()] == [t.turn_id for t in bench.turns()]

    told(bench, a, "three", "answer three")
    assert scope_id(bench) == "profile:work"
    assert [len(bench.publications(name)) for name in ("/project", "work")] == [2, 1]
    assert [t.scope_id for t in bench.turns()] == [project, project, "profile:work"]


def test_what_was_published_before_stays_there_under_its_number_and_is_not_in_the_new_scope(bench):
    """§11: the old scope's readers keep what they were given, the new one gets what comes."""
    old, a, c = bench.session("old"), bench.session("A"), bench.session("C", directory="/third")
    told(bench, old, "first", "number one")
    told(bench, a, "zebra one", "answer one")
    restart(bench, Sharing(profiles={"work": ["/project/a", "/third"]}))
    told(bench, c, "hello", "hi")
    a.directory = "/project/a"
    told(bench, a, "zebra two", "answer two")

    sessions = shown(bench, "/project", "memory_sessions")["sessions"]
    assert {(s["session"], s["turns"]) for s in sessions} == {("s1", 1), ("s2", 1)}
    assert shown(bench, "/project", "memory_zoom", ref="pub:1")["session"] == "s2"
    assert "zebra one" in shown(bench, "/project", "memory_zoom", ref="s2:0:0")["text"]
    hits = shown(bench, "/project", "memory_search", query="zebra", session="s2")["hits"]
    assert [h["ref"] for h in hits] == ["s2:0:0"]
    # In the profile it is a member like any other, with its new number and its new turn alone.
    assert bench.held("A").number == 2
    hits = shown(bench, "work", "memory_search", query="zebra")["hits"]
    assert [h["ref"] for h in hits if h["ref"].startswith("s")] == ["s2:0:2"]
    with pytest.raises(NotFound):
        shown(bench, "work", "memory_zoom", ref="s2:0:0")
    # And back: the number that it had is its own.
    restart(bench, Sharing())
    told(bench, a, "zebra three", "answer three")
    assert (scope_id(bench), bench.held("A").number) == (scope_id(bench, "old"), 2)
    assert [p.seq for p in bench.publications() if p.session_id == bench.held("A").session_id] == [
        1,
        2,
    ]


def test_a_session_that_moved_reads_its_new_scope_and_its_own_whole_history(bench):
    """§9, §12: the snapshot of the old scope is refused, the next request takes a fresh one."""
    a, b, c = bench.session("A"), bench.session("B"), bench.session("C", directory="/other")
    told(bench, b, "lemur", "of the project")
    told(bench, a, "mine", "my answer")
    told(bench, c, "ocelot", "of the other")
    restart(bench, PROFILE)
    told(bench, c, "ocelot again", "of the profile")
    a.user("next")
    a.sync()
    with pytest.raises(SnapshotExpired):
        a.call("memory_search", query="lemur", family=True)
    memory = sent(a.assemble())
    assert "of the profile" in memory
    assert "of the project" not in memory
    assert "of the other" not in memory
    found = json.loads(a.call("memory_search", query="lemur mine ocelot", family=True).data_json)
    refs = sorted(h["ref"] for h in found["hits"] if h["ref"].startswith("s"))
    assert refs == ["s1:0:2", "s2:0:0"]
    assert a.call("memory_zoom", ref="s2:0:0").output.count("mine") == 1


def test_a_late_summary_is_published_where_its_turn_was(bench):
    """§5: the turn belongs to the scope in which it opened, however long its summary takes."""
    a = bench.session("A")
    a.turn("one", "answer one")
    project = scope_id(bench)
    restart(bench, PROFILE)
    a.turn("two", "answer two")
    bench.drain()
    assert [p.turn_id for p in bench.publications()] == [bench.turns()[0].turn_id]
    assert [p.turn_id for p in bench.publications("work")] == [bench.turns()[1].turn_id]
    assert shown(bench, project, "memory_sessions")["total"] == 1


def test_an_edit_after_a_move_retires_the_superseded_turn_where_it_was_published(bench):
    a, b = bench.session("A"), bench.session("B")
    told(bench, a, "one", "answer one")
    restart(bench, Sharing(profiles={"work": ["/project/a"]}))
    a.directory = "/project/a"
    told(bench, a, "two", "answer two")
    a.edited(0, "changed")
    told(bench, a, "three", "answer three")
    assert [p.died is None for p in bench.publications()] == [False]
    assert "answer one" not in sent(told(bench, b, "hello", "hi"))


# --- the host calls a project otherwise ---


def test_a_project_whose_key_changes_keeps_its_memory_for_all_its_sessions(bench):
    """§11: a stable project; its folder has become a repository, or has another origin."""
    a, b = bench.session("A", project="dir:/project"), bench.session("B", project="dir:/project")
    told(bench, a, "one", "answer one")
    told(bench, b, "two", "answer two")
    before = scope_id(bench)
    a.project = "prj_1"
    assert bench.service.follow(FollowRequest(session=a.info)).known
    new = bench.session("C", directory="/project/sub", project="prj_1")
    assert "answer two" in sent(told(bench, new, "hello", "hi"))
    b.project = "prj_1"
    told(bench, b, "more", "answer more")
    assert {scope_id(bench, name) for name in "ABC"} == {before}
    assert len(bench.read(lambda tx: tx.sessions.projects())) == 1


def test_a_session_in_another_folder_is_in_another_project_and_takes_no_memory_along(bench):
    """§11: that its key is new says nothing of those that stayed."""
    a, b = bench.session("A", directory="/a"), bench.session("B", directory="/a")
    told(bench, a, "one", "answer one")
    told(bench, b, "two", "answer two")
    a.directory = a.project = "/b"
    bench.service.follow(FollowRequest(session=a.info))
    assert bench.held("A").project_id != bench.held("B").project_id
    assert "answer one" not in sent(told(bench, bench.session("C", directory="/b"), "hi", "ho"))
    assert "answer one" in sent(told(bench, bench.session("D", directory="/a"), "hi", "ho"))


def test_a_project_that_is_known_by_its_new_key_already_is_left_as_it_is(bench):
    """Two memories are not made one: a session that is now the other's leaves its turns behind."""
    a, b = bench.session("A", project="prj_1"), bench.session("B", project="prj_2")
    told(bench, a, "one", "answer one")
    told(bench, b, "two", "answer two")
    a.project = "prj_2"
    told(bench, a, "three", "answer three")
    assert scope_id(bench, "A") == scope_id(bench, "B")
    seen = sent(told(bench, bench.session("C", project="prj_2"), "hello", "hi"))
    assert "answer three" in seen
    assert "answer one" not in seen


# --- isolation ---


@pytest.mark.parametrize("how", ["command", "rules"])
def test_what_is_isolated_is_withdrawn_at_once_from_everybody(bench, how):
    """§12: revoking is immediate, though the session itself may never have another turn."""
    a, b = bench.session("A"), bench.session("B")
    a.sync()
    a.directory = "/project/a"
    told(bench, a, "kept by a", "quagga")
    b.user("look")
    b.sync()
    assert "quagga" in sent(b.assemble())
    refs = ("pub:0", "s1:0:0", "s1:0:0+2")
    assert all(b.call("memory_zoom", ref=ref) for ref in refs)
    scope = bench.scope()
    if how == "command":
        assert choose(bench, "A", "isolated").withdrawn == 1
    else:
        restart(bench, Sharing(isolated=["/project/a"]))
    moved = bench.scope()
    assert moved.policy_revision == scope.policy_revision + 1
    assert moved.retention_epoch == scope.retention_epoch + 1
    # The running turn of B: its snapshot is refused, and the next request has a fresh one.
    with pytest.raises(SnapshotExpired):
        b.call("memory_search", query="quagga", family=True)
    assert "quagga" not in sent(b.assemble())
    for ref in refs:
        with pytest.raises(NotFound, match=f"{re.escape(ref)} names nothing") as refused:
            b.call("memory_zoom", ref=ref)
        assert refused.value.code == "not_found"
    assert (
        json.loads(b.call("memory_search", query="quagga", family=True).data_json)["records"] == 0
    )
    assert json.loads(b.call("memory_sessions").data_json)["total"] == 0


def test_an_isolated_session_reads_nothing_of_others_and_keeps_its_own_from_its_next_turn_on(bench):
    """§11: neither publishes nor reads; the running turn goes on as it began, unpublished."""
    a, b = bench.session("A"), bench.session("B")
    told(bench, b, "lemur", "of B")
    told(bench, a, "one", "answer one")
    a.user("two")
    a.sync()
    a.assemble()
    assert choose(bench, "A", "isolated").withdrawn == 1
    assert bench.held("A").scope_id == scope_id(bench, "B")
    assert "of B" in sent(a.assemble())
    a.assistant("answer two", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    last = told(bench, a, "three", "answer three")
    assert bench.held("A").isolated
    assert bench.held("A").number == 1
    assert "of B" not in sent(last)
    assert [p.session_id for p in bench.publications()] == [bench.held("B").session_id]
    found = json.loads(a.call("memory_search", query="one two lemur", family=True).data_json)
    assert {h["ref"].split(":")[0] for h in found["hits"]} == {"s1"}
    assert bench.publications("isolated") == ()
    told(bench, b, "again", "of B")
    with pytest.raises(NotFound, match="s2:0:0 names nothing"):
        b.call("memory_zoom", ref="s2:0:0")


def test_a_summary_that_comes_after_isolation_is_not_published(bench):
    """§12: also one whose making had begun, and also when the session shares again by then."""
    a = bench.session("A")
    a.turn("one", "x" * 2000)
    worker = bench.worker()
    real, ran = worker.model.summarise, []

    def late(*args: Any, **options: Any) -> Any:
        if not ran:
            ran.append(choose(bench, "A", "isolated"))
            choose(bench, "A", "project")
        return real(*args, **options)

    worker.model.summarise = late
    while worker.run_one():
        pass
    bench.drain()
    assert ran
    assert bench.publications() == ()
    told(bench, a, "two", "answer two")
    assert [p.turn_id for p in bench.publications()] == [bench.turns()[1].turn_id]


def test_sharing_again_publishes_what_comes_and_brings_nothing_back(bench):
    a, b = bench.session("A"), bench.session("B")
    told(bench, a, "one", "answer one")
    choose(bench, "A", "isolated")
    told(bench, a, "two", "answer two")
    assert choose(bench, "A", None).next_scope == f"project:{bench.held('A').project_id}"
    told(bench, a, "three", "answer three")
    memory = sent(told(bench, b, "hello", "hi"))
    assert bench.held("A").number == 2, "a number is given once"
    live = [p for p in bench.publications() if p.died is None]
    assert [p.turn_id for p in live][:1] == [bench.turns("A")[2].turn_id]
    assert "answer three" in memory
    assert "answer one" not in memory
    assert "answer two" not in memory


def test_a_choice_goes_before_the_rules_and_is_taken_back(bench):
    """§11: by configuration unless a person decided otherwise; never by a model."""
    restart(bench, Sharing(isolated=["/project"], profiles={"work": ["/x"]}))
    a = bench.session("A")
    told(bench, a, "one", "answer one")
    assert bench.held("A").isolated
    for sharing, expected in (
        ("work", "profile:work"),
        ("project", "project:"),
        (None, "isolated"),
    ):
        decided = choose(bench, "A", sharing)
        told(bench, a, f"to {sharing}", "ok")
        assert decided.next_scope.startswith(expected)
        assert scope_id(bench) == decided.next_scope


def test_a_profile_that_is_not_there_is_refused_and_nothing_changes(bench):
    a = bench.session("A")
    told(bench, a, "one", "answer one")
    before = bench.state()
    with pytest.raises(BadInput, match="no profile 'nowhere'"):
        choose(bench, "A", "nowhere")
    with pytest.raises(NotFound):
        choose(bench, "nobody", "isolated")
    assert bench.state() == before


def test_a_session_is_named_by_its_number_in_a_scope_or_by_the_host_s_id(bench):
    told(bench, bench.session("A"), "one", "answer one")
    by_number = ShareRequest(session="s1", sharing="isolated", directory="/project")
    assert bench.service.share(by_number).host_session == "A"


def test_the_lines_of_the_own_view_are_measured_under_the_new_number(make_bench):
    """I10: s7 and s12 are not equally long."""
    bench = make_bench(own_high_bytes=700, own_low_bytes=400)
    for n in range(11):
        bench.session(f"x{n}", directory="/other").sync()
    a = bench.session("A")
    for n in range(12):
        told(bench, a, f"question {n} " + "words " * 30, "answer " * 30)
    a.model = replace_window(a.model)
    told(bench, a, "fold", "ok")
    restart(bench, PROFILE)
    restart(bench, Sharing(profiles={"work": ["/project", "/other"]}))
    for n in range(11):
        told(bench, bench.session(f"y{n}", directory="/other"), "q", "a")
    told(bench, a, "moved", "ok")
    assert bench.held("A").number >= 12

    def measured(tx: Any) -> Any:
        from optchat.core.tree import SessionTree
        from optchat.engine.nodes import Forest
        from optchat.engine.sessions import own_lineage

        held = tx.sessions.session_of_host("scripted", "A")
        tree = SessionTree(held.session_id, held.generation)
        forest = Forest(tx, tree, number=held.number, lineage=own_lineage(tx, held))
        view = tx.trees.view(tree)
        return [(e, forest.entry(e.span)) for e in view.entries]

    pairs = bench.read(measured)
    assert pairs
    assert [stored for stored, _ in pairs] == [now for _, now in pairs]


def replace_window(model: Any) -> Any:
    return msgspec.structs.replace(model, context_tokens=4_000, output_tokens=200)


def test_a_fork_of_an_isolated_session_is_isolated_too(bench):
    """§12: it holds the same words; an unfinished turn that it inherits is not published either."""
    a = bench.session("A")
    told(bench, a, "one", "answer one")
    choose(bench, "A", "isolated")
    told(bench, a, "two", "answer two")
    f = a.fork("F", 3)
    f.assistant("answer two, differently", terminal="completed")
    f.sync(idle=True)
    told(bench, f, "three", "answer three")
    assert bench.held("F").isolated
    assert [p for p in bench.publications() if p.died is None] == []


# --- archive ---


def test_an_archived_session_is_hidden_from_the_list_and_from_nothing_else(bench):
    """§12: archiving is not forgetting."""
    a, b = bench.session("A"), bench.session("B")
    told(bench, a, "one", "quagga")
    told(bench, b, "two", "lemur")
    a.archived = True
    assert bench.service.follow(FollowRequest(session=a.info)).known
    b.user("look")
    b.sync()
    assert "quagga" in sent(b.assemble())

    def listed(**args: Any) -> list[tuple[str, bool]]:
        found = json.loads(b.call("memory_sessions", **args).data_json)
        return [(s["session"], s["archived"]) for s in found["sessions"]]

    assert listed() == [("s2", False)]
    assert sorted(listed(archived=True)) == [("s1", True), ("s2", False)]
    assert "(archived)" in b.call("memory_sessions", archived=True).output
    assert b.call("memory_zoom", ref="s1:0:1")
    assert (
        json.loads(b.call("memory_search", query="quagga", family=True).data_json)["records"] == 1
    )
    # Within a turn the list stays as it was, whatever becomes of the archive (I3).
    for archived in (False, True, False):
        a.archived = archived
        a.sync()
        assert listed() == [("s2", False)]
    b.assistant("seen", terminal="completed")
    b.user("look again")
    b.sync()
    b.assemble()
    assert sorted(listed()) == [("s1", False), ("s2", False)]


def test_following_a_session_writes_only_a_change_and_makes_none(bench):
    a = bench.session("A")
    assert not bench.service.follow(FollowRequest(session=a.info)).known
    assert bench.held("A") is None
    told(bench, a, "one", "two")
    before = bench.state()
    assert bench.service.follow(FollowRequest(session=a.info)).known
    assert bench.state() == before


# --- subagents ---


def child_of(bench: Any, parent: str, name: str = "child") -> Any:
    return bench.session(name, parent=parent)


def test_a_subagent_s_transcript_is_refused_unless_it_is_asked_for(bench):
    """§12: the parent's report is published with its turn, the child's scratch is not."""
    a, child = bench.session("A"), child_of(bench, "A")
    a.user("delegate")
    a.sync()
    before = bench.state()
    child.user("scratch quokka")
    with pytest.raises(BadInput, match="a subagent's transcript is private"):
        child.sync()
    assert bench.state() == before
    assert bench.held("child") is None


def test_subagents_that_are_taken_in_are_published_under_their_parent(make_bench):
    """§12: with the same provenance; label and list say whose they are, mechanically."""
    bench = make_bench(sharing=Sharing(subagents=True))
    told(bench, bench.session("first"), "x", "y")
    a, child, b = bench.session("A"), child_of(bench, "A"), bench.session("B")
    a.user("delegate")
    a.sync()
    told(bench, child, "scratch quokka", "found quokka77")
    grand = child_of(bench, "child", "grandchild")
    told(bench, grand, "deeper", "found quokka78")
    a.assistant("report: quokka", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    assert scope_id(bench, "child") == scope_id(bench, "grandchild") == scope_id(bench, "A")
    memory = sent(told(bench, b, "look", "ok"))
    assert re.search(r"^pub:1 s3 subagent of s2 completed \S+ \| .*quokka77", memory, re.MULTILINE)
    assert re.search(r"^pub:2 s4 subagent of s3 completed \S+ \| .*quokka78", memory, re.MULTILINE)
    assert re.search(r"^pub:3 s2 completed ", memory, re.MULTILINE)
    listed = b.call("memory_sessions").output
    names = re.findall(r"^(s\d+(?: subagent of s\d+)?) ", listed, re.MULTILINE)
    at = names.index("s2")
    assert names[at : at + 3] == ["s2", "s3 subagent of s2", "s4 subagent of s3"]
    assert "turn of s3 subagent of s2" in b.call("memory_zoom", ref="pub:1").output
    assert "quokka77" in b.call("memory_zoom", ref="s3:0:1").output


def test_subagents_are_isolated_and_archived_with_their_parent(make_bench):
    bench = make_bench(sharing=Sharing(subagents=True))
    a, child, b = bench.session("A"), child_of(bench, "A"), bench.session("B")
    a.user("delegate")
    a.sync()
    told(bench, child, "scratch", "found quokka77")
    a.assistant("report", terminal="completed")
    a.sync(idle=True)
    bench.drain()
    told(bench, b, "look", "ok")
    a.archived = True
    bench.service.follow(FollowRequest(session=a.info))
    assert [s["session"] for s in shown(bench, "/project", "memory_sessions")["sessions"]] == ["s3"]
    with pytest.raises(BadInput, match="shares as its parent does"):
        choose(bench, "child", "isolated")
    assert choose(bench, "A", "isolated").withdrawn == 2
    assert shown(bench, "/project", "memory_search", query="quokka77")["records"] == 0
    child.user("more")
    child.sync()
    assert bench.held("child").isolated
    child.assistant("found quokka79", terminal="completed")
    child.sync(idle=True)
    bench.drain()
    assert shown(bench, "/project", "memory_search", query="quokka79")["records"] == 0


def test_switching_subagents_off_ends_their_intake_and_keeps_what_is_there(make_bench):
    bench = make_bench(sharing=Sharing(subagents=True))
    a, child = bench.session("A"), child_of(bench, "A")
    a.user("delegate")
    a.sync()
    told(bench, child, "scratch", "found quokka77")
    restart(bench, Sharing())
    child.user("more")
    with pytest.raises(BadInput):
        child.sync()
    assert len(bench.records("child")) == 2
    assert shown(bench, "/project", "memory_search", query="quokka77")["records"] == 1


def test_the_session_row_is_the_only_place_that_knows_the_choice(bench):
    """A stored choice survives a restart (§10)."""
    a = bench.session("A")
    told(bench, a, "one", "two")
    choose(bench, "A", "isolated")
    restart(bench, Sharing())
    assert bench.held("A") == replace(bench.held("A"), sharing="isolated")
