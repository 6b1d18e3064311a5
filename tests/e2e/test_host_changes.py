"""What the host did while nothing of ours ran holds in each read right after the next start (§12).

One history with one session for each case, changed by the real host without the plugin; then the
coordinator starts, and each read path is asked of each case: by a person with no host running, and
by a model in a new conversation. Each test is one case in one path.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from optchat.coordinator.client import RemoteError
from optchat.core.context import recalled_in
from optchat.testing.hostfiles import make_project, short_agent
from optchat.testing.provider import ToolCall, calls, text
from optchat.wire import ToolRequest, ToolResponse
from tests.e2e.support import Memory, alone, answers, bases, news, running_memory, stop_coordinator

Json = dict[str, Any]
CONFIG = '[recall]\naliases = true\nautomatic = "cues"\nautomatic_ms = 20000\n'
TOOLS = ("bash", "memory_*", "recall*", "search_memory_tree")
AGENTS = {"build": short_agent(*TOOLS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A session that was changed, and what is left of its words: ``title``, ``one`` and ``two``.

    Its second turn's answer has ``two``, its first turn's ``one``. ``home`` is the folder that it
    was in, ``reader`` the one from which it is looked for afterwards, ``at`` where it lies then.
    """

    name: str
    kept: tuple[str, ...] = ("title", "one", "two")
    either: tuple[str, ...] = ()
    """Words that are shown or not as the path goes."""
    home: str = "main"
    reader: str = ""
    at: str = ""
    published: int | None = 2
    replaced: tuple[int, ...] = ()
    """Turns whose refs are answered as superseded."""

    @property
    def session(self) -> str:
        return self.name.partition("-")[0]

    def word(self, kind: str) -> str:
        """One of its words; "about" is in each message, what is gone and what is left."""
        if kind == "about":
            return f"about {self.session}"
        return f"{kind}quagga{self.session}"

    @property
    def gone(self) -> list[str]:
        return [self.word(k) for k in ("title", "one", "two") if k not in self.kept + self.either]


CASES = (
    Case(name="deleted", kept=(), published=None),
    Case(name="reverted", kept=("title", "one"), published=1, replaced=(1,)),
    Case(name="edited", kept=("title", "one", "new"), replaced=(1,)),
    # A title is as of the session's last publication; lists have the newest for a person.
    Case(name="renamed", kept=("one", "two"), either=("title",)),
    Case(name="forked", kept=("title", "one", "two", "new")),
    # Moved by the host's own command, to another folder of the same project.
    Case(name="moved", at="tree"),
    # And between two folders outside version control, which are two projects to us: what was said
    # in the one stays there, and is nothing to the other.
    Case(name="left", home="garden", at="shed"),
    Case(name="left-there", kept=(), home="garden", reader="shed", at="shed"),
    # Taken out of the one project and into another by export and import.
    Case(name="taken", at="clone"),
    Case(name="taken-there", kept=(), reader="clone", at="clone"),
    # Their folder is the same, its project has another id.
    Case(name="grown", home="loose"),
    Case(name="cloned", home="clone"),
)
BY_NAME = {case.name: case for case in CASES}


@dataclass(slots=True)
class World:
    """The folders, the sessions as they were told, and all that was read after the start."""

    memory: Memory
    folders: dict[str, Path]
    ids: dict[str, str] = field(default_factory=dict[str, str])
    refs: dict[str, str] = field(default_factory=dict[str, str])
    dates: dict[str, str] = field(default_factory=dict[str, str])
    read: dict[tuple[str, str, str], str] = field(default_factory=dict[tuple[str, str, str], str])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    faults: list[Any] = field(default_factory=list[Any])

    def tool(self, name: str, args: Json, where: str) -> str:
        """What a person is answered."""
        request = ToolRequest(
            tool=name,  # type: ignore[arg-type]
            args_json=json.dumps(args),
            directory=str(self.folders[where]),
        )
        try:
            return self.memory.client.call("/v1/tool", request, ToolResponse).output
        except RemoteError as refused:
            return f"{refused.code}: {refused}"

    def calls(self, case: Case) -> dict[str, tuple[str, Json]]:
        """The calls of each path for a case; none of them names what may be gone."""
        number, host_session = self.refs[case.session], self.ids[case.session]
        query = f"about {case.session}"
        at = str(self.folders[case.at or case.home])
        home = str(self.folders[case.home])
        found: dict[str, tuple[str, Json]] = {
            "search": ("memory_search", {"query": query}),
            "search in directory": ("memory_search", {"query": query, "directory": at}),
            "search in project": ("memory_search", {"query": query, "project": home}),
            "search in session": ("memory_search", {"query": query, "session": number}),
            "search by session": ("memory_search", {"query": query, "group": "session"}),
            "search for title": ("memory_search", {"query": f"called {case.session}"}),
            "sessions": ("memory_sessions", {"search": case.session}),
            "messages": ("memory_messages", {"session": number}),
            "recall": ("recall", {"query": query, "expand": "context"}),
            "recall_sessions": ("recall_sessions", {"search": case.session}),
            "recall_messages": ("recall_messages", {"sessionID": host_session}),
            "search_memory_tree": ("search_memory_tree", {"query": query}),
        }
        for turn in (0, 1):
            answer = f"{number}:0:{2 * turn + 1}"
            publication = self.refs[f"{case.session} {turn}"]
            found |= {
                f"zoom {turn}": ("memory_zoom", {"ref": answer}),
                f"zoom publication {turn}": ("memory_zoom", {"ref": publication}),
                f"date {turn}": ("memory_date", {"ref": answer}),
                f"message {turn}": ("memory_messages", {"ref": answer, "before": 3, "after": 3}),
                f"recall_get {turn}": ("recall_get", {"messageID": answer}),
                f"recall_context {turn}": ("recall_context", {"messageID": answer}),
                f"tree node {turn}": ("search_memory_tree", {"node_id": publication}),
            }
        return found


def tell(world: World) -> None:
    """Two turns of each session, and how they are referred to."""
    memory, host = world.memory, world.memory.host
    for case in CASES:
        if case.session in world.ids:
            continue
        where = world.folders[case.home]
        session = host.create_session(
            title=f"called {case.session} {case.word('title')}", directory=where
        )
        for kind in ("one", "two"):
            asked = f"something about {case.session}"
            answer = text(f"about {case.session} we decided {case.word(kind)}")
            memory.turn(session, asked, answer, directory=where)
        world.ids[case.session] = session
        world.refs[case.session] = memory.name(session)
    memory.wait_quiet()
    for case in CASES:
        found = 0
        for number in range(40):
            ref = f"pub:{number}"
            told = world.tool("memory_zoom", {"ref": ref}, case.home)
            if case.word(("one", "two", "none")[found]) in told:
                world.refs[f"{case.session} {found}"] = ref
                found += 1
        assert found == 2, case
        for turn in (0, 1):
            tool, args = world.calls(case)[f"date {turn}"]
            world.dates[f"{case.session} {turn}"] = world.tool(tool, args, case.home)


def change(world: World) -> None:
    """All that the host does by itself, by its own routes and commands."""
    memory, host, ids, folders = world.memory, world.memory.host, world.ids, world.folders
    host.delete(ids["deleted"])
    host.revert(ids["reverted"], host.messages(ids["reverted"])[2]["info"]["id"])
    said = host.messages(ids["edited"])[3]
    part = next(p for p in said["parts"] if p["type"] == "text")
    new = f"about edited we decided {BY_NAME['edited'].word('new')}"
    host.patch_part(ids["edited"], {**part, "text": new})
    host.patch_session(ids["renamed"], title="called renamed newname")
    fork = host.fork(ids["forked"])["id"]
    memory.provider.plan(fork, text(f"about forked we decided {BY_NAME['forked'].word('new')}"))
    host.prompt(fork, "go on in the copy")
    ids["copy"] = host.fork(ids["moved"])["id"]  # which stays where its origin was
    for name, folder in (("moved", "tree"), ("left", "shed")):
        body = {"sessionID": ids[name], "destination": {"directory": str(folders[folder])}}
        host.request("POST", "/experimental/control-plane/move-session", body=body)
    exported = opencode(memory, folders["main"], "export", ids["taken"])
    file = memory.host.home / "taken.json"
    file.write_text(exported, encoding="utf-8")
    opencode(memory, folders["clone"], "import", str(file))
    make_project(folders["loose"])
    origin = "https://example.com/some/where.git"
    git(folders["clone"], "remote", "add", "origin", origin)
    host.restart()  # what a folder's project is, it looks up once
    for folder in ("loose", "clone"):
        host.sessions(directory=folders[folder])


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def opencode(memory: Memory, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(memory.host.binary), *arguments],
        cwd=folder,
        env=memory.host.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def look(world: World) -> None:
    """Every path of every case: by a person, and then by a model."""
    memory = world.memory
    for case in CASES:
        for path, (tool, args) in world.calls(case).items():
            where = case.reader or case.home
            world.read["person", case.name, path] = world.tool(tool, args, where)
        counts = memory.counts(world.ids[case.session])
        if counts is not None:
            world.counts[case.name] = counts.published
    copy = memory.counts(world.ids["copy"])
    assert copy is not None
    world.counts["copy"] = copy.published
    world.faults += memory.optchat_json("doctor")["faults"]


def ask(world: World) -> None:
    """In a new conversation for each case, in one turn."""
    memory = world.memory
    for case in CASES:
        where = world.folders[case.reader or case.home]
        session = memory.host.create_session(title=f"reader {case.name}", directory=where)
        made = world.calls(case)
        asked = calls(*(ToolCall(name=t, arguments=a) for t, a in made.values()))
        prompt = f"Do you remember what we decided about {case.session}?"
        first, last = memory.turn(session, prompt, asked, text("noted"), directory=where)
        block = news(first)
        world.read["model", case.name, "recalled"] = "".join(map(recalled_in, block[-1:]))
        world.read["model", case.name, "view"] = "".join([*bases(first), *block])
        for path, told in zip(made, answers(last), strict=True):
            world.read["model", case.name, path] = told
    world.faults += memory.optchat_json("doctor")["faults"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("w")
    with running_memory(folder, config=CONFIG, agents=AGENTS) as memory:
        names = ("garden", "shed", "loose", "clone", "tree")
        folders = {name: folder / name for name in names} | {"main": memory.host.project}
        for name in ("garden", "shed", "loose"):
            folders[name].mkdir()
        make_project(folders["clone"])
        git(folders["main"], "worktree", "add", "-q", str(folders["tree"]))
        made = World(memory, folders)
        tell(made)
        with alone(memory):
            change(made)
            memory.host.stop()
            memory.optchat("ensure")
            look(made)
            stop_coordinator(memory.home)
            memory.host.start()
        ask(made)
        yield made


PATHS = {
    "search": ("one", "two", "new"),
    "search in directory": ("one", "two", "new"),
    "search in project": ("one", "two", "new"),
    "search in session": ("one", "two"),
    "search by session": ("about",),
    "search for title": ("title",),
    "sessions": ("title",),
    "messages": ("one", "two"),
    "recall": ("one", "two", "new"),
    "recall_sessions": ("title",),
    "recall_messages": ("one", "two"),
    "search_memory_tree": ("one", "two", "new"),
    "view": ("one", "two", "new"),
    "recalled": ("one",),
}
"""The words that a path shows, of those that are left."""
OF_A_TURN = ("zoom", "zoom publication", "message", "recall_get", "recall_context", "tree node")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_status_counts_what_is_left(world: World, case: Case) -> None:
    assert world.counts.get(case.name) == case.published


def test_a_copy_of_what_has_moved_since_is_known_as_a_copy(world: World) -> None:
    """§12: what it begins with is its origin's, and is not published a second time."""
    assert world.counts["copy"] == 0


def test_a_person_s_lists_have_the_title_that_a_session_has_now(world: World) -> None:
    for path in ("sessions", "recall_sessions"):
        assert "newname" in world.read["person", "renamed", path]


def test_the_store_is_whole_after_the_start_and_after_the_turns_that_follow(world: World) -> None:
    assert world.faults == []


@pytest.mark.parametrize("reader", ["person", "model"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
class TestEachPath:
    @pytest.mark.parametrize("path", PATHS)
    def test_shows_what_is_left_and_nothing_else(
        self, world: World, case: Case, path: str, reader: str
    ) -> None:
        told = world.read.get((reader, case.name, path))
        if told is None:
            assert (reader, path) in {("person", "view"), ("person", "recalled")}
            return
        assert [word for word in case.gone if word in told] == []
        left = ("about", *case.kept) if case.kept else ()
        assert [w for k in PATHS[path] if k in left and (w := case.word(k)) not in told] == []

    @pytest.mark.parametrize("turn", [0, 1])
    @pytest.mark.parametrize("path", OF_A_TURN)
    def test_answers_an_old_ref_by_what_has_become_of_it(
        self, world: World, case: Case, path: str, turn: int, reader: str
    ) -> None:
        told = world.read[reader, case.name, f"{path} {turn}"]
        assert [word for word in case.gone if word in told] == []
        if case.name == "deleted":
            assert told.startswith("not_found: ")
        elif turn in case.replaced:
            assert "superseded" in told
        elif case.kept:
            assert case.word(("one", "two")[turn]) in told

    @pytest.mark.parametrize("turn", [0, 1])
    def test_dates_what_is_left_as_before(
        self, world: World, case: Case, turn: int, reader: str
    ) -> None:
        told = world.read[reader, case.name, f"date {turn}"]
        before = world.dates[f"{case.session} {turn}"]  # the rest tells of the snapshot
        if case.name == "deleted":
            assert told.startswith("not_found: ")
        elif turn in case.replaced:
            assert "superseded" in told
        elif case.kept:
            assert told.splitlines()[0] == before.splitlines()[0]
        else:
            assert told.splitlines()[0] != before.splitlines()[0]
