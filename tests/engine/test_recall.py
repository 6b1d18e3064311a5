"""What a search leaves out, takes for another word, ranks, and says of itself (§8, I3, I4)."""

from __future__ import annotations

import json

import pytest

from optchat.errors import BadInput
from optchat.storage.ports import Tx


def ask(session, query: str, /, **args):
    return json.loads(session.call("memory_search", query=query, **args).data_json)


@pytest.fixture
def asking(bench):
    """A conversation with tools and one that asks."""
    a, b = bench.session("A", title="The kestrel decision"), bench.session("B")
    a.turn(
        "should the kestrel use postgres?",
        "We chose postgres for the kestrel.",
        tools=(
            ("bash", {"command": "deploy --flag KESTREL_STAGE"}, "kestrel deployed to stage"),
            ("read", {"filePath": "/project/src/kestrelQueue.ts"}, "the queue of the kestrel"),
        ),
    )
    b.turn("what about the kestrel?", "I look")
    bench.drain()
    b.user("find it")
    b.sync()
    b.assemble()
    return bench, b


def test_the_asking_session_is_left_out_counted_and_taken_in_on_request(asking):
    _, b = asking
    found = ask(b, "kestrel")
    assert {h["session"] for h in found["hits"] if h["session"]} == {"s1"}
    coverage = found["coverage"]
    assert coverage["skipped"] == {"own session": 2}
    assert coverage["eligible"] == coverage["ranked"] + 2
    assert "s2" in {h["session"] for h in ask(b, "kestrel", family=True)["hits"]}
    assert {h["session"] for h in ask(b, "kestrel", session="s2")["hits"]} == {"s2"}


@pytest.mark.parametrize(
    "query, evidence",
    [
        ("kestrel evidence:human", {"human"}),
        ("kestrel role:tool", {"tool_output", "file_read"}),
        ("kestrel evidence:file_read", {"file_read"}),
        ("kestrel kind:tool_call", {"tool_input"}),
        ("kestrel tool:bash", {"tool_input", "tool_output"}),
        ("kestrel file:kestrelQueue.ts", {"tool_input", "file_read"}),
        ("kestrel evidence:title", {"title"}),
        ("kestrel project:project role:user", {"human"}),
    ],
)
def test_filters_stand_in_the_query_or_beside_it(asking, query, evidence):
    _, b = asking
    word, *fields = query.split()
    beside = dict(field.split(":") for field in fields)
    assert {h["evidence"] for h in ask(b, query)["hits"]} == evidence
    assert {h["evidence"] for h in ask(b, word, **beside)["hits"]} == evidence


def test_a_field_that_means_nothing_is_bad_input_and_quoted_it_is_text(asking):
    _, b = asking
    with pytest.raises(BadInput) as caught:
        ask(b, "role:boss")
    assert "quote it" in (caught.value.hint or "")
    assert ask(b, '"role:boss"')["hits"] == []


def test_an_empty_answer_says_which_constraint_to_relax(asking):
    _, b = asking
    found = ask(b, "kestrel tool:webfetch")
    assert found["hits"] == []
    assert found["relax"][0]["without"] == "tool"
    assert found["relax"][0]["records"] > 0
    assert ask(b, "kestrel tool:bash")["relax"] == []


@pytest.mark.parametrize("query", ["kesterl", "kestel", "kesttrel", "postgers kestrel"])
def test_a_misspelt_word_is_taken_for_what_is_visible(asking, query):
    _, b = asking
    found = ask(b, query)
    assert found["hits"]
    assert "taken for" in b.call("memory_search", query=query).output


def test_a_part_of_a_word_is_found_where_it_is_no_word_itself(asking):
    _, b = asking
    assert "s1:0:4" in {h["ref"] for h in ask(b, "strelqu")["hits"]}


@pytest.mark.parametrize("name", ["kestrelQueue", "kestrel_queue", "kestrel-queue", "KestrelQueue"])
def test_a_name_is_found_however_it_is_written(asking, name):
    _, b = asking
    assert ask(b, name)["hits"][0]["tool"] == "read"


def test_hits_are_grouped_by_session_with_the_next_places(asking):
    _, b = asking
    found = ask(b, "kestrel", group="session")
    assert [h["session"] for h in found["hits"]] == ["s1"]
    assert len(found["hits"][0]["more"]) == 3


def test_a_quoted_phrase_is_the_very_words(asking):
    _, b = asking
    assert ask(b, '"chose postgres"')["hits"]
    assert ask(b, '"choosing postgres"')["hits"] == []


def test_filters_alone_list_the_newest_first(asking):
    _, b = asking
    times = [h["time"] for h in ask(b, "role:assistant")["hits"]]
    assert times == sorted(times, reverse=True) != []


def test_typing_a_word_that_only_others_have_gives_no_correction(bench):
    """Neither a hit nor a correction comes from what cannot be seen (I4)."""
    a, other, b = bench.session("A"), bench.session("O", directory="/other"), bench.session("B")
    a.turn("hello", "there")
    other.turn("zanzibarite", "zanzibarite")
    bench.drain()
    b.user("go")
    b.sync()
    b.assemble()
    plain = b.call("memory_search", query="nosuchwordatall").output
    for query in ("zanzibarite", "zanzibarit", "zanzibartie", "anzibari"):
        told = b.call("memory_search", query=query)
        assert told.output == plain
        assert "zanzib" not in told.data_json


def test_an_index_of_other_rules_is_made_anew_and_says_what_is_missing(asking):
    """Coverage counts what is not indexed yet (§8)."""
    bench, b = asking
    before = b.call("memory_search", query="kestrel").data_json

    def outdate(tx: Tx) -> None:
        tx.meta.put("index_version", "of before")

    bench.store.write(outdate)
    bench.reopen()
    found = ask(b, "kestrel")
    assert found["records"] == 0
    assert found["coverage"]["unindexed"] == found["coverage"]["eligible"]
    bench.store.complete_search()
    assert b.call("memory_search", query="kestrel").data_json == before
    assert bench.store.damage() == ()


def first(bench, query: str) -> dict:
    b = bench.session("Q")
    bench.drain()
    b.user("find it")
    b.sync()
    b.assemble()
    return ask(b, query)["hits"][0]


FILLER = "loud words of a tool that nobody asks for "
"""Not the words of a query."""


def test_what_was_said_goes_before_a_title_that_names_as_much(bench):
    """A title is no evidence, and nothing stands beside it (§8)."""
    bench.session("A", title="Heron and osprey").turn("what is left?", "the usual")
    said = bench.session("B", title="Osprey nests")
    said.turn("shall we count heron or osprey?", "both")
    found = first(bench, "heron osprey")
    assert (found["session"], found["kind"]) == ("s2", "user")


def test_a_text_is_long_among_typical_ones_however_long_a_few_outputs_are(bench):
    """A long message that repeats a word is not as good as a short one that says it (§8)."""
    a = bench.session("A")
    a.turn("look around", "done", tools=[("bash", {"command": "all"}, FILLER * 2_000)])
    for number in range(8):
        a.turn(f"go on with part {number} of it", f"part {number} of it is done")
    bench.session("B").turn("which heron nests here?", "one of them")
    bench.session("C").turn(f"{FILLER * 4} a heron {FILLER * 4} heron", "one of them")
    assert first(bench, "heron")["session"] == "s2"


def test_a_long_output_beside_a_message_takes_nothing_from_it(bench):
    """Of a neighbour no more counts than of a few typical texts (§8)."""
    a = bench.session("A")
    a.turn("which heron nests here?", "ok", tools=[("bash", {"command": "all"}, FILLER * 2_000)])
    for number in range(8):
        a.turn(f"go on with part {number} of it", f"part {number} of it is done")
    bench.session("B").turn("and here, by the river or the lake, which heron nests?", "ok")
    assert first(bench, "heron")["session"] == "s1"
