"""Anthropic's messages."""

from __future__ import annotations

from typing import Any, cast

from optchat.compactor.models.http import Json, Poster, as_int, error_text, refusal
from optchat.compactor.models.port import Absent, Call, Outcome, Reply, Usage
from optchat.refs import ScopeId

API_VERSION = "2023-06-01"
MARK: Json = {"type": "ephemeral"}


class AnthropicModel:
    """One model; cache marks after the instructions and after the shared context.

    A 400 that complains of the marks turns them off from then on.
    """

    def __init__(self, poster: Poster, model: str, *, timeout_ms: int) -> None:
        self.name = model
        self.timeout_ms = timeout_ms
        self._poster = poster
        self._marks = True

    def scopes(self) -> frozenset[ScopeId] | Absent | None:
        missing = self._poster.missing_key
        return None if missing is None else Absent(missing)

    def close(self) -> None:
        self._poster.close()

    def call(self, call: Call) -> Reply:
        headers = {"anthropic-version": API_VERSION, "x-api-key": self._poster.key or ""}
        while True:
            answered = self._poster.post("/v1/messages", self._body(call), headers)
            if isinstance(answered, Reply):
                return answered
            if answered.status == 200:
                return _reply(answered.body)
            if answered.status == 529:  # "overloaded": theirs, and it passes
                return Reply(
                    outcome=Outcome.RATE_LIMITED,
                    retry_after_ms=answered.retry_after_ms,
                    detail="HTTP 529: overloaded",
                    sent=False,
                )
            complains = "cache_control" in error_text(answered.body)
            if answered.status != 400 or not complains or not self._marks:
                return refusal(answered, self.name)
            self._marks = False

    def _body(self, call: Call) -> Json:
        return {
            "model": self.name,
            "max_tokens": call.output_tokens_max,
            "system": self._blocks(call.system, len(call.system)),
            "messages": [
                {"role": m.role, "content": self._blocks(m.text, m.stable)} for m in call.messages
            ],
        }

    def _blocks(self, text: str, stable: int) -> list[Json]:
        """A text as blocks, with a cache mark after its first ``stable`` characters."""
        if not stable or not self._marks:
            return [{"type": "text", "text": text}]
        marked: Json = {"type": "text", "text": text[:stable], "cache_control": MARK}
        return [marked, {"type": "text", "text": text[stable:]}] if text[stable:] else [marked]


def _reply(body: Json) -> Reply:
    usage = _usage(body.get("usage"))
    blocks: Any = body.get("content")
    if not isinstance(blocks, list):
        return Reply(outcome=Outcome.INVALID, usage=usage, detail="no content in the answer")
    found = [cast(Json, b) for b in cast(list[Any], blocks) if isinstance(b, dict)]
    texts = [b.get("text") for b in found if b.get("type") == "text"]
    if any(not isinstance(text, str) for text in texts):
        return Reply(outcome=Outcome.INVALID, usage=usage, detail="the content is no text")
    match body.get("stop_reason"):
        case "refusal":
            return Reply(outcome=Outcome.REFUSED, usage=usage)
        case "max_tokens":
            return Reply(outcome=Outcome.CUT, usage=usage)
        case _:
            pass
    text = "".join(cast(list[str], texts))
    if not text.strip():
        thought = any(b.get("type") in ("thinking", "redacted_thinking") for b in found)
        outcome = Outcome.REASONING_ONLY if thought else Outcome.EMPTY
        return Reply(outcome=outcome, usage=usage)
    return Reply(outcome=Outcome.ANSWER, text=text, usage=usage)


def _usage(reported: Any) -> Usage | None:
    if not isinstance(reported, dict):
        return None
    fields = cast(Json, reported)
    cached = as_int(fields.get("cache_read_input_tokens"))
    written = as_int(fields.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=as_int(fields.get("input_tokens")) + cached + written,
        cached_tokens=cached,
        output_tokens=as_int(fields.get("output_tokens")),
    )
