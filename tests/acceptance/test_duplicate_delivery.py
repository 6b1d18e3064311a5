"""Delivering again changes nothing, whatever the order (§3, §5, §16).

The plugin's events only wake it; what it delivers are its synchronisations, each with every final
message and terminal outcome so far. They are recorded on the socket, byte for byte, and sent again.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import shutil
import socket
import socketserver
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from optchat.coordinator.paths import Paths
from optchat.testing.provider import Gate, Reply, ToolCall, calls, failure, text
from optchat.wire import PROTOCOL, PROTOCOL_HEADER
from tests.e2e.support import Memory, check_covered, eventually, running_memory

Json = dict[str, Any]

# Answers `optchat ensure`, but names the recorder's socket instead of the coordinator's.
ENSURE = """
import json, subprocess, sys
command = [sys.executable, "-m", "optchat", "ensure", "--json"]
answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
open(sys.argv[1] + ".real", "w").write(answer["socket"])
print(json.dumps({**answer, "socket": sys.argv[1]}), flush=True)
"""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("optchat", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def post(socket_path: str, path: str, body: bytes) -> tuple[int, bytes]:
    connection = UnixConnection(socket_path)
    headers = {"content-type": "application/json", PROTOCOL_HEADER: str(PROTOCOL)}
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    status, answer = response.status, response.read()
    connection.close()
    return status, answer


class Recorder(socketserver.ThreadingUnixStreamServer):
    """Passes on what the plugin says to the coordinator, and keeps it."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Passing)
        self.path = str(path)
        self.kept: list[tuple[str, bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A host that is stopped leaves its connections."""

    def syncs(self, session: str) -> list[bytes]:
        """The synchronisations of one session, as they were sent, each content once."""
        found = (body for path, body in list(self.kept) if path == "/v1/sync")
        return [body for body in found if json.loads(body)["session"]["id"] == session]


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def log_message(self, *args: Any) -> None:
        """Stay silent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.kept.append((self.path, body))
        real = Path(self.server.path + ".real").read_text(encoding="utf-8")
        status, answer = post(real, self.path, body)
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@dataclass(frozen=True)
class Recorded:
    memory: Memory
    recorder: Recorder

    def deliver(self, body: bytes) -> tuple[int, Json]:
        status, answer = post(str(Paths(self.memory.home).socket), "/v1/sync", body)
        return status, json.loads(answer)

    def account(self, session: str) -> Json:
        """All that a repeated delivery could have changed: counts, and every turn as it opens."""
        memory = self.memory
        status = memory.wait_quiet()
        counts = memory.counts(session)
        refs = [f"pub:{n}" for n in range(memory.publications())]
        return {
            "records": status.records,
            "publications": memory.publications(),
            "jobs": status.jobs,
            "session": counts,
            "turns": [self.opened(ref) for ref in refs],
        }

    def opened(self, ref: str) -> str:
        body = {
            "tool": "memory_zoom",
            "args_json": json.dumps({"ref": ref}),
            "directory": str(self.memory.host.project),
        }
        path = str(Paths(self.memory.home).socket)
        status, answer = post(path, "/v1/tool", json.dumps(body).encode())
        assert status == 200, answer
        return json.loads(answer)["output"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = Path(tempfile.mkdtemp(prefix="optchat-rec-"))
    recorder = Recorder(folder / "socket")
    command = (sys.executable, "-c", ENSURE, recorder.path)
    try:
        with running_memory(tmp_path_factory.mktemp("m"), command=command) as memory:
            yield Recorded(memory, recorder)
    finally:
        recorder.shutdown()
        recorder.server_close()
        shutil.rmtree(folder, ignore_errors=True)


def script(recorded: Recorded, title: str) -> str:
    """Four turns with every outcome and parallel calls; its session."""
    memory = recorded.memory
    host = memory.host
    session = host.create_session(title=title)
    bash = [
        ToolCall(name="bash", arguments={"command": f"echo {n}", "description": "say"})
        for n in ("one", "two")
    ]
    memory.turn(session, f"{title}: begin", text("ok"))
    memory.turn(session, f"{title}: work", calls(*bash), text("worked"))
    memory.turn(session, f"{title}: fail", failure(400, "no such thing"))
    with contextlib.closing(host.events()) as events:
        memory.provider.plan(session, Reply(text="half an answer", gate_mid=Gate()))
        host.prompt_async(session, f"{title}: stop")
        events.wait(
            lambda e: e["type"] == "message.part.delta" and e["properties"]["sessionID"] == session
        )
        host.abort(session)
        events.wait_final(session)
    memory.wait_published(session, 4)
    return session


def shuffled(bodies: list[bytes]) -> list[bytes]:
    return random.Random(7).sample(bodies, len(bodies))


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(list, id="as-sent"),
        pytest.param(lambda bodies: bodies[::-1], id="backwards"),
        pytest.param(shuffled, id="shuffled"),
    ],
)
def test_every_delivery_three_times_in_any_order_changes_nothing(
    recorded: Recorded, order: Callable[[list[bytes]], list[bytes]], request: Any
) -> None:
    """§3, §5, §16; I5. Final messages and terminal outcomes alike, late ones and repeated ones."""
    session = script(recorded, request.node.callspec.id)
    before = recorded.account(session)
    bodies = recorded.recorder.syncs(session)
    terminals = {
        message["terminal"] for body in bodies for message in json.loads(body)["messages"]
        if message.get("terminal")
    }  # fmt: skip
    assert terminals == {"completed", "failed", "interrupted"}
    assert before["session"].records == 1 + 1 + 1 + 4 + 1 + 1 + 1 + 1

    for _ in range(3):
        for body in order(bodies):
            status, answer = recorded.deliver(body)
            assert status == 200, answer
            assert answer["disabled"] is None
    assert recorded.account(session) == before


def test_a_restarted_plugin_tells_everything_again_and_adds_only_what_is_new(
    recorded: Recorded,
) -> None:
    """§13, point 3; I5. What a plugin knows of earlier deliveries is lost with its process."""
    memory = recorded.memory
    session = script(recorded, "restart")
    before = recorded.account(session)
    told = len(recorded.recorder.syncs(session))
    memory.host.restart()
    memory.turn(session, "after the restart", text("ok"))

    again = [json.loads(body) for body in recorded.recorder.syncs(session)[told:]]
    first = memory.host.messages(session)[0]["info"]["id"]
    assert [m for body in again for m in body["messages"] if m["id"] == first and m["parts"]]
    after = recorded.account(session)
    assert after["records"] == before["records"] + 2
    assert after["publications"] == before["publications"] + 1
    assert after["session"].turns == before["session"].turns + 1
    assert [_unserved(t) for t in after["turns"][:-1]] == [_unserved(t) for t in before["turns"]]

    for body in shuffled(recorded.recorder.syncs(session)):
        recorded.deliver(body)
    assert recorded.account(session) == after


def _unserved(opened: str) -> str:
    """An answer without the line that names the snapshot served."""
    return "\n".join(x for x in opened.splitlines() if not x.startswith("snapshot: "))


def test_two_identical_messages_are_two_records(recorded: Recorded) -> None:
    """§3: what is the same is the event, not the words."""
    memory = recorded.memory
    session = memory.host.create_session(title="twice")
    memory.turn(session, "ok", text("ok"))
    memory.turn(session, "ok", text("ok"))
    counts = memory.counts(session)
    assert counts is not None
    assert (counts.turns, counts.records, counts.published) == (2, 4, 2)
    check_covered(memory, session)


@pytest.mark.parametrize("digest", ["other", "same"])
def test_other_content_under_one_key_is_a_visible_error(recorded: Recorded, digest: str) -> None:
    """§3: an ingestion error, whether or not the digest owns up; the sealed record stands.

    ``optchat status --json`` tells it to the person.
    """
    memory = recorded.memory
    session = memory.host.create_session(title=f"conflict {digest}")
    memory.turn(session, "the limit?", text("the limit is 40"))
    before = recorded.account(session)
    delivered = [json.loads(body) for body in recorded.recorder.syncs(session)]
    forged = next(b for b in reversed(delivered) if b["messages"][-1]["parts"])
    message = forged["messages"][-1]
    assert message["parts"][-1]["text"] == "the limit is 40"
    message["parts"][-1]["text"] = "the limit is 50"
    forged["observed_ms"] = delivered[-1]["observed_ms"]
    if digest == "other":
        message["digest"] = "0" * 64

    status, answer = recorded.deliver(json.dumps(forged).encode())
    assert (status, answer.get("error", {}).get("code")) == (409, "event_conflict")
    after = recorded.account(session)
    assert (after["records"], after["turns"]) == (before["records"], before["turns"])

    def told() -> list[str]:
        shown = memory.optchat_json("status")["notices"]
        name = memory.name(session)
        return [notice for notice in shown if message["id"] in notice or f"{name} " in notice]

    assert eventually(told, 5, what="a notice in optchat status --json")
