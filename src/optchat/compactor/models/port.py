"""What a summary model is: one call, no tools, text in and text out (§10).

Whatever comes back is a ``Reply`` with a named outcome; an adapter raises for nothing that an
endpoint does. An ``Extractor`` is the other kind: a local function from sources to a line, which
costs nothing, needs no prompt and is not checked as a model's words are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from optchat.limits import SUMMARY_BYTES_MAX
from optchat.refs import ScopeId

Purpose = Literal["leaf", "merge", "turn", "chunk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """What is to become one line, for an extractor.

    ``parts`` are (label, text) in order: the record of a leaf, the two children of a merge, or the
    request, steps and answer of a turn.
    """

    purpose: Purpose
    parts: tuple[tuple[str, str], ...]
    bytes_max: int = SUMMARY_BYTES_MAX


class Extractor(Protocol):
    """A local function that makes lines. Called outside of any transaction."""

    @property
    def name(self) -> str:
        """Stored with each node that it makes."""
        ...

    @property
    def prompt_version(self) -> str: ...

    def summarise(self, request: SummaryRequest) -> str:
        """A line for the request.

        Raises:
            CompactionError: if there is none; the job is retried within bounds.
        """
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a call; its first ``stable`` characters are those of other calls too."""

    role: Literal["user", "assistant"]
    text: str
    stable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a model: never with tools, never streamed to anybody.

    ``temperature`` is above 0 where an answer to the same sources could not be used: a model that
    always takes its likeliest word would give it again.
    """

    purpose: str
    system: str
    messages: tuple[Message, ...]
    output_tokens_max: int
    scope_id: ScopeId
    temperature: float = 0.0

    @property
    def input_bytes(self) -> int:
        texts = (self.system, *(m.text for m in self.messages))
        return sum(len(text.encode("utf-8", "replace")) for text in texts)


class Outcome(StrEnum):
    """How a call ended. What is not ``ANSWER`` has no text that may be used."""

    ANSWER = "answer"
    EMPTY = "empty"
    REASONING_ONLY = "reasoning_only"  # thoughts and no answer
    REFUSED = "refused"  # the model would not
    FILTERED = "filtered"  # the provider would not
    CUT = "cut"  # the output limit came first; half a line is no line
    INVALID = "invalid"  # no UTF-8, no JSON, or not the promised shape
    TOO_LARGE = "too_large"  # an answer beyond all proportion, not read to its end
    REJECTED = "rejected"  # the endpoint does not take this request
    RATE_LIMITED = "rate_limited"
    TIMED_OUT = "timed_out"
    UNAVAILABLE = "unavailable"  # no connection, or an error on the far side
    GONE = "gone"  # no such model there (any more)
    DENIED = "denied"  # no key, a wrong one, or no credit

    @property
    def is_models(self) -> bool:
        """Whether the fault is the endpoint's state, not this request's content."""
        return self in _OF_THE_ENDPOINT


_OF_THE_ENDPOINT = frozenset(
    {
        Outcome.RATE_LIMITED,
        Outcome.TIMED_OUT,
        Outcome.UNAVAILABLE,
        Outcome.GONE,
        Outcome.DENIED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider reports them; input includes what was read from its cache."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of a call.

    ``usage`` is None where none was reported. ``sent`` False: the call never left, and costs
    nothing. ``detail`` is for a person and holds no text of a source. ``model`` is set where the
    far side chose it.
    """

    outcome: Outcome
    text: str = ""
    usage: Usage | None = None
    retry_after_ms: int | None = None
    detail: str = ""
    sent: bool = True
    model: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """A model that cannot be asked now, and why."""

    reason: str


class ChatModel(Protocol):
    """A model behind an endpoint or a host. Called outside of any transaction."""

    @property
    def name(self) -> str:
        """Stored with each node that it makes."""
        ...

    @property
    def timeout_ms(self) -> int:
        """How long a call may take at most; a lease outlives it."""
        ...

    def scopes(self) -> frozenset[ScopeId] | Absent | None:
        """For which scopes it can be asked now: None for all, ``Absent`` for none."""
        ...

    def call(self, call: Call) -> Reply:
        """Ask once. Raises nothing that an endpoint can cause."""
        ...

    def close(self) -> None: ...


SummaryModel = Extractor | ChatModel
