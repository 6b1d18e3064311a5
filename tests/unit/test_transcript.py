"""What an import reads of the host is, byte for byte, what the plugin would tell of it (§3).

The plugin's own ``map.ts`` and the reading here get the same random messages, written as the host
writes them.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from optchat.errors import BadInput
from optchat.evaluation import hoststore
from optchat.evaluation.files import Message, Session, Text, Tool
from optchat.hosts.opencode.transcript import javascript, place
from optchat.hosts.opencode.transcript.forks import find_origin
from optchat.hosts.opencode.transcript.mapping import map_messages
from optchat.hosts.opencode.transcript.messages import (
    HostMessage,
    HostPart,
    HostSession,
    Info,
    Times,
    decode,
)
from optchat.hosts.opencode.transcript.source import open_source
from optchat.hosts.opencode.transcript.source import read as read_session
from optchat.wire import ToolPart

LATER = 2_000_000_000_000
ROOT = Path(__file__).parents[2]
ESBUILD = ROOT / "node_modules" / ".bin" / "esbuild"
RUNNER = """
import { readFileSync } from "node:fs";
import { mapMessages } from "./map.mjs";
const asked = JSON.parse(readFileSync(0, "utf8"));
const told = asked.map(({ messages, settled }) => {
  const begun = new Set(settled ? messages.map((m) => m.info.id) : []);
  const watched = { opens: new Map(), loaded: new Set(), begun, settled };
  return mapMessages(messages, watched);
});
process.stdout.write(JSON.stringify(told));
"""
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not ESBUILD.exists(), reason="needs Node and make setup"
)
TEXTS = (
    "", "plain", "größer ✓ 😀", "a\ud83d half", "\udc00", '\x00\x1f\x7f\u2028"\\/', "<b>&amp;",
    "[Attached image/png: x.png]", "see\n[Attached a b: c]", "\ufeffbom",
)  # fmt: skip
URLS = (
    "file:///tmp/a.txt", "data:text/plain;base64,YWJj", "data:text/plain;base64,YQ==",
    "data:image/png;base64,", "data:,a%20b", "data:,%zz%F0%9F%98%80", "data:,%ff", "data:nothing",
    "https://example.org/x?y=1",
)  # fmt: skip


class Dice(random.Random):
    """Random messages of the host, with what is odd more often than it is."""

    def some(self, **fields: Any) -> dict[str, Any]:
        """A part of the fields, in their order."""
        return {name: value for name, value in fields.items() if self.random() < 0.7}

    def value(self, depth: int = 0) -> Any:
        kind = self.randrange(9 if depth < 3 else 6)
        if kind == 0:
            return self.choice(TEXTS)
        if kind == 1:
            return self.choice((True, False, None))
        if kind == 2:
            return self.randrange(-10, 10)
        if kind == 3:
            return self.choice((2**53, 2**60, 10**21, -(10**25), 1e21, 1e-7, 123.0, -0.0, 5e-324))
        if kind in (4, 5):
            return self.uniform(-1, 1) * 10 ** self.randint(-12, 25)
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.randrange(4))]
        keys = ("b", "a", "10", "2", "01", "-1", "4294967294", "4294967295", "é", "")
        return {k: self.value(depth + 1) for k in self.sample(keys, self.randrange(6))}

    def file(self) -> dict[str, Any]:
        named = self.some(filename=self.choice(TEXTS))
        return {"type": "file", "mime": "text/plain", **named, "url": self.choice(URLS)}

    def tool(self) -> dict[str, Any]:
        metadata = self.some(
            truncated=self.choice((True, False, "yes")),
            outputPath=self.choice(("/data/tool-output/tool_1", 7)),
            optchat={"refs": ["pub:1"], "snapshot": "pub<2 epoch 1", "sha256": "ab"},
        )
        state = self.some(
            input={"a": self.value()} if self.random() < 0.9 else self.value(),
            output=self.choice(TEXTS),
            error=self.choice(TEXTS),
            title=self.choice(TEXTS),
            metadata=metadata,
            time=self.some(start=5, end=7),
            attachments=[self.file() | {"id": "prt_f"} for _ in range(self.randrange(3))],
        )
        state["status"] = self.choice(("pending", "running", "completed", "error"))
        name = self.choice(("bash", "task", "memory_search", "memory_zoom"))
        return {"type": "tool", "tool": name, "callID": "c", "state": state}

    def part(self) -> dict[str, Any]:
        match self.randrange(10):
            case 0 | 1 | 2:
                flags = self.some(synthetic=self.choice((True, False)))
                ignored = {"ignored": True} if self.random() < 0.1 else {}
                return {"type": "text", "text": self.choice(TEXTS), **flags, **ignored}
            case 3 | 4 | 5:
                return self.tool()
            case 6:
                return self.file()
            case 7:
                return {"type": "subtask", "prompt": "look", "agent": "x", "description": "y"}
            case _:
                kind = self.choice(("reasoning", "step-start", "patch", "agent", "snapshot"))
                return {"type": kind, "text": "thought", "name": "n", "hash": "h", "files": []}

    def message(self, number: int) -> dict[str, Any]:
        info: dict[str, Any] = {"role": self.choice(("user", "assistant"))}
        info["time"] = {"created": 1_700_000_000_000 + number}
        parts = [self.part() for _ in range(self.randrange(4))]
        if info["role"] == "user":
            if self.random() < 0.15:
                parts.append({"type": "compaction", "auto": True, "overflow": self.random() < 0.6})
            elif self.random() < 0.1:
                mark = {"compaction_continue": True}
                parts.append({"type": "text", "text": "Continue", "metadata": mark})
            elif self.random() < 0.5:
                parts = [{"type": "text", "text": "the same"}]
        else:
            info["time"] |= self.some(completed=9)
            info |= self.some(finish=self.choice(("stop", "tool-calls", "unknown", "length")))
            if self.random() < 0.2:
                info["summary"] = True
            if self.random() < 0.2:
                info["error"] = {
                    "name": self.choice(("MessageAbortedError", "APIError")),
                    "data": {},
                }
        return {
            "info": {"id": f"msg_{number}", **info},
            "parts": [{"id": f"prt_{number}_{i}", **part} for i, part in enumerate(parts)],
        }


def read(messages: list[dict[str, Any]]) -> list[HostMessage]:
    """The messages as the rows of the host's store have them: JSON without ids."""
    return [
        HostMessage(
            id=m["info"]["id"],
            info=decode(javascript.stringify(m["info"]), Info),
            parts=[decode(json.dumps(part), HostPart) for part in m["parts"]],
        )
        for m in messages
    ]


@needs_node
def test_the_plugin_and_an_import_map_the_same_messages_alike(tmp_path: Path) -> None:
    """§3: roles, parts, digests, ends."""
    dice = Dice(7)
    asked: list[Any] = [
        {
            "messages": [dice.message(n) for n in range(dice.randrange(1, 9))],
            "settled": dice.random() < 0.5,
        }
        for _ in range(1500)
    ]
    subprocess.run(
        [ESBUILD, ROOT / "plugins/opencode/src/map.ts", "--bundle", "--format=esm",
         "--platform=node", "--log-level=error", f"--outfile={tmp_path}/map.mjs"],
        check=True,
    )  # fmt: skip
    (tmp_path / "run.mjs").write_text(RUNNER, encoding="utf-8")
    run = subprocess.run(
        ["node", tmp_path / "run.mjs"],
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=True,
    )
    for given, theirs in zip(asked, json.loads(run.stdout), strict=True):
        ours = map_messages(read(given["messages"]), is_settled=given["settled"])
        for mine, other in zip(ours, theirs, strict=True):
            told = msgspec.to_builtins(mine)
            for name in ("id", "role", "final", "created_ms"):
                assert told[name] == other[name]
            assert told["terminal"] == other.get("terminal")
            assert told["digest"] == other["digest"], (mine.parts, other["parts"])


def test_half_a_character_is_replaced_as_the_plugin_does() -> None:
    """§3: no UTF-8 can carry it, and one such part must not keep a session out."""
    part = decode('{"type":"text","text":"cut \\ud83d"}', HostPart)
    assert part.text == "cut \ufffd"


@pytest.mark.parametrize("given", [f"{'[' * 5000}{']' * 5000}", "[" * 600 + "0.5" + "]" * 600])
def test_a_call_that_is_nested_beyond_reading_is_its_session_s_error(tmp_path: Path, given: str):
    """§3: that session is named as unreadable, and an import goes on with the next."""
    call = Tool(id="prt_1", tool="bash", input={}, output="x")
    message = Message(id="msg_1", role="assistant", created=1, parts=[call])
    session = Session(
        id="ses_1", title="t", directory="/work", created=1, updated=1, messages=[message]
    )
    database = tmp_path / "opencode.db"
    hoststore.write(database, [session])
    db: Any = apsw.Connection(str(database))
    db.execute("update part set data = replace(data, '{}', ?)", (given,))
    db.close()
    source = open_source(database)
    with pytest.raises(BadInput, match="does not read as expected"):
        read_session(source, source.sessions()[0], [], LATER)
    source.close()


def test_a_store_is_told_from_one_that_was_made_anew_in_its_place(tmp_path: Path) -> None:
    """§12: the name has the file's own identity in it, and leads back to its path."""
    path = tmp_path / "a:b" / "opencode.db"
    path.parent.mkdir()
    path.write_bytes(b"one")
    name = place.identity(path)
    assert place.path_of(name) == path
    assert place.is_there(name)
    path.rename(tmp_path / "kept.db")
    assert not place.is_there(name)
    path.write_bytes(b"two")
    assert place.identity(path) != name
    assert place.path_of("a store") is None


def test_the_files_of_earlier_versions_read_as_the_tables_do(tmp_path: Path) -> None:
    """§3: the same sessions, once as a file for each thing and once in a database."""
    sessions = [
        Session(
            id=f"ses_{n}",
            title=f"title {n}",
            directory="/work",
            created=1_700_000_000_000 + n,
            updated=1_700_000_100_000 + n,
            messages=[
                Message(
                    id=f"msg_{n}_{m}",
                    role="user" if m % 2 == 0 else "assistant",
                    created=1_700_000_000_000 + n + m,
                    parts=[
                        Text(id=f"prt_{n}_{m}a", text=f"said {m}"),
                        Tool(id=f"prt_{n}_{m}b", tool="bash", input={"2": 1, "1": 2}, output="x"),
                    ],
                )
                for m in range(4)
            ],
        )
        for n in range(3)
    ]
    database = tmp_path / "opencode.db"
    hoststore.write(database, sessions)
    tables = open_source(database)
    folder = tmp_path / "opencode" / "storage"

    def put(name: str, value: Any) -> None:
        file = folder / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value, indent=2), encoding="utf-8")

    put("project/prj_0000", {"id": "prj_0000", "worktree": "/work", "vcs": "git"})
    for session in tables.sessions():
        time = {"created": session.created_ms, "updated": session.updated_ms}
        known = {"id": session.id, "projectID": session.project_id, "directory": session.directory}
        put(f"session/prj_0000/{session.id}", {**known, "title": session.title, "time": time})
    db: Any = apsw.Connection(str(database))
    for name, of, data in db.execute("select id, session_id, data from message"):
        put(f"message/{of}/{name}", {"id": name, "sessionID": of, **json.loads(data)})
    for name, of, data in db.execute("select id, message_id, data from part"):
        put(f"part/{of}/{name}", {"id": name, "messageID": of, **json.loads(data)})
    db.close()
    files = open_source(folder.parent)
    mine, theirs = files.sessions(), tables.sessions()
    assert [s.id for s in mine] == [s.id for s in theirs]
    for ours, other in zip(mine, theirs, strict=True):
        told, expected = (
            read_session(files, ours, [], LATER),
            read_session(tables, other, [], LATER),
        )
        expected.session.store = told.session.store
        assert told == expected
        assert told.messages
    # What a person has gone back behind is dead here too.
    revert = {"messageID": "msg_0_2"}
    file = folder / "session/prj_0000/ses_0.json"
    put("session/prj_0000/ses_0", {**json.loads(file.read_text()), "revert": revert})
    first = files.sessions()[0]
    assert [m.id for m in files.messages(first)] == ["msg_0_0", "msg_0_1"]


NEW_TABLES = """
create table project (id text primary key, worktree text not null, sandboxes text not null);
create table event_sequence (aggregate_id text primary key, seq integer not null);
create table session_v2 (id text primary key, project_id text not null, parent_id text,
  fork_session_id text, directory text not null, title text, metadata text, revert text,
  time_created integer not null, time_updated integer not null, time_archived integer);
create table session_message (id text primary key, session_id text not null, type text not null,
  seq integer not null, data text not null);
insert into project values ('prj', '/work', '["/work2"]');
insert into event_sequence values ('ses_1', 47);
insert into session_v2 values
  ('ses_1', 'prj', null, null, '/work2/sub', null, null, null, 100, 200, null),
  ('ses_2', 'prj', null, 'ses_1', '/work', 'a fork', null, '{"messageID":"m2_3"}', 150, 200, null),
  ('ses_3', 'prj', null, null, '/work', 'ours', '{"optchat":{"internal":true}}', null, 1, 1, null);
"""
NEW_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("user", {"text": "do it", "files": [{"mime": "text/plain", "name": "a", "uri": "file:///a"}]}),
    ("assistant", {"finish": "tool-calls", "content": [
        {"type": "reasoning", "text": "kudu"},
        {"type": "tool", "id": "call_1", "name": "shell", "state": {
            "status": "completed", "input": {"command": "ls"},
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}},
        {"type": "tool", "id": "call_2", "name": "read", "state": {
            "status": "error", "input": {}, "error": {"type": "unknown", "message": "none"}}},
    ]}),
    ("system", {"text": "<env>"}),
    ("assistant", {"content": [{"type": "text", "text": "half"}]}),
    ("idle", {"outcome": "interrupted"}),
    ("user", {"text": "again"}),
    ("assistant", {"finish": "error", "error": {"type": "provider", "message": "no"}}),
    ("idle", {"outcome": "failed"}),
]  # fmt: skip


def test_the_tables_of_the_next_version_read_in_the_same_terms(tmp_path: Path) -> None:
    """§3: rows as they were seen on 2.0.14; no thought, and nothing of the host's machinery."""
    path = tmp_path / "opencode.db"
    db: Any = apsw.Connection(str(path))
    db.execute(NEW_TABLES)
    for session, prefix in (("ses_1", "m1"), ("ses_2", "m2")):
        for seq, (kind, data) in enumerate(NEW_ROWS):
            row = json.dumps({"time": {"created": 100 + seq, "completed": 100 + seq}, **data})
            name = f"{prefix}_{seq}"
            db.execute("insert into session_message values (?, ?, ?, ?, ?)",
                       (name, session, kind, seq, row))  # fmt: skip
    db.close()
    source = open_source(path)
    internal, first, fork = source.sessions()
    assert internal.internal
    assert (first.worktree, first.project_directory) == ("/work2", "/work")
    told = read_session(source, first, [], LATER)
    assert [(m.role, m.terminal) for m in told.messages] == [
        ("user", None),
        ("assistant", None),
        ("assistant", "interrupted"),
        ("user", None),
        ("assistant", "failed"),
    ]
    assert "kudu" not in msgspec.json.encode(told).decode()
    call, failed = told.messages[1].parts or []
    assert isinstance(call, ToolPart)
    assert isinstance(failed, ToolPart)
    assert (call.tool, call.input_json, call.output) == ("shell", '{"command":"ls"}', "a\nb")
    assert (failed.status, failed.error) == ("error", "none")
    copied = read_session(source, fork, [], LATER)
    assert copied.session.fork_of == "ses_1"
    # Its copies have the same digests, up to where it was gone back to.
    digests = [m.digest for m in told.messages]
    assert [m.digest for m in copied.messages] == digests[: len(copied.messages)]
    assert len(copied.messages) == 2
    source.close()


@pytest.mark.parametrize("since", [{}, {"directory": "/elsewhere"}, {"archived": True}])
def test_a_copy_s_origin_is_found_whatever_has_become_of_it(since: dict[str, Any]) -> None:
    """§12: by the times of its messages, of a project's sessions; no other one shares more."""

    def session(id_: str, created_ms: int, **fields: Any) -> HostSession:
        known = {"project_id": "p", "directory": "/work", "updated_ms": 900, "title": "t"}
        return HostSession(id=id_, created_ms=created_ms, **{**known, **fields})

    times = {"origin": [(10, "user"), (20, "assistant"), (30, "user")], "other": [(10, "user")]}
    sessions = [
        session("origin", 5, **since),
        session("other", 6),
        copy := session("copy", 25, title="t (fork #1)"),
    ]
    messages = [
        HostMessage(id=f"m{at}", info=Info(role=role, time=Times(created=at)), parts=[])
        for at, role in times["origin"]
    ]  # the last is the copy's own

    def asked(id_: str, count: int) -> list[tuple[int, str]]:
        return times[id_][:count]

    assert find_origin(copy, messages, sessions, asked) == "origin"
    assert find_origin(copy, messages, sessions[1:], asked) == "other"
    assert find_origin(copy, messages, sessions[2:], asked) is None
