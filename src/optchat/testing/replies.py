"""The scripted answers of the loopback model endpoint, and their shape on the wire."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from optchat.testing.captured import CapturedRequest, compact, count_text_tokens

Json = dict[str, Any]
_CHUNK_CHARS = 4096


class Gate(threading.Event):
    """Hold an answer until the test opens it; ``entered`` says that the request is waiting here."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()

    def wait_entered(self, timeout: float = 30.0) -> None:
        """Return when a request has reached this gate, or fail."""
        if not self.entered.wait(timeout):
            raise TimeoutError("no request reached the gate")

    def open(self) -> None:
        """Let the waiting answer go on."""
        self.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One function call of an answer; the id is made from the request number when left out."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted answer to one model call.

    ``gate`` is waited for before the first byte, ``gate_mid`` after the text and before the finish.
    ``hang`` sends nothing until the client goes away. A ``status`` other than 200 sends
    ``error`` as the body. ``usage`` replaces the counted usage.
    """

    text: str = ""
    tools: tuple[ToolCall, ...] = ()
    gate: Gate | None = None
    gate_mid: Gate | None = None
    hang: bool = False
    status: int = 200
    error: Mapping[str, Any] | str | None = None
    usage: Mapping[str, Any] | None = None
    finish: str | None = None


def text(content: str, **options: Any) -> Reply:
    """Answer with plain text."""
    return Reply(text=content, **options)


def call(name: str, arguments: Mapping[str, Any] | None = None, /, **options: Any) -> Reply:
    """Answer with one tool call."""
    return Reply(tools=(ToolCall(name=name, arguments=arguments or {}),), **options)


def calls(*tools: ToolCall, **options: Any) -> Reply:
    """Answer with several parallel tool calls."""
    return Reply(tools=tools, **options)


def failure(status: int, message: str = "scripted failure", **options: Any) -> Reply:
    """Answer with an HTTP error in the shape of the protocol."""
    body = {"error": {"message": message, "type": "scripted", "code": str(status)}}
    return Reply(status=status, error=body, **options)


def context_overflow() -> Reply:
    """Answer with the error by which the host recognises an over-long prompt."""
    message = "This model's maximum context length is exceeded: prompt is too long"
    body = {"error": {"message": message, "code": "context_length_exceeded"}}
    return Reply(status=400, error=body)


def large(chars: int, **options: Any) -> Reply:
    """Answer with deterministic text of exactly this many characters."""
    line = "the quick brown fox jumps over the lazy dog 0123456789\n"
    return Reply(text=(line * (chars // len(line) + 1))[:chars], **options)


# On the wire.


def stream_chunks(request: CapturedRequest, reply: Reply) -> Iterator[Json]:
    """The chunks of a streamed answer that carry its text and tool calls."""
    for start in range(0, len(reply.text), _CHUNK_CHARS):
        piece = reply.text[start : start + _CHUNK_CHARS]
        yield _chunk(request, {"role": "assistant", "content": piece})
    for tool in _tool_calls(request, reply):
        yield _chunk(request, {"tool_calls": [tool]})


def closing_chunks(request: CapturedRequest, reply: Reply) -> Iterator[Json]:
    """The chunks of a streamed answer that carry its finish reason and usage."""
    yield _chunk(request, {}, finish=_finish(reply))
    yield {**_chunk(request, {}), "choices": [], "usage": _usage(request, reply)}


def whole_answer(request: CapturedRequest, reply: Reply) -> Json:
    """An answer that is not streamed."""
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.tools:
        message["tool_calls"] = _tool_calls(request, reply)
    return {
        "id": f"chatcmpl-{request.number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.model,
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(reply)}],
        "usage": _usage(request, reply),
    }


def _tool_calls(request: CapturedRequest, reply: Reply) -> list[Json]:
    return [
        {
            "index": index,
            "id": tool.id or f"call_{request.number}_{index}",
            "type": "function",
            "function": {"name": tool.name, "arguments": compact(dict(tool.arguments))},
        }
        for index, tool in enumerate(reply.tools)
    ]


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.tools else "stop")


def _usage(request: CapturedRequest, reply: Reply) -> Json:
    if reply.usage is not None:
        return dict(reply.usage)
    prompt = request.prompt_tokens
    answer = reply.text + "".join(t.name + compact(dict(t.arguments)) for t in reply.tools)
    completion = count_text_tokens(answer)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _chunk(request: CapturedRequest, delta: Mapping[str, Any], finish: str | None = None) -> Json:
    return {
        "id": f"chatcmpl-{request.number}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": request.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
