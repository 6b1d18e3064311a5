"""Source records, generations with lineage, and turns (§3, §5, §12)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from optchat.core.scopes import is_isolated
from optchat.core.tree import SessionTree
from optchat.refs import BlobHash, Csn, FoldId, ProjectId, ScopeId, SessionId, Span, TurnId


class RecordKind(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    REPORT = "report"  # what a subagent gave back to its parent


class Outcome(StrEnum):
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One sealed source record; never changed by an ordinary append (§3).

    A struct, and made by position where an import makes a hundred thousand of them: named, the
    fields cost ten times as much.

    ``event_key`` stands for host, host session, message, part, facet and revision, and is unique in
    the store. ``pair`` ties a tool call to its result by message and part, never by an id that a
    model made. ``truncated`` is the host's own account of what it dropped, if it did.
    ``host_time_ms`` is the host's time of the event, ``sealed_ms`` ours.
    """

    session_id: SessionId
    generation: int
    seq: int
    event_key: str
    turn_id: TurnId
    message_id: str
    kind: RecordKind
    host_time_ms: int
    sealed_ms: int
    payload: BlobHash
    payload_bytes: int
    project_id: ProjectId
    tool: str | None = None
    pair: str | None = None
    status: str | None = None  # of a tool result: completed, error, interrupted
    worktree: str | None = None
    commit: str | None = None
    truncated: str | None = None
    attachments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A session's history from one branch point on (§12).

    Records ``[0, inherited)`` are those of ``base``; the rest are its own. ``length`` is the number
    of all of them. A fork and a rewind are the same thing: a new generation with a base.
    ``adopted`` marks one that came over from a forgotten session: history, but no work of this one.
    Own records from ``unmade_from`` on were taken in as history and have no nodes until the session
    is used again; None: all have theirs, or jobs for them.
    """

    session_id: SessionId
    number: int
    base: SessionTree | None = None
    inherited: int = 0
    length: int = 0
    adopted: bool = False
    unmade_from: int | None = None

    @property
    def tree(self) -> SessionTree:
        return SessionTree(self.session_id, self.number)


@dataclass(frozen=True, slots=True)
class Segment:
    """Records ``[start, end_exclusive)`` of a lineage are own records of ``tree``."""

    tree: SessionTree
    start: int
    end_exclusive: int
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class Lineage:
    """The chain of generations that together hold one generation's records, oldest first."""

    segments: tuple[Segment, ...]

    @property
    def length(self) -> int:
        return self.segments[-1].end_exclusive if self.segments else 0

    def clipped(self, end_exclusive: int) -> Lineage:
        """The same history up to ``end_exclusive``."""
        return Lineage(
            tuple(
                replace(s, end_exclusive=min(s.end_exclusive, end_exclusive))
                for s in self.segments
                if s.start < end_exclusive
            )
        )

    def tree_of(self, span: Span) -> SessionTree:
        """The tree that holds the node of ``span``: the oldest generation that had all of it.

        Raises:
            LookupError: if the span reaches past the lineage.
        """
        for segment in self.segments:
            if span.end_exclusive <= segment.end_exclusive:
                return segment.tree
        raise LookupError(f"{span} is past the history")

    def own_start(self, session_id: SessionId) -> int:
        """Where the session's own records begin: what is before it, a fork has from another."""
        for segment in self.segments:
            if segment.tree.session_id == session_id and not segment.adopted:
                return segment.start
        return self.length

    def owners(self, start: int, end_exclusive: int) -> tuple[Segment, ...]:
        """The own-record pieces that make up ``[start, end_exclusive)``, in order."""
        return tuple(
            Segment(s.tree, max(s.start, start), min(s.end_exclusive, end_exclusive), s.adopted)
            for s in self.segments
            if s.start < end_exclusive and start < s.end_exclusive and s.start < s.end_exclusive
        )


def extend(base: Lineage | None, generation: Generation) -> Lineage:
    """The lineage of ``generation``, given that of its base (clipped here to what it inherits)."""
    inherited = base.clipped(generation.inherited).segments if base is not None else ()
    own = Segment(generation.tree, generation.inherited, generation.length, generation.adopted)
    return Lineage((*inherited, own))


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation of a host, known by an opaque id; ``number`` names it inside its scope.

    ``sharing`` is what a person chose for it against the configured rules: "isolated", "project" or
    a profile's name. ``archive_changes`` are the commits at which it was archived, shown again, and
    so on, so that a snapshot keeps what it saw.
    """

    session_id: SessionId
    host: str
    host_session: str
    scope_id: ScopeId
    number: int
    project_id: ProjectId
    generation: int
    title: str
    directory: str
    created_ms: int
    updated_ms: int
    parent_host_session: str | None = None
    archive_changes: tuple[Csn, ...] = ()
    sharing: str | None = None
    observed_ms: int = 0  # when the host's history that is sealed here was read
    disabled: str | None = None  # why memory is off until a resync, shown to the person
    host_store: str = ""  # where the host keeps it, by the adapter's name for the place
    host_mark: str = ""  # what the host's store said of its changes when it was last read there

    @property
    def isolated(self) -> bool:
        return is_isolated(self.scope_id)

    @property
    def archived(self) -> bool:
        return len(self.archive_changes) % 2 == 1

    def archived_at(self, csn: Csn) -> bool:
        """Whether it was archived at a commit."""
        return sum(change <= csn for change in self.archive_changes) % 2 == 1


class HostMessage(msgspec.Struct, frozen=True, gc=False):
    """What we hold of one message of the host: the membership that reconciliation compares.

    ``digest`` covers the content that was sealed, in short. Records
    ``[start_seq, end_seq_exclusive)`` of the generation came from it; both are equal for a message
    that gave none.
    """

    session_id: SessionId
    position: int
    message_id: str
    digest: str
    turn_id: TurnId
    start_seq: int
    end_seq_exclusive: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A user's request with everything that followed it, up to the host's terminal state (§5).

    ``key`` is the host's id of the message that opened it. ``scope_id`` is where it is published,
    fixed when it opened; None is nowhere (§11). ``end_seq_exclusive`` and ``outcome`` are None
    while it is open. The pinned snapshot, the news text and the checkpoints stand with the turn, so
    that every continuation, and every later turn that still shows this one, repeats the same bytes.
    """

    turn_id: TurnId
    session_id: SessionId
    generation: int
    key: str
    start_seq: int
    opened_ms: int
    scope_id: ScopeId | None = None
    end_seq_exclusive: int | None = None
    outcome: Outcome | None = None
    closed_ms: int | None = None
    pin: Pin | None = None
    fold_id: FoldId | None = None
    news: str = ""
    checkpoints: tuple[Checkpoint, ...] = ()

    @property
    def folded_end(self) -> int:
        """Where the records end that are shown in the turn's checkpoints; 0 without any."""
        return self.checkpoints[-1].end_exclusive if self.checkpoints else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What stands for finished steps of a turn that outgrew its window (§7).

    ``text`` is put last into the host's message ``after``, and the messages between it and
    ``until`` are left out; records ``[start, end_exclusive)`` are told in it. A turn that was
    steered has one for each stretch between what the user said.
    """

    after: str
    until: str
    start: int
    end_exclusive: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The shared snapshot of a turn, as numbers (§9), and where its own prior history ends."""

    scope_id: ScopeId
    csn: int
    publication_end: int
    policy_revision: int
    retention_epoch: int
    own_generation: int
    own_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """What a session's requests begin with until the next fold: the base, byte for byte.

    The native tail starts at turn ``first_turn_key``; records below ``boundary`` are in the base's
    own view. ``publication_end`` is where the base's shared part ends and news begin.
    ``coverage`` is "complete", or says what is missing when partial memory is allowed.
    """

    fold_id: FoldId
    session_id: SessionId
    generation: int
    pin: Pin
    boundary: int
    first_turn_key: str
    publication_end: int
    shared_text: str
    own_text: str
    window: str
    cause: str
    coverage: str = "complete"
    made_ms: int = 0
