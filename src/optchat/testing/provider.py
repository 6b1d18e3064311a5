"""A model endpoint on loopback that records every request and answers by script.

It speaks the part of the OpenAI chat-completions protocol that a coding agent uses: streamed and
whole answers, text, parallel tool calls, errors, and answers that wait for the test. The host
under test cannot tell it from a slow, obedient model.
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self, cast

from optchat.testing.captured import (
    CapturedRequest,
    Purpose,
    canonical_bytes,
    common_prefix_bytes,
    compact,
    content_text,
    count_text_tokens,
    count_tokens,
    purpose_of,
)
from optchat.testing.replies import (
    Gate,
    Reply,
    ToolCall,
    call,
    calls,
    closing_chunks,
    context_overflow,
    failure,
    large,
    stream_chunks,
    text,
    whole_answer,
)

__all__ = [
    "SUMMARY_TEXT",
    "TITLE_TEXT",
    "CapturedRequest",
    "Gate",
    "LoopbackProvider",
    "Outcome",
    "Purpose",
    "Reply",
    "ToolCall",
    "call",
    "calls",
    "canonical_bytes",
    "common_prefix_bytes",
    "content_text",
    "context_overflow",
    "count_text_tokens",
    "count_tokens",
    "failure",
    "large",
    "text",
]

Json = dict[str, Any]
Outcome = Literal["pending", "answered", "disconnected"]

TITLE_TEXT = "Scripted title"
SUMMARY_TEXT = "## Goal\nScripted summary of the conversation."


class LoopbackProvider:
    """A scripted, recording chat-completions server on 127.0.0.1; use it as a context manager.

    A main request takes the next reply planned for its session, else the next of the first text
    plan that matches its last user message, else what ``responder`` returns, else ``default``.
    Title requests never consume a plan.
    """

    def __init__(self, *, default: Reply | None = None) -> None:
        self.default = default or Reply(text="ok")
        self.responder: Callable[[CapturedRequest], Reply | None] | None = None
        self._condition = threading.Condition()
        self._requests: list[CapturedRequest] = []
        self._outcomes: dict[int, Outcome] = {}
        self._by_session: dict[str, deque[Reply]] = {}
        self._by_text: list[tuple[str, deque[Reply]]] = []
        self._by_purpose: dict[Purpose, deque[Reply]] = {}
        self._gates: set[Gate] = set()
        self._closing = False
        # Closing the write end wakes every handler that waits for its client to go away.
        self._wake_read, self._wake_write = socket.socketpair()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
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
        self.close()

    def close(self) -> None:
        """Open every gate, end every hanging answer and stop serving."""
        with self._condition:
            self._closing = True
            gates = list(self._gates)
        for gate in gates:
            gate.set()
        self._wake_write.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)
        self._wake_read.close()

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._server.server_address[1])

    @property
    def base_url(self) -> str:
        """The base URL to configure as an OpenAI-compatible endpoint."""
        return f"http://127.0.0.1:{self.port}/v1"

    # Scripting.

    def plan(self, session_id: str, *replies: Reply) -> None:
        """Queue replies for the main requests of a session, one a model call."""
        self._track(replies)
        with self._condition:
            self._by_session.setdefault(session_id, deque()).extend(replies)

    def plan_text(self, substring: str, *replies: Reply) -> None:
        """Queue replies for main requests whose last user message contains this text."""
        self._track(replies)
        with self._condition:
            self._by_text.append((substring, deque(replies)))

    def plan_purpose(self, purpose: Purpose, *replies: Reply) -> None:
        """Queue replies for the title, compaction or other requests, of whatever session."""
        self._track(replies)
        with self._condition:
            self._by_purpose.setdefault(purpose, deque()).extend(replies)

    def clear_plans(self) -> None:
        """Forget all replies that were not used."""
        with self._condition:
            self._by_session.clear()
            self._by_text.clear()
            self._by_purpose.clear()

    def unused(self) -> list[Reply]:
        """Return the planned replies that no request has taken."""
        with self._condition:
            queues = [*self._by_session.values(), *(q for _, q in self._by_text)]
            queues += self._by_purpose.values()
            return [reply for queue in queues for reply in queue]

    # Reading.

    def requests(
        self, session_id: str | None = None, purpose: Purpose | None = "main"
    ) -> list[CapturedRequest]:
        """Return the requests so far, in order of arrival; None means any."""
        with self._condition:
            return [
                request
                for request in self._requests
                if (session_id is None or request.session_id == session_id)
                and (purpose is None or request.purpose == purpose)
            ]

    def wait_for(
        self,
        count: int,
        session_id: str | None = None,
        *,
        purpose: Purpose | None = "main",
        timeout: float = 30.0,
    ) -> list[CapturedRequest]:
        """Return the matching requests once there are at least ``count`` of them."""
        with self._condition:
            found = self._condition.wait_for(
                lambda: len(self.requests(session_id, purpose)) >= count, timeout
            )
            seen = self.requests(session_id, purpose)
        if not found:
            raise TimeoutError(f"{len(seen)} of {count} {purpose} requests after {timeout} s")
        return seen

    def wait_outcome(self, number: int, timeout: float = 30.0) -> Outcome:
        """Return how a request ended, once it has: answered, or left by its client."""
        with self._condition:
            if not self._condition.wait_for(lambda: self._outcomes[number] != "pending", timeout):
                raise TimeoutError(f"request {number} is still open after {timeout} s")
            return self._outcomes[number]

    # Called by the handler.

    def accept(self, path: str, raw: bytes, headers: Mapping[str, str]) -> CapturedRequest:
        """Record one request and give it its number."""
        body = cast(Json, json.loads(raw)) if raw else {}
        session_id = headers.get("x-session-id")
        with self._condition:
            request = CapturedRequest(
                number=len(self._requests) + 1,
                path=path,
                raw=raw,
                body=body,
                headers=headers,
                session_id=session_id,
                parent_session_id=headers.get("x-parent-session-id"),
                purpose=purpose_of(body, session_id),
            )
            self._requests.append(request)
            self._outcomes[request.number] = "pending"
            self._condition.notify_all()
        return request

    def reply_for(self, request: CapturedRequest) -> Reply:
        """Take the reply for a request from the plans."""
        with self._condition:
            queue = self._by_purpose.get(request.purpose)
            if queue:
                return queue.popleft()
            if request.purpose == "title":
                return Reply(text=TITLE_TEXT)
            if request.purpose == "compaction":
                return Reply(text=SUMMARY_TEXT)
            queue = self._by_session.get(request.session_id or "")
            if queue:
                return queue.popleft()
            for substring, queue in self._by_text:
                if queue and substring in request.last_user_text:
                    return queue.popleft()
            responder = self.responder
        return (responder(request) if responder else None) or self.default

    def finish(self, number: int, outcome: Outcome) -> None:
        """Record how a request ended."""
        with self._condition:
            self._outcomes[number] = outcome
            self._condition.notify_all()

    def pass_gate(self, gate: Gate | None) -> None:
        """Wait at a gate, unless the provider is closing."""
        if gate is None:
            return
        with self._condition:
            if self._closing:
                return
            self._gates.add(gate)
        gate.entered.set()
        gate.wait()

    def wait_disconnect(self, connection: socket.socket) -> None:
        """Return when the client has closed its connection or the provider closes."""
        select.select([connection, self._wake_read], [], [])

    def _track(self, replies: Sequence[Reply]) -> None:
        with self._condition:
            for reply in replies:
                self._gates.update(gate for gate in (reply.gate, reply.gate_mid) if gate)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    provider: LoopbackProvider

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: a client that goes away is part of many tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Stay silent: the requests are recorded, not logged."""

    def do_GET(self) -> None:
        """Answer the model list, which some clients ask for first."""
        self._send_json(200, {"object": "list", "data": []})

    def do_POST(self) -> None:
        """Record a request and answer it by script."""
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        provider = self.server.provider
        request = provider.accept(self.path, raw, headers)
        reply = provider.reply_for(request)
        try:
            self._answer(provider, request, reply)
        except OSError:
            self.close_connection = True
            provider.finish(request.number, "disconnected")
        else:
            provider.finish(request.number, "disconnected" if reply.hang else "answered")

    def _answer(self, provider: LoopbackProvider, request: CapturedRequest, reply: Reply) -> None:
        if reply.hang:
            provider.wait_disconnect(self.connection)
            self.close_connection = True
            return
        provider.pass_gate(reply.gate)
        if reply.status != 200:
            self._send_json(reply.status, reply.error or {"error": {"message": "scripted"}})
        elif request.body.get("stream"):
            self._stream(provider, request, reply)
        else:
            provider.pass_gate(reply.gate_mid)
            self._send_json(200, whole_answer(request, reply))

    def _stream(self, provider: LoopbackProvider, request: CapturedRequest, reply: Reply) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in stream_chunks(request, reply):
            self._event(chunk)
        provider.pass_gate(reply.gate_mid)
        for chunk in closing_chunks(request, reply):
            self._event(chunk)
        self._chunked(b"data: [DONE]\n\n")
        self._chunked(b"")

    def _event(self, payload: Mapping[str, Any]) -> None:
        self._chunked(b"data: " + compact(payload).encode() + b"\n\n")

    def _chunked(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send_json(self, status: int, payload: Mapping[str, Any] | str) -> None:
        data = (payload if isinstance(payload, str) else compact(payload)).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
