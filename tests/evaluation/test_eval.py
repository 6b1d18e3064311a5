"""`optchat eval`: figures of files with known answers, through the real store and search (§8).

Counts, no times. The sets are made here, of our own words.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from optchat.cli.main import main
from optchat.evaluation.plain import Document, Plain
from optchat.evaluation.scores import Evidence, Ranks, percentiles
from tests.harness.recall_set import RecallSet

SEED = 20261130


def run(*words: str) -> Any:
    with mock.patch.object(sys, "argv", ["optchat", "eval", *words]):
        return CliRunner().invoke(main, ["eval", *words])


def written(path: Path, content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("set") / "set.json"
    ended = run("retrieval", written(path, RecallSet(SEED).document()), "--json")
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.output)


def test_every_competency_is_found_first_on_words_that_nobody_tuned_for(figures):
    broken = {n: f for n, f in figures["competencies"].items() if f["mrr"] < 1}
    assert not broken, figures["missed"]
    assert figures["exclusions_broken"] == 0
    assert figures["constraints"] == {"checked": 4, "broken": []}


def test_what_only_reasoning_says_is_not_found_and_not_counted(figures):
    assert figures["reasoning"] == {"cases": 2, "found": {}, "nearly": {}}
    assert "reasoning" not in figures["competencies"]
    assert figures["cases"] == len(RecallSet(SEED).cases) - 2


def test_plain_fts5_is_asked_the_same_in_the_same_run(figures):
    assert figures["plain"]["cases"] == figures["cases"]
    assert 0.5 < figures["plain"]["mrr"] < figures["mrr"]
    assert figures["plain"]["competencies"]["han"]["mrr"] == 0


def test_a_seed_draws_the_same_sample_again(tmp_path):
    path = written(tmp_path / "set.json", RecallSet(SEED + 1, noise=60).document())
    runs = [
        json.loads(run("retrieval", path, "--sample", "20", "--seed", seed, "--json").output)
        for seed in ("1", "1", "2")
    ]
    for figures in runs:
        figures.pop("latency")
    assert runs[0] == runs[1] != runs[2]
    assert runs[0]["competencies"].keys() != runs[2]["competencies"].keys()


BAD_FILES = {
    "empty": ("", "is empty"),
    "only spaces": (" \n", "is empty"),
    "cut off": ('{"sessions": [{"id": "a"', "no whole JSON document"),
    "no JSON": ("sessions:\n  - a", "no whole JSON document"),
    "another form": ([1, 2], "is of another form"),
    "a misspelt role": (
        {"sessions": [{"id": "a", "messages": [{"id": "m", "role": "robot"}]}]},
        "$.sessions[0].messages[0].role",
    ),
    "no sessions": ({"sessions": []}, "holds no session"),
    "an id twice": ({"sessions": [{"id": "a"}, {"id": "a"}]}, "'a' twice"),
    "an unknown answer": (
        {
            "sessions": [{"id": "a"}],
            "cases": [{"name": "c", "args": {"query": "q"}, "relevant": ["b"]}],
        },
        "'b', which it does not hold",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_used_is_named_with_what_to_do_next(tmp_path, name):
    content, told = BAD_FILES[name]
    path = written(tmp_path / "bad.json", content)
    person, program = run("retrieval", path), run("retrieval", path, "--json")
    assert person.exit_code == program.exit_code == 1
    assert told in person.stderr
    assert "next: " in person.stderr
    error = json.loads(program.stdout)["error"]
    assert (error["code"], bool(error["hint"])) == ("bad_input", True)


def test_a_file_that_is_not_there_is_named(tmp_path):
    for command in ("retrieval", "locomo"):
        ended = run(command, str(tmp_path / "missing.json"))
        assert ended.exit_code == 1
        assert "cannot be read" in ended.stderr


def test_a_file_may_leave_out_what_it_does_not_know(tmp_path):
    lines = [
        {"id": f"m{n}", "role": "user", "parts": [{"type": "text", "id": f"p{n}", "text": word}]}
        for n, word in enumerate(("alpha", "beta"))
    ]
    sessions = [{"id": "a", "messages": lines}, {"id": "b"}]
    path = written(tmp_path / "part.json", {"sessions": sessions})
    without = json.loads(run("retrieval", path, "--json").output)
    assert (without["sessions"], without["cases"], without["mrr"]) == (2, 0, 0)
    case = {"name": "beta", "args": {"query": "beta"}, "relevant": ["a"]}
    path = written(tmp_path / "part.json", {"sessions": sessions, "cases": [case]})
    assert json.loads(run("retrieval", path, "--json").output)["mrr"] == 1


# --- LoCoMo ---


def conversation(number: int, *, said: str) -> dict[str, Any]:
    turns = [
        {"speaker": "Ada", "dia_id": "D1:1", "text": f"I saw {said} at the lake"},
        {"speaker": "Bo", "dia_id": "D1:2", "text": "How nice", "blip_caption": f"a {said} boat"},
        {"speaker": "Ada", "dia_id": "D1:3", "text": "We should go together"},
    ]
    return {
        "sample_id": f"c{number}",
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Bo",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": turns,
        },
        "qa": [
            {"question": f"Where was {said}?", "evidence": ["D1:1"], "category": 4},
            {
                "question": f"Which boat did {said} have?",
                "evidence": ["D1:1; D1:02"],
                "category": 1,
            },
            {"question": "Who was not there?", "evidence": [], "category": 5},
            {"question": "Who sang?", "evidence": ["D", "D9:9"], "category": 5},
        ],
    }


def test_conversations_share_one_index_and_questions_without_evidence_are_left_out(tmp_path):
    names = ("kingfisher", "otter", "heron", "bittern")
    document = [conversation(n, said=name) for n, name in enumerate(names)]
    path = written(tmp_path / "locomo.json", document)
    figures = json.loads(run("locomo", path, "--json").output)
    assert (figures["conversations"], figures["turns"], figures["questions"]) == (4, 12, 8)
    assert figures["any@5"] == figures["all@10"] == figures["plain"]["any@5"] == 1
    assert set(figures["categories"]) == {"1", "4"}
    tuned = json.loads(run("locomo", path, "--split", "tune", "--json").output)
    held_out = json.loads(run("locomo", path, "--split", "held-out", "--json").output)
    assert (tuned["questions"], held_out["questions"]) == (6, 2)
    assert tuned["turns"] == held_out["turns"] == 12
    told = run("locomo", path, "--sample", "2", "--seed", "5")
    assert "plain FTS5" in told.output


def test_a_conversation_of_another_form_is_named(tmp_path):
    broken = conversation(0, said="otter")
    broken["conversation"]["session_2"] = [{"speaker": "Ada"}]
    ended = run("locomo", written(tmp_path / "locomo.json", [broken]))
    assert ended.exit_code == 1
    assert "session_2 of conversation 0" in ended.stderr
    nothing = run("locomo", written(tmp_path / "locomo.json", []))
    assert "holds no conversation" in nothing.stderr


# --- counting ---


def test_ranks_count_as_reciprocals_and_hits_by_their_place():
    ranks = Ranks()
    for rank in (1, 2, 0, 6):
        ranks.add(rank, broken=rank == 2)
    assert ranks.figures() == {
        "cases": 4,
        "mrr": round((1 + 1 / 2 + 1 / 6) / 4, 4),
        "hit@1": 0.25,
        "hit@5": 0.5,
        "exclusions_broken": 1,
    }
    evidence = Evidence()
    evidence.add(["x", "a", "b"], frozenset("ab"))
    evidence.add([*"x" * 10, "a"], frozenset("a"))
    figures = evidence.figures()
    assert (figures["any@1"], figures["any@5"], figures["any@20"]) == (0, 0.5, 1)
    assert figures["all@10"] == 0.5
    assert percentiles([0.001 * n for n in range(1, 101)]) == {"p50_ms": 50, "p95_ms": 95}
    assert percentiles([]) == {"p50_ms": 0, "p95_ms": 0}


def test_plain_fts5_holds_to_the_same_filters():
    plain = Plain(
        [
            Document("old", "the lost heron", "/a", 10),
            Document("new", "the herons flew", "/b", 20),
            Document("new", "a heron", "/b", 30),
        ]
    )
    assert set(plain.search("where is the heron?", first=9)) == {"old", "new"}
    assert plain.search("heron", first=9, since_ms=15) == ["new"]
    assert plain.search("heron", first=9, until_ms=15) == ["old"]
    assert plain.search("heron", first=9, directory="/a") == ["old"]
    assert plain.search("heron", first=9, without=frozenset({"new"})) == ["old"]
    assert plain.search("the of", first=9) == plain.search('" ( *', first=9) == []
    plain.close()
