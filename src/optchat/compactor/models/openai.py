"""Any endpoint that speaks OpenAI's chat completions."""

from __future__ import annotations

from typing import Any, cast

from optchat.compactor.models.http import Json, Poster, as_int, error_text, refusal
from optchat.compactor.models.port import Absent, Call, Outcome, Reply, Usage
from optchat.refs import ScopeId

REPLACED = {"max_tokens": "max_completion_tokens"}
"""Newer endpoints refuse the older name."""


class OpenAIModel:
    """One model of one endpoint.

    What an endpoint complains of in a 400 (cache marks, a temperature, a parameter's name) is left
    out from then on, and the call is sent again once without it.
    """

    def __init__(self, poster: Poster, model: str, *, timeout_ms: int, cache_marks: bool) -> None:
        self.name = model
        self.timeout_ms = timeout_ms
        self._poster = poster
        self._unwanted: set[str] = set() if cache_marks else {"cache_control"}

    def scopes(self) -> frozenset[ScopeId] | Absent | None:
        missing = self._poster.missing_key
        return None if missing is None else Absent(missing)

    def close(self) -> None:
        self._poster.close()

    def call(self, call: Call) -> Reply:
        key = self._poster.key
        headers = {"authorization": f"Bearer {key}"} if key else {}
        while True:
            answered = self._poster.post("/chat/completions", self._body(call), headers)
            if isinstance(answered, Reply):
                return answered
            if answered.status == 200:
                return _reply(answered.body)
            complained = self._complaint(error_text(answered.body))
            if answered.status not in (400, 422) or complained is None:
                return refusal(answered, self.name)
            self._unwanted.add(complained)

    def _complaint(self, said: str) -> str | None:
        wanted = ("cache_control", "temperature", "max_tokens")
        return next((w for w in wanted if w in said and w not in self._unwanted), None)

    def _body(self, call: Call) -> Json:
        marked = "cache_control" not in self._unwanted
        limit = "max_tokens"
        if limit in self._unwanted:
            limit = REPLACED[limit]
        body: Json = {
            "model": self.name,
            "messages": [
                {"role": "system", "content": _content(call.system, len(call.system) * marked)},
                *(
                    {"role": m.role, "content": _content(m.text, m.stable * marked)}
                    for m in call.messages
                ),
            ],
            limit: call.output_tokens_max,
        }
        if "temperature" not in self._unwanted:
            body["temperature"] = call.temperature
        return body


def _content(text: str, stable: int) -> str | list[Json]:
    """A message's content, with a cache mark after its first ``stable`` characters."""
    if not stable:
        return text
    marked: Json = {
        "type": "text",
        "text": text[:stable],
        "cache_control": {"type": "ephemeral"},
    }
    return [marked, {"type": "text", "text": text[stable:]}] if text[stable:] else [marked]


def _reply(body: Json) -> Reply:
    usage = _usage(body.get("usage"))
    try:
        choice = cast(Json, body["choices"][0])
        message = cast(Json, choice["message"])
        content: Any = message.get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        if error := body.get("error"):
            return Reply(outcome=Outcome.UNAVAILABLE, usage=usage, detail=str(error)[:200])
        return Reply(outcome=Outcome.INVALID, usage=usage, detail="no choices in the answer")
    if isinstance(content, list):  # some endpoints answer in parts
        parts = cast(list[Any], content)
        content = "".join(str(cast(Json, p).get("text", "")) for p in parts if isinstance(p, dict))
    if content is not None and not isinstance(content, str):
        return Reply(outcome=Outcome.INVALID, usage=usage, detail="the content is no text")
    match choice.get("finish_reason"):
        case "content_filter":
            return Reply(outcome=Outcome.FILTERED, usage=usage)
        case "length" | "max_tokens":
            return Reply(outcome=Outcome.CUT, usage=usage)
        case _:
            pass
    if message.get("refusal"):
        return Reply(outcome=Outcome.REFUSED, usage=usage)
    if not content or not content.strip():
        thought = message.get("reasoning_content") or message.get("reasoning")
        outcome = Outcome.REASONING_ONLY if thought else Outcome.EMPTY
        return Reply(outcome=outcome, usage=usage)
    return Reply(outcome=Outcome.ANSWER, text=content, usage=usage)


def _usage(reported: Any) -> Usage | None:
    if not isinstance(reported, dict):
        return None
    fields = cast(Json, reported)
    details: Any = fields.get("prompt_tokens_details")
    cached = cast(Json, details).get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(
        input_tokens=as_int(fields.get("prompt_tokens")),
        cached_tokens=as_int(cached),
        output_tokens=as_int(fields.get("completion_tokens")),
    )
