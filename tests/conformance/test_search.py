"""Full text: literal terms, phrases and exclusions, whatever characters they hold (§8, I4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optchat.core.records import Lineage, Segment
from optchat.refs import SessionId, Span
from optchat.storage.sqlite import columns as columns_module
from optchat.storage.sqlite import frames, published, summaries, vocabulary
from tests.harness import found
from tests.harness.found import columns


@pytest.fixture
def own(world):
    """Seal texts of a session and search them as its own reader."""
    tree = world.session("a")

    def find(*texts: str, terms=(), **more) -> dict[int, set[str]]:
        if texts:
            world.seal(tree, *texts)
        reader = world.now(own=Lineage((Segment(tree, 0, 1000),)))
        found = world.search(reader, *terms, **more)
        return {int(name.rpartition(":")[2]): matched for name, matched in found.items()}

    return find


def test_a_hit_names_the_distinct_terms_and_phrases_it_holds(own):
    found = own(
        "the message broker",
        "a broker of messages",
        "nothing",
        terms=("broker", "message", "message broker"),
    )
    assert found == {0: {"broker", "message", "message broker"}, 1: {"broker", "message"}}


def test_a_phrase_needs_its_words_side_by_side_and_in_order(own):
    found = own("one two three", "two one", "one and two", terms=("one two",))
    assert found == {0: {"one two"}}


def test_an_excluded_word_drops_the_hit(own):
    found = own("red green", "red blue", "red", terms=("red",), excluded=("green", "blue"))
    assert set(found) == {2}


def test_case_and_latin_diacritics_do_not_matter(own):
    assert set(own("ÉTÉ Déjà", "ete", "e\u0301te\u0301", terms=("ete",))) == {0, 1, 2}
    assert set(own(terms=("Été",))) == {0, 1, 2}


def test_a_term_is_the_phrase_of_its_words(own):
    found = own("foo-bar", "foo bar", "bar foo", "foo_bar.baz", terms=("foo-bar",))
    assert set(found) == {0, 1, 3}


@pytest.mark.parametrize(
    "term",
    ["", " ", "-", '"', '""', "*", "^", ":", "()", "\0", "{text}", "text : red", "NEAR(red)"],
)
def test_syntax_in_a_term_is_text(own, term):
    found = own("red", "near red text", terms=(term,))
    expected = {"text : red": {}, "NEAR(red)": {1}, "{text}": {1}}.get(term, {})
    assert set(found) == set(expected)


@pytest.mark.parametrize("operator", ["AND", "OR", "NOT", "NEAR"])
def test_operators_are_words(own, operator):
    assert set(own("red", f"red {operator.lower()} blue", terms=(operator,))) == {1}
    assert set(own(terms=(f"red {operator} blue",))) == {1}


def test_a_prefix_does_not_match(own):
    assert own("broker", terms=("brok", "brok*")) == {}


def test_nul_bytes_separate_words_in_texts_and_terms(own):
    found = own("red\0green", "red green", "redgreen", terms=("red\0green", "green"))
    assert found == {0: {"red\0green", "green"}, 1: {"red\0green", "green"}}


def test_lone_surrogates_are_kept_as_question_marks(own):
    assert set(own("half \ud800 pair", terms=("half", "\ud800"))) == {0}


def test_words_are_found_by_their_stems(own):
    found = own("refreshing the policies", "a refreshed policy", "fresh", terms=("refresh policy",))
    assert set(found) == {1}
    assert set(own(terms=("refreshes", "policy"))) == {0, 1}


def test_the_parts_of_camel_case_words_are_found_as_well(own):
    found = own("call getUserName", "HTTPServer", "getusername", terms=("user name", "http server"))
    assert found == {0: {"user name"}, 1: {"http server"}}
    assert set(own(terms=("getUserName",))) == {0, 2}


def test_characters_of_scripts_without_spaces_are_found_by_ones_and_twos(own):
    found = own("日本語のテキスト", "한국어 문서", "x步2走", terms=("本語", "국어", "步", "走"))
    assert found == {0: {"本語"}, 1: {"국어"}, 2: {"步", "走"}}
    assert own(terms=("語本",)) == {}


def test_a_frame_has_one_row_for_each_visible_record_with_words(world):
    a, b = world.session("a"), world.session("b")
    world.seal(a, "one", "two", host_time_ms=7)
    world.seal(b, "three")
    world.publish(a, 0, 2)
    now = world.now()
    rows = world.read(lambda tx: columns(tx, now))
    assert [(tree, seq, time) for tree, seq, _, _, time, *_ in rows] == [
        ("g:a:0", 0, 7),
        ("g:a:0", 1, 7),
    ]


def test_a_title_is_that_of_the_last_visible_publication(world):
    a = world.session("a")
    world.seal(a, "one", "two")
    world.publish(a, 0, 1, title="before")
    first = world.now()
    world.publish(a, 1, 2, title="after")

    def title(visibility):
        titles = world.read(lambda tx: tx.search.frame(visibility).titles)
        return titles[SessionId("a")].title

    assert title(first) == "before"
    assert title(world.now()) == "after"


def test_the_vocabulary_is_looked_through_by_pieces(world):
    a = world.session("a")
    world.seal(a, "oauthredirect and redirects", "else")
    assert world.read(lambda tx: tx.search.holding(("redir",))) == ("oauthredirect", "redirect")
    assert world.read(lambda tx: tx.search.holding(("zz", "els"))) == ("els",)
    assert world.read(lambda tx: tx.search.known(("nothing", "els"))) == ("els",)


def test_what_was_looked_up_before_stands_in_later_records_as_well(world, monkeypatch):
    """A store may keep where words stand; it is as if it had read them anew."""
    monkeypatch.setattr(vocabulary, "COMMON_PLACES_MIN", 1)

    def found():
        told = world.read(lambda tx: tx.search.places(("red", "green")))
        holding = world.read(lambda tx: tx.search.holding(("gree",)))
        return {stem: places.offsets.tolist() for stem, places in told.items()}, holding

    a = world.session("a")
    world.seal(a, "red green")
    assert found() == ({"red": [0], "green": [1]}, ("green",))
    world.seal(a, "evergreen red red", "green")
    assert found() == ({"red": [0, 1, 2], "green": [1, 0]}, ("evergreen", "green"))
    world.store.rebuild_search()
    assert found() == ({"red": [0, 1, 2], "green": [1, 0]}, ("evergreen", "green"))


def test_what_is_invisible_changes_nothing(world):
    a, b = world.session("a"), world.session("b")
    world.seal(a, "red green", "red")
    world.publish(a, 0, 2)
    before = world.now()

    def seen():
        return (
            world.search(before, "red", excluded=("green",)),
            world.read(lambda tx: columns(tx, before)),
        )

    first = seen()
    world.seal(b, *(f"red green blue {n}" for n in range(50)))
    world.publish(b, 0, 50)
    assert seen() == first


LETTERS = "abAB01 -_.\"'\0\n" + "éÉàçÑñüÜßøØåÅœŁłžŽ×÷¼²ªº" + "\u0301\u0308"


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(st.text(LETTERS, max_size=12), min_size=1, max_size=6),
    terms=st.lists(st.text(LETTERS, max_size=4), max_size=3),
    excluded=st.lists(st.text(LETTERS, max_size=2), max_size=1),
)
def test_both_stores_find_the_same(two_worlds, texts, terms, excluded):
    def searched(world):
        number = world.read(lambda tx: len(tx.sessions.sessions(world.scope_id)))
        tree = world.session(f"s{number}")
        world.seal(tree, *texts)
        reader = world.now(own=Lineage((Segment(tree, 0, len(texts)),)))
        return world.search(reader, *terms, excluded=tuple(excluded))

    first, *others = [searched(world) for world in two_worlds]
    assert all(other == first for other in others)


def test_a_store_finds_no_damage_in_itself_and_makes_its_indexes_anew(world):
    """§10: rebuilt from the texts that are kept, a search answers as before."""
    tree = world.session("a")
    world.seal(tree, "the broker", "a deployment")
    world.publish(tree, 0, 2)
    before = world.search(world.now(), "broker", "deployment")
    assert world.store.damage() == ()
    world.store.rebuild_search()
    assert world.search(world.now(), "broker", "deployment") == before != {}
    assert world.store.damage() == ()


def test_the_places_of_a_common_word_come_in_pieces_that_may_begin_inside_a_document(
    world, monkeypatch
):
    monkeypatch.setattr(vocabulary, "PLACES_AT_ONCE", 2)
    a = world.session("a")
    world.seal(a, "red", "red green red red", "blue", "red red")
    found = world.read(lambda tx: tx.search.places(("red", "green", "none")))
    assert found["red"].times.tolist() == [1, 3, 2]
    assert found["red"].offsets.tolist() == [0, 0, 2, 3, 0, 1]
    assert found["green"].offsets.tolist() == [1]
    assert len(found["none"]) == len(found["none"].docs) == 0


def seen(world, visibility):
    """A frame as what it means: its rows, and the titles with their publications."""

    def work(tx):
        titles = tx.search.frame(visibility).titles
        rows = [(tree, seq) for tree, seq, *_ in columns(tx, visibility)]
        return rows, {session: (t.title, t.publication) for session, t in titles.items()}

    return world.read(work)


def test_a_frame_read_in_pieces_holds_all_of_them(world, monkeypatch):
    for module in (columns_module, published, summaries):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 2)
    a, b = world.session("a"), world.session("b")
    for text in ("one", "", "two", "three"):
        world.seal(a, text)
        world.seal(b, text)
    world.publish(a, 0, 2, title="a before")
    world.publish(b, 0, 4, title="b")
    world.publish(a, 2, 4, title="a after")
    for span in (Span(0, 2), Span(2, 2), Span(0, 4)):
        world.write(lambda tx, s=span: tx.trees.put_node(world.a_node(a, s, text="told")))
    before = world.now()
    rows = [(str(tree), seq) for tree in (a, b) for seq in (0, 2, 3)]
    assert seen(world, before) == (rows, {"a": ("a after", 2), "b": ("b", 1)})
    assert len(world.read(lambda tx: found.summaries(tx, before, "told"))) == 3
    world.seal(a, "four")
    world.publish(a, 4, 5, title="a last")
    assert seen(world, before) == (rows, {"a": ("a after", 2), "b": ("b", 1)})
    rows.insert(3, (str(a), 4))
    assert seen(world, world.now()) == (rows, {"a": ("a last", 3), "b": ("b", 1)})


@pytest.mark.parametrize("kept", [0, 1_000])
def test_readers_that_take_turns_keep_each_their_snapshot(world, monkeypatch, kept):
    """However few frames a store keeps (I4)."""
    monkeypatch.setattr(frames, "ROWS_KEPT", kept)
    a, b = world.session("a"), world.session("b")
    world.seal(a, "one", "two")
    world.seal(b, "three")
    world.publish(a, 0, 1)
    person = world.now()
    readers = {
        name: replace(person, session_id=SessionId(name), own=Lineage((Segment(tree, 0, length),)))
        for name, tree, length in (("a", a, 2), ("b", b, 1))
    }
    for _ in range(2):
        assert seen(world, person)[0] == [(str(a), 0)]
        assert seen(world, readers["a"])[0] == [(str(a), 0), (str(a), 1)]
        assert seen(world, readers["b"])[0] == [(str(a), 0), (str(b), 0)]
