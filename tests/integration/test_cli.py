"""The command line over a real coordinator: what it prints, for persons and programs, and its ends.

§8 (the same retrieval for persons), §11 (a scope chosen by a person), I1, I4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optchat.coordinator.client import Client
from optchat.testing.scripted import ScriptedSession
from tests.e2e.support_b import Cli, Memory, Remote, temporary_memory

DECISION = "we use NATS JetStream as the durable broker"
LONG = "because it keeps every message until its consumer acknowledges it " * 40


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    """Two sessions of one project and one of another."""
    with temporary_memory() as made:
        made.ensure()
        with Client(made.paths) as client:
            first = ScriptedSession(Remote(client), "A", directory="/project", title="the broker")
            first.turn("which broker?", DECISION)
            first.turn("why?", LONG)
            second = ScriptedSession(Remote(client), "B", directory="/project", title="deploying")
            second.turn("deploy it", "deployed")
            foreign = ScriptedSession(Remote(client), "C", directory="/elsewhere", title="secret")
            foreign.turn("the password?", "hunter2")
        made.published(4)
        yield made


@pytest.fixture
def empty() -> Iterator[Memory]:
    with temporary_memory() as made:
        yield made


def ask(memory: Memory, *words: str, directory: str = "/project") -> tuple[Cli, Any]:
    """A command twice, for a person and for a program; both end well."""
    where = () if "--scope" in words else ("--directory", directory)
    told = memory.cli(*words, *where)
    data = memory.cli(*words, *where, "--json")
    assert (told.status, data.status) == (0, 0), (told, data)
    assert told.stderr == data.stderr == ""
    with pytest.raises(json.JSONDecodeError):
        json.loads(told.stdout)
    return told, data.data


def refused(memory: Memory, *words: str) -> tuple[str, dict[str, Any]]:
    """A command twice that ends in an error: the person's text and the program's."""
    told, data = memory.cli(*words), memory.cli(*words, "--json")
    assert (told.status, data.status) == (1, 1), (told, data)
    assert told.stdout == ""
    assert "Traceback" not in told.stderr + data.stderr
    error = data.data["error"]
    assert set(error) == {"code", "message", "hint", "retryable"}
    assert told.stderr == f"optchat: {error['message']}\n  next: {error['hint']}\n"
    return told.stderr, error


# --- looking --------------------------------------------------------------------------------------


def test_status_counts_what_is_there(memory: Memory) -> None:
    """§9: scopes, sessions, records, the queue, and who serves."""
    told, data = memory.cli("status"), memory.cli("status", "--json").data
    assert data["records"] == 8
    assert data["jobs"]["failed"] == 0
    assert {s["name"]: s["publications"] for s in data["scopes"]} == {
        "/project": 3,
        "/elsewhere": 1,
    }
    assert "8 records" in told.stdout
    assert "the broker" in told.stdout
    assert str(data["health"]["pid"]) in told.stdout


def test_sessions_lists_the_scope_that_the_directory_belongs_to(memory: Memory) -> None:
    """§8, §11: nothing of another scope, not even its count."""
    told, data = ask(memory, "sessions", directory="/project/deep/below")
    assert {s["session"]: s["turns"] for s in data["sessions"]} == {"s1": 2, "s2": 1}
    assert data["total"] == 2
    assert data["complete"]
    assert "the broker" in told.stdout
    assert "secret" not in told.stdout


def test_search_finds_the_original_and_says_what_it_looked_at(memory: Memory) -> None:
    """§8: hits have refs and excerpts; other scopes are not searched."""
    told, data = ask(memory, "search", "JetStream")
    assert data["hits"][0]["ref"] == "s1:0:1"
    assert all("JetStream" in hit["excerpt"] for hit in data["hits"])
    assert "s1:0:1" in told.stdout
    assert "JetStream" in told.stdout
    _, nothing = ask(memory, "search", "hunter2")
    assert nothing["hits"] == []


def test_zoom_goes_from_a_range_to_the_exact_original(memory: Memory) -> None:
    """§8, I1: halves, then the turn with its cover, then the payload."""
    _, halves = ask(memory, "zoom", "pub:0+2")
    assert [child["ref"] for child in halves["children"]] == ["pub:0", "pub:1"]
    told, turn = ask(memory, "zoom", "pub:0")
    assert turn["outcome"] == "completed"
    assert [part["ref"] for part in turn["cover"]] == ["s1:0:0+2"]
    assert "turn of s1" in told.stdout
    _, records = ask(memory, "zoom", "s1:0:0+2")
    assert [child["ref"] for child in records["children"]] == ["s1:0:0", "s1:0:1"]
    told, original = ask(memory, "zoom", "s1:0:1")
    assert original["text"] == DECISION
    assert original["bytes"] == len(DECISION.encode())
    assert f"> {DECISION}" in told.stdout


def test_zoom_pages_through_a_long_original_without_loss(memory: Memory) -> None:
    """§8: cursors are stable and the last page says that it is the last."""
    pages: list[dict[str, Any]] = []
    cursor: list[str] = []
    while not pages or not pages[-1]["complete"]:
        words = ("zoom", "s1:0:3", "--max-tokens", "300", "--directory", "/project", "--json")
        page = memory.cli(*words, *cursor)
        assert page.status == 0, page
        pages.append(page.data)
        cursor = ["--cursor", page.data["cursor"] or ""]
    assert len(pages) > 2
    assert "".join(page["text"] for page in pages) == LONG


def test_date_tells_recorded_times(memory: Memory) -> None:
    """§8: times come from the records, not from the order."""
    told, data = ask(memory, "date", "pub:1")
    assert data["opened"] < data["completed"]
    assert data["opened"] in told.stdout
    _, of_record = ask(memory, "date", "s1:0:1")
    assert of_record["first"] == of_record["last"]


def test_a_scope_can_be_named_by_its_id_and_its_name(memory: Memory) -> None:
    """§11: a person owns all scopes and says which one."""
    scopes = {s["name"]: s["scope"] for s in memory.cli("status", "--json").data["scopes"]}
    for name in ("/elsewhere", scopes["/elsewhere"]):
        _, data = ask(memory, "search", "hunter2", "--scope", name)
        assert data["hits"][0]["ref"] == "s1:0:1"


def test_export_writes_markdown_from_the_top_to_the_original(
    memory: Memory, tmp_path: Path
) -> None:
    """§9: readable without us; every link leads somewhere."""
    done = memory.cli("export", str(tmp_path / "a"), "--directory", "/project")
    data = memory.cli("export", str(tmp_path / "b"), "--directory", "/project", "--json").data
    assert done.status == 0
    assert "begin with" in done.stdout
    assert (data["publications"], data["records"]) == (3, 6)
    written = list((tmp_path / "b").rglob("*"))
    assert sum(p.is_file() for p in written) == data["files"]
    everything = "".join(p.read_text(encoding="utf-8") for p in written if p.suffix == ".md")
    assert DECISION in everything
    assert "hunter2" not in everything


# --- refusing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("zoom", "pub:3"), id="not-published"),
        pytest.param(("zoom", "pub:999"), id="never-published"),
        pytest.param(("zoom", "s3:0:0"), id="session-of-another-scope"),
        pytest.param(("zoom", "s1:7:0"), id="no-such-generation"),
        pytest.param(("date", "s1:0:99"), id="no-such-record"),
    ],
)
def test_what_is_not_there_and_what_is_not_to_be_seen_get_one_answer(
    memory: Memory, words: tuple[str, str]
) -> None:
    """§8, §11, I4: the words do not tell which of the two it is."""
    _, error = refused(memory, *words, "--directory", "/project")
    assert error["code"] == "not_found"
    assert error["message"] == f"{words[1]} names nothing in this memory."


@pytest.mark.parametrize(
    "words, hint",
    [
        pytest.param(("zoom", "pub:1+3"), "power of two", id="not-a-power"),
        pytest.param(("zoom", "pub:1+2"), "power of two", id="unaligned"),
        pytest.param(("zoom", "everything"), "pub:24+8", id="no-ref"),
        pytest.param(("date", ""), "pub:24+8", id="empty"),
        pytest.param(("zoom", "s1:0:3", "--cursor", "x"), "cursor", id="no-cursor"),
        pytest.param(("search", ""), "", id="no-words"),
        pytest.param(("search", "x", "--before", "soon"), "", id="no-time"),
    ],
)
def test_a_wrong_argument_is_said_with_what_to_do(
    memory: Memory, words: tuple[str, ...], hint: str
) -> None:
    """§8: nothing was read, and the next thing to try is named."""
    _, error = refused(memory, *words, "--directory", "/project")
    assert error["code"] == "bad_input"
    assert hint in error["hint"]
    assert error["hint"]


def test_an_unknown_place_is_said(memory: Memory) -> None:
    """§11: a directory without memory, a scope and a session that are not there."""
    for words in (
        ("sessions", "--directory", "/nowhere"),
        ("search", "x", "--scope", "nobody"),
        ("search", "x", "--session", "s12", "--directory", "/project"),
        ("resync", "nobody"),
    ):
        _, error = refused(memory, *words)
        assert error["code"] == "not_found"


@pytest.mark.parametrize(
    "words",
    [("zoom",), ("search",), ("date",), ("nothing",), ("status", "--wrong"), ("zoom", "a", "b")],
    ids=" ".join,
)
def test_a_misspelt_command_explains_itself(empty: Memory, words: tuple[str, ...]) -> None:
    """Status 2, usage on standard error, and nothing was started for it."""
    done = empty.cli(*words)
    assert done.status == 2
    assert "Usage: " in done.stderr
    assert not empty.paths.socket.exists()


# --- an empty store -------------------------------------------------------------------------------


def test_an_empty_store_is_no_error_for_status_and_says_so_for_the_rest(empty: Memory) -> None:
    """A first look, before any conversation."""
    told, data = empty.cli("status"), empty.cli("status", "--json").data
    assert told.status == 0
    assert "0 records; summaries: none" in told.stdout
    assert (data["records"], data["scopes"], data["notices"]) == (0, [], [])
    for words in (("sessions",), ("search", "x"), ("zoom", "pub:0"), ("date", "pub:0")):
        _, error = refused(empty, *words, "--directory", "/project")
        assert error["code"] == "not_found"
        assert "is in the memory yet" in error["message"]


# --- running it -----------------------------------------------------------------------------------


def test_serve_ensure_and_stop_tell_which_process(empty: Memory) -> None:
    """§9: started once, told of twice, stopped once; a second stop is no error."""
    started = empty.cli("serve")
    assert started.status == 0
    told = empty.ensure()
    assert f"process {told['pid']}" in started.stdout
    assert set(told) == {"socket", "version", "protocol", "epoch", "pid"}
    assert told["socket"] == str(empty.paths.socket)
    assert f"process {told['pid']}" in empty.cli("ensure").stdout
    assert empty.cli("serve", "--json").data["pid"] == told["pid"]
    assert empty.cli("stop", "--json").data == {"stopped": True, "pid": told["pid"]}
    assert empty.cli("stop", "--json").data == {"stopped": False, "pid": None}
    assert "No coordinator was running." in empty.cli("stop").stdout
    again = empty.ensure()
    assert again["epoch"] > told["epoch"]
    assert f"process {again['pid']}" in empty.cli("stop").stdout


def test_a_stop_can_be_followed_by_a_start_at_once(empty: Memory) -> None:
    """§9: a stop that has returned is over: no lock and no socket is in the way."""
    pids = set()
    for _ in range(3):
        pids.add(empty.ensure()["pid"])
        assert empty.cli("stop").status == 0
        assert not empty.paths.socket.exists()
    assert len(pids) == 3


def test_ensure_tells_a_plugin_in_one_line(empty: Memory) -> None:
    """§13: the plugin reads up to the first line end and does not wait for the process to end."""
    told = empty.cli("ensure", "--json").stdout
    assert told.count("\n") == 1
    assert json.loads(told)["socket"]


def test_a_coordinator_that_cannot_start_is_an_error_of_every_command(empty: Memory) -> None:
    """§14: whatever was asked, the reason and the remedy are the same."""
    empty.configure("[memory]\nlayuot = 1\n")
    for words in (("status",), ("ensure",), ("serve",), ("search", "x")):
        _, error = refused(empty, *words)
        assert error["code"] == "unreachable"
        assert "layuot" in error["message"]
        assert "config.toml" in error["hint"]


def test_version_and_help_need_no_coordinator(empty: Memory) -> None:
    """What a person tries first."""
    assert "optchat" in empty.cli("--version").stdout
    shown = empty.cli("--help").stdout
    commands = "install uninstall serve stop status sessions search zoom date export demo"
    assert not [c for c in commands.split() if c not in shown]
    assert not empty.home.exists()


def test_forget_tells_what_went_what_it_could_not_reach_and_what_went_before(
    empty: Memory,
) -> None:
    """§12: a dry run, the removal, the list of removals, and what is not there any more."""
    empty.ensure()
    with Client(empty.paths) as client:
        for name in "AB":
            made = ScriptedSession(Remote(client), name, directory="/project", title=f"of {name}")
            made.turn(f"what of {name}?", f"{name} was decided")
    empty.published(2)
    where = ("--directory", "/project")
    tried = empty.cli("forget", "session", "s1", *where, "--dry-run")
    assert tried.status == 0
    assert tried.stdout.startswith("would remove session s1: 1 sessions, 1 turns, 2 records")
    assert "not reached:\n  - requests that were sent already" in tried.stdout
    assert empty.cli("forget", "log").stdout == "nothing was removed so far\n"
    assert "A was decided" in empty.cli("zoom", "s1:0:1", *where).stdout

    done = empty.cli("forget", "turn", "pub:0", *where, "--json").data
    assert (done["dry_run"], done["removal"]["counts"]["records"]) == (False, 2)
    again = empty.cli("forget", "turn", "pub:0", *where)
    assert again.status == 1
    assert "pub:0 names nothing in this memory." in again.stderr
    assert empty.cli("forget", "before", "2000-01-01", *where).stdout == (
        "removed turns that ended before 2000-01-01: nothing was there\n"
    )
    whole = empty.cli("forget", "project", "/project")
    assert whole.stdout.startswith("removed a project: 2 sessions, 1 turns, 2 records")
    log = empty.cli("forget", "log").stdout.splitlines()
    assert [line.split("  ", 1)[1].partition(":")[0] for line in log] == [
        "a project",
        "turns that ended before 2000-01-01",
        "turn pub",
    ]
    assert "/project" not in "".join(log)
    assert empty.cli("sessions", *where).status == 1
