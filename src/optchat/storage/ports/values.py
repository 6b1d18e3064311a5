"""What crosses the port besides the core's own values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from optchat.refs import BlobHash, Csn, ScopeId, SessionId, TurnId


class JobKind(StrEnum):
    NODE = "node"  # the summary of one session or scope tree node
    TURN = "turn"  # the publication summary of a finished turn


class JobState(StrEnum):
    WAITING = "waiting"  # some dependency is not durable yet
    READY = "ready"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"  # bounded attempts are used up; visible, the sources are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One unit of summarising; unique on (kind, target, input_hash).

    ``target`` is the canonical name of what it makes: ``str(tree)#start+count`` for a node, the
    turn id for a turn. ``token`` grows with every lease: a result that carries an older one is
    fenced.
    """

    job_id: str
    kind: JobKind
    target: str
    session_id: SessionId | None
    scope_id: ScopeId
    input_hash: str
    state: JobState
    token: int = 0
    attempts: int = 0
    lease_until_ms: int = 0
    not_before_ms: int = 0
    worker: str = ""
    error: str = ""

    @property
    def queue(self) -> str:
        """Whose turn it is when this job is claimed: the session's, else the scope's."""
        return self.session_id or self.scope_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One row of the meter: a call to a summary model, written before it is sent (I12).

    ``outcome`` is "sent" until the answer is there; a row that stays so is of a call that a crash
    cut off, and counts with what was estimated. ``day`` is the person's calendar day. ``idle``
    marks a call made while no host was active. ``micros`` is the price in millionths of the
    configured currency; None where no price is known.
    """

    call_id: str
    at_ms: int
    day: str
    purpose: str
    model: str
    scope_id: ScopeId
    session_id: SessionId | None = None
    turn_id: TurnId | None = None
    idle: bool = False
    outcome: str = "sent"
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = True
    micros: int | None = None
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Sums over calls; ``micros`` leaves out the ``unpriced`` ones."""

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    micros: int = 0
    unpriced: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One recorded piece of an oversized payload, or one line over several of them.

    ``plan`` names the way of cutting and the prompt. Level 0 covers bytes
    ``[start, end_exclusive)`` of the payload; a higher level covers all that its children do.
    ``read`` is how many of those bytes a model has read.
    """

    payload: BlobHash
    plan: str
    level: int
    position: int
    start: int
    end_exclusive: int
    read: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBase:
    """A scope's rendered shared part, reused by every session until its news pass a bound."""

    scope_id: ScopeId
    csn: Csn
    publication_end: int
    policy_revision: int
    retention_epoch: int
    text: str


class DamageKind(StrEnum):
    PAGES = "pages"  # the file itself
    REFERENCES = "references"  # rows that refer to rows that are gone
    INDEX = "index"  # a search index, which can be made anew


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that a store's own checks found wrong, in their words."""

    kind: DamageKind
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What was forgotten, when, and where it is still quoted; no word of it (§12)."""

    at_ms: int
    what: str
    counts: dict[str, int]
    places: tuple[str, ...] = ()
