"""Other systems' tools by their names, answered by our own, under one visibility (§8, §11; I4)."""

from __future__ import annotations

import json

import pytest

from optchat.config import Recall, Sharing
from optchat.errors import BadInput, NotFound
from optchat.wire import ALIAS_NAMES


def data(response) -> dict:
    return json.loads(response.data_json)


def refs(response) -> list[str]:
    return [hit["ref"] for hit in data(response)["hits"]]


@pytest.fixture
def told(make_bench):
    """A and B said something about a broker, X of another project too; R asks."""
    bench = make_bench(recall=Recall(aliases=True))
    a, b = bench.session("A", title="queues"), bench.session("B", title="ports")
    x = bench.session("X", directory="/other", title="secret")
    a.turn("Which broker?", "The broker is NATS.", tools=(("bash", {"c": "x"}, "broker is up"),))
    b.turn("Which port has the broker?", "The broker listens on port 4222.")
    x.turn("Which broker?", "The secret broker is RabbitMQ.")
    bench.drain()
    r = bench.session("R")
    r.turn("the broker of my own", "is none")
    r.user("look it up")
    r.sync()
    r.assemble()
    return bench, r


def test_recall_is_a_search_and_its_hits_lead_on_by_the_hosts_ids(told):
    _, r = told
    answer = r.call("recall", query="broker listens port", results=5)
    assert refs(answer)[0] == "s2:0:1"
    first = data(answer)["hits"][0]
    assert (first["sessionID"], first["messageID"]) == ("B", "B-m2")
    assert "s2:0:1 is messageID B-m2 of B" in answer.output
    whole = data(r.call("recall_get", sessionID="B", messageID="B-m2"))
    assert [record["text"] for record in whole["records"]] == ["The broker listens on port 4222."]
    assert data(r.call("recall_get", messageID="s2:0:1")) == whole
    around = data(r.call("recall_context", sessionID="B", messageID="B-m2", before=1, after=0))
    assert [m["text"] for m in around["before"]] == ["Which port has the broker?"]
    assert (around["after"], around["more_before"], around["more_after"]) == ([], False, False)
    assert data(r.call("recall_context", sessionID="B", messageID="B-m2", window=0))["before"] == []
    page = data(r.call("recall_messages", sessionID="B", role="all"))
    assert [m["messageID"] for m in page["messages"]] == ["B-m2", "B-m1"]
    listed = r.call("recall_sessions", search="ports")
    assert "s2 is sessionID B" in listed.output
    assert data(listed)["sessions"][0]["tools"] == []


@pytest.mark.parametrize(
    "args, found",
    [
        ({}, {"s1:0:0", "s1:0:1", "s1:0:3", "s2:0:0", "s2:0:1"}),
        ({"sessionID": "B"}, {"s2:0:0", "s2:0:1"}),
        ({"sessions": ["s1", "B"], "type": "tool"}, {"s1:0:3"}),
        ({"sessions": 20, "type": "tool"}, {"s1:0:3"}),
        ({"excludeSessionID": "A"}, {"s2:0:0", "s2:0:1"}),
        ({"type": "text", "role": "user"}, {"s1:0:0", "s2:0:0"}),
        ({"authorship": "human"}, {"s1:0:0", "s2:0:0"}),
        ({"authorship": "model", "title": "queues"}, {"s1:0:1"}),
        ({"title": "nothing like it"}, set()),
        ({"toolName": "bash"}, {"s1:0:3"}),
        ({"scope": "session"}, {"s3:0:0"}),
        ({"excludeCurrentSession": False, "role": "user"}, {"s1:0:0", "s2:0:0", "s3:0:0"}),
        ({"match": "literal", "sessionID": "B"}, {"s2:0:0", "s2:0:1"}),
        ({"before": 1_600_000_000_000}, set()),
        ({"after": "2000-01-01", "role": "user"}, {"s1:0:0", "s2:0:0"}),
        ({"to": "2001-01-01"}, set()),
    ],
)
def test_each_parameter_of_theirs_means_what_it_meant(told, args, found):
    _, r = told
    hits = data(r.call("recall", query="broker", **args))["hits"]
    assert {h["ref"] for h in hits if h["matched"] and h["kind"] != "title"} == found


@pytest.mark.parametrize(
    "args, note",
    [
        ({"scope": "global"}, "who shares with whom is configured"),
        ({"scope": "project"}, "who shares with whom is configured"),
        ({"match": "regex"}, "a regular expression is searched for as it stands"),
        ({"type": "reasoning"}, "reasoning is never kept here"),
        ({"deep": True}, "tool outputs are always searched"),
        ({"width": 500}, "width is fixed"),
        ({"sessions": 5}, "however many conversations"),
        ({"from": "2000-01-01", "after": "2000-01-01"}, "from is left out"),
    ],
)
def test_what_cannot_be_honoured_is_said_in_the_answer(told, args, note):
    _, r = told
    answer = r.call("recall", query="broker", **args)
    assert answer.output.startswith(f"note: {note}")
    assert data(answer)["notes"][0].startswith(note)
    assert "note:" not in r.call("recall", query="broker").output


def test_hits_can_be_asked_for_with_what_is_around_them_and_why_they_are_hits(told):
    _, r = told
    answer = r.call("recall", query="port", expand="context", window=1, explain=True, results=1)
    assert "> Which port has the broker?" in answer.output
    assert "s2:0:0 is a hit: " in answer.output
    assert "| The broker listens on port 4222." in answer.output
    small = r.call("recall", query="port", expand="message", results=1)
    assert "| The broker listens" not in small.output


def test_choosing_among_hits_goes_on_over_pages_until_there_are_enough(make_bench):
    bench = make_bench(recall=Recall(aliases=True))
    for n in range(12):
        made = bench.session(f"A{n}")
        made.turn(f"broker {n}", "ok", tools=(("bash", {"n": n}, f"broker {n}"),))
    bench.drain()
    r = bench.session("R")
    r.user("look")
    r.sync()
    r.assemble()
    answer = r.call("recall", query="broker", type="tool", results=8)
    assert len(refs(answer)) >= 8
    assert {hit["kind"] for hit in data(answer)["hits"]} <= {"tool_call", "tool_result"}
    assert len(set(refs(answer))) == len(refs(answer))


def test_the_tree_of_the_other_system_is_opened_or_searched(told):
    _, r = told
    assert r.call("search_memory_tree", node_id="pub:0").output.startswith("pub:0")
    assert "4222" in r.call("search_memory_tree", query="port").output
    with pytest.raises(BadInput, match="opencode-memory-tree"):
        r.call("search_memory_tree", node_id="node0_001")
    for args in ({}, {"node_id": "pub:0", "query": "port"}):
        with pytest.raises(BadInput, match="one of the two"):
            r.call("search_memory_tree", **args)


@pytest.mark.parametrize("alias", ALIAS_NAMES)
def test_they_are_off_unless_switched_on(make_bench, alias):
    bench = make_bench()
    a = bench.session("A")
    a.turn("one", "two")
    a.user("look")
    a.sync()
    a.assemble()
    with pytest.raises(BadInput, match="those are off"):
        a.call(alias, query="one")


FOREIGN = [
    ("recall_get", {"sessionID": "X", "messageID": "X-m2"}),
    ("recall_get", {"sessionID": "A", "messageID": "X-m2"}),
    ("recall_context", {"sessionID": "X", "messageID": "X-m1", "window": 3}),
    ("recall_messages", {"sessionID": "X"}),
    ("recall_sessions", {"parentID": "X"}),
    ("recall", {"query": "broker", "sessionID": "X"}),
    ("recall", {"query": "broker", "sessions": ["A", "X"]}),
    ("recall", {"query": "broker", "excludeSessionID": "X"}),
    ("recall_get", {"messageID": "s4:0:1"}),
    ("search_memory_tree", {"node_id": "pub:7"}),
]


@pytest.mark.parametrize("alias, args", FOREIGN)
def test_what_is_of_another_scope_is_not_found_in_the_words_for_what_never_was(told, alias, args):
    """I4: an id is a name, and grants nothing."""
    _, r = told
    renamed = {"X": "Q", "X-m1": "Q-m1", "X-m2": "Q-m2", "s4:0:1": "s9:0:1", "pub:7": "pub:9"}

    def swap(value):
        return [swap(v) for v in value] if isinstance(value, list) else renamed.get(value, value)

    said = []
    for given in (args, {name: swap(value) for name, value in args.items()}):
        with pytest.raises(NotFound) as caught:
            r.call(alias, **given)
        text = f"{caught.value.message} {caught.value.hint}"
        for name, never in sorted(renamed.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(f"'{name}'", "NAME").replace(f"'{never}'", "NAME")
            text = text.replace(f"{name} ", "NAME ").replace(f"{never} ", "NAME ")
        said.append(text)
    assert said[0] == said[1]
    assert "RabbitMQ" not in r.call("recall", query="broker", scope="global", results=50).output


def test_an_isolated_conversation_is_under_no_name(make_bench):
    bench = make_bench(recall=Recall(aliases=True), sharing=Sharing(isolated=["/project/private"]))
    p = bench.session("P", directory="/project/private")
    p.turn("the broker", "is private")
    bench.drain()
    r = bench.session("R")
    r.user("look")
    r.sync()
    r.assemble()
    assert data(r.call("recall", query="broker"))["hits"] == []
    with pytest.raises(NotFound):
        r.call("recall_get", sessionID="P", messageID="P-m2")


def test_a_list_of_sessions_is_as_long_as_asked_for_and_says_that_there_are_more(make_bench):
    bench = make_bench(recall=Recall(aliases=True))
    long = "src/" + "deep/" * 6
    for n in range(60):
        made = bench.session(f"A{n}", title=f"title {n}")
        tools = tuple(("read", {"filePath": f"{long}{n}-{i}.py"}, "x") for i in range(20))
        made.turn("one", "two", tools=tools if n < 30 else ())
    bench.drain()
    r = bench.session("R")
    r.user("look")
    r.sync()
    r.assemble()
    for limit, least in ((None, 20), (25, 25), (100, 30)):
        args = {} if limit is None else {"limit": limit}
        answer = r.call("recall_sessions", **args)
        assert least <= len(data(answer)["sessions"]) <= 50
        assert answer.output.startswith("note: there are more")
        assert len(answer.output.encode()) < 51_200
    assert "note:" not in r.call("recall_sessions", search="title 59").output
