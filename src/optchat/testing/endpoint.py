"""A summary model that obeys or misbehaves on script: in process, and as an endpoint on loopback.

``Asked`` reads a call the way a model would; ``obedient`` answers it so that every line may stand.
A script is any function from what was asked to what comes back, so that each fault of a real model
or network is one small function in the test that needs it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

from optchat.compactor.facts import FAILURE, claims, names
from optchat.compactor.models import Absent, Call, Outcome, Reply, Usage, shorten
from optchat.refs import ScopeId

Json = dict[str, Any]

_BLOCK = re.compile(
    r"^\[(?P<code>[a-z]{4}) (?P<head>[^\]\n]*)\]\n(?P<body>.*?)\n\[/(?P=code)\]",
    re.MULTILINE | re.DOTALL,
)
_WRITE = re.compile(r"^Write(?: again, only)?: ([a-z ]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One source of a call."""

    code: str
    head: str
    body: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as a model reads it: which lines are wanted, from what, and whether again."""

    system: str
    texts: tuple[str, ...]

    @property
    def first(self) -> str:
        return self.texts[0]

    @property
    def blocks(self) -> dict[str, Block]:
        fresh = self.first.split("end of earlier\n", 1)[-1]
        return {m["code"]: Block(m["code"], m["head"], m["body"]) for m in _BLOCK.finditer(fresh)}

    @property
    def codes(self) -> list[str]:
        """The lines that are wanted now."""
        return _WRITE.findall(self.texts[-1])[-1].split()

    @property
    def is_retry(self) -> bool:
        return len(self.texts) > 1

    @property
    def earlier(self) -> str:
        if not self.first.startswith("earlier:\n"):
            return ""
        return self.first.partition("earlier:\n")[2].partition("end of earlier\n")[0]


def obedient(asked: Asked) -> str:
    """An admissible line for each code: pieces of the source, no claim that it does not make."""
    made: dict[str, str] = {}
    for code, block in asked.blocks.items():
        made[code] = line_for(block, made, asked.blocks)
    return "\n".join(f"{code}: {made[code]}" for code in asked.codes)


def line_for(
    block: Block, made: dict[str, str] | None = None, blocks: dict[str, Block] | None = None
) -> str:
    """The obedient line of one source; lines of its members are in ``made``."""
    members = [_member(part, made or {}) for part in block.body.split("\n")]
    kind = block.head.split(" ")[0]
    if kind in ("range", "turn"):
        told = [m for m in members if m]
        limit = 280
        if kind == "range":
            shared = (
                40
                if re.search(r"^- s\d+ \w+ \d{4}-|^- .*\.\.\d{4}-", block.body, re.MULTILINE)
                else 0
            )
            limit = min(limit, sum(len(m.encode()) for m in told) - 8 - shared)
        each = max(6, limit // max(1, len(told)) - 3)
        text = "; ".join(_plain(m, each) for m in told[:8])
        if kind == "turn":
            over = [b.body for b in (blocks or {}).values()]
            found = [n for b in (block.body, *over) for n in names(b[:4_000])]
            kept = [n for n in found if not n[0].isdigit() and len(n) < 60 and "`" not in n][:2]
            text = shorten(text, 200) + "".join(f" ({n})" for n in kept if n not in text)
    else:
        found = [n for n in names(block.body[:4_000]) if not n[0].isdigit() and len(n) < 60][:3]
        lead = {"user": "User: ", "assistant": "Agent: "}.get(kind, "")
        text = lead + _plain(block.body, 90)
        lost = [n for n in found if n not in text and "`" not in n]
        text += f" [{', '.join(lost)}]" if lost else ""
        limit = 300
    failed = next((w for w in ("failed", "interrupted", "error") if w in block.head.split()), None)
    text = shorten(text, max(8, limit))
    if failed is not None and not FAILURE.search(text):
        text = f"{failed}: {shorten(text, max(8, limit - 14))}"
    return text


def _member(line: str, made: dict[str, str]) -> str:
    match = re.search(r"= ([a-z]{4})$", line)
    if match is not None and match[1] in made:
        return made[match[1]]
    return line.removeprefix("- ").removeprefix("asked: ").removeprefix("answered: ")


def _plain(text: str, bytes_max: int) -> str:
    """The beginning of a text without what would claim, quote, command or look like markup."""
    flat = " ".join(re.sub(r"[\"“”`<>|{}\[\]#*\\]", " ", text).split())
    cut = shorten(flat, bytes_max)
    whole = cut.rstrip("…")
    if whole != cut:  # half a name would be another name
        whole = whole.rsplit(" ", 1)[0] if " " in whole else whole[: bytes_max // 2]
    for word in claims(whole).values():
        whole = re.sub(rf"\b{re.escape(word)}\b", "", whole, flags=re.IGNORECASE)
    whole = re.sub(r"\b(?:ignore|you are now|you must|system:)\b", "", whole, flags=re.IGNORECASE)
    return " ".join(whole.split()).lstrip("-+=•. 0123456789)") or "no words"


Script = Callable[[Asked], Reply | str]


@dataclass(slots=True)
class ScriptedModel:
    """A ``ChatModel`` in process; counts what it was asked. ``usage`` is bytes over four."""

    script: Script = obedient
    name: str = "scripted"
    timeout_ms: int = 60_000
    reports_usage: bool = True
    available: frozenset[ScopeId] | Absent | None = None
    calls: list[Call] = field(default_factory=list[Call])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def scopes(self) -> frozenset[ScopeId] | Absent | None:
        return self.available

    def call(self, call: Call) -> Reply:
        with self._lock:
            self.calls.append(call)
        asked = asked_of(call)
        answer = self.script(asked)
        if isinstance(answer, Reply):
            return answer
        if not self.reports_usage:
            return Reply(outcome=Outcome.ANSWER, text=answer)
        usage = Usage(
            input_tokens=call.input_bytes // 4,
            cached_tokens=0,
            output_tokens=len(answer.encode("utf-8", "replace")) // 4,
        )
        return Reply(outcome=Outcome.ANSWER, text=answer, usage=usage)

    def close(self) -> None:
        """Nothing is open."""


def asked_of(call: Call) -> Asked:
    """A call of the port as a model reads it."""
    return Asked(call.system, tuple(m.text for m in call.messages))


@dataclass(slots=True)
class Raw:
    """A response as bytes, for what no decent endpoint would send."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    hang: bool = False
    repeat: int = 1  # the body is sent so many times, without being held so many times


@dataclass(frozen=True, slots=True)
class Received:
    """One recorded request."""

    path: str
    headers: dict[str, str]
    body: Json

    @property
    def asked(self) -> Asked:
        messages = cast(list[Json], self.body["messages"])
        system = self.body.get("system")
        if system is None:
            system, messages = messages[0]["content"], messages[1:]
        return Asked(_text(system), tuple(_text(m["content"]) for m in messages))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in cast(list[Json], content))


def chat_body(text: str | None, **message: Any) -> Json:
    """A chat completion with ``text``; more fields of the message by name."""
    finish = message.pop("finish_reason", "stop")
    return {
        "id": "x",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
        "usage": {"prompt_tokens": 1_000, "completion_tokens": 50},
    }


def messages_body(text: str | None, stop_reason: str = "end_turn") -> Json:
    """An answer of Anthropic's messages."""
    content = [{"type": "text", "text": text}] if text is not None else []
    usage = {
        "input_tokens": 100,
        "cache_read_input_tokens": 800,
        "cache_creation_input_tokens": 100,
        "output_tokens": 50,
    }
    return {"type": "message", "content": content, "stop_reason": stop_reason, "usage": usage}


HttpScript = Callable[[Received], Raw | Json | str]


class Endpoint:
    """A loopback endpoint that speaks both protocols; use it as a context manager."""

    def __init__(self, script: HttpScript | None = None) -> None:
        self.script: HttpScript = script or (lambda received: obedient(received.asked))
        self.received: list[Received] = []
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.endpoint = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    @property
    def url(self) -> str:
        """The base to configure; chat completions and messages are both below it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, received: Received) -> Raw:
        with self._lock:
            self.received.append(received)
        made = self.script(received)
        if isinstance(made, Raw):
            return made
        if isinstance(made, str):
            body = messages_body(made) if received.path.endswith("/messages") else chat_body(made)
        else:
            body = made
        return Raw(body=json.dumps(body).encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    endpoint: Endpoint

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: a client that goes away is part of many tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Stay silent: the requests are recorded, not logged."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        made = self.server.endpoint.answer(Received(self.path, headers, json.loads(raw)))
        if made.hang:
            self.server.endpoint.released.wait(30)
            self.close_connection = True
            return
        self.send_response(made.status)
        for name, value in made.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(made.body) * made.repeat))
        self.end_headers()
        try:
            for _ in range(made.repeat):
                self.wfile.write(made.body)
        except OSError:
            self.close_connection = True
