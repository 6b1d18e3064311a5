"""The verbs that the engine needs of a store.

Verbs, not SQL: no rows, cursors or database errors cross this port. A unit of work is a function
of a transaction that may be **run again**; it holds nothing open across a model call or a request.
Correctness never leans on there being one writer: uniqueness, compare-and-set and fencing tokens
are conditions of the writes themselves. Time, ids and randomness come from the engine.

Every implementation passes ``tests/conformance``. A read that serves a caller takes a
``Visibility``; the reads without one are the engine's own bookkeeping and are never returned as
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol, TypeVar

from optchat.core.publications import Publication
from optchat.core.records import Fold, Generation, HostMessage, Record, Session, Turn
from optchat.core.scopes import Project, Scope
from optchat.core.snapshots import Visibility
from optchat.core.tree import Node, SessionTree, Tree
from optchat.core.views import View
from optchat.refs import BlobHash, Csn, FoldId, ProjectId, ScopeId, SessionId, Span, TurnId

T = TypeVar("T")


class Clock(Protocol):
    """The one clock; leases are judged by it alone."""

    def now_ms(self) -> int: ...


class IdSource(Protocol):
    """Opaque unique ids, at most 40 ASCII characters of ``[a-z0-9-]``."""

    def new_id(self) -> str: ...


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """A parsed query: every term and phrase is literal text, already lower-cased.

    ``terms`` are words, ``phrases`` word sequences, ``excluded`` words that a hit must not have.
    Times are of the record, half-open, in milliseconds.
    """

    terms: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    session_id: SessionId | None = None
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One visible record that matches, with the searched text to cut an excerpt from.

    ``matched`` counts the distinct terms and phrases that it holds.
    """

    tree: SessionTree
    seq: int
    text: str
    matched: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHit:
    """One visible summary that matches; like ``SearchHit``."""

    node: Node
    matched: frozenset[str]


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


class Sessions(Protocol):
    """Projects, scopes, sessions and generations."""

    def project(self, host: str, host_key: str) -> Project | None: ...
    def projects(self) -> tuple[Project, ...]: ...
    def put_project(self, project: Project) -> None:
        """Insert or replace.

        Raises:
            Conflict: if another project has that (host, host_key).
        """
        ...

    def scope(self, scope_id: ScopeId) -> Scope | None: ...
    def scopes(self) -> tuple[Scope, ...]:
        """All scopes, by id."""
        ...

    def put_scope(self, scope: Scope) -> None:
        """Insert or replace; the two counters only grow, so that no number is given twice."""
        ...

    def session(self, session_id: SessionId) -> Session | None: ...
    def session_of_host(self, host: str, host_session: str) -> Session | None: ...
    def session_numbered(self, scope_id: ScopeId, number: int) -> Session | None:
        """The session that a scope knows by a number, also one that has left it since.

        It comes with that scope and number, whatever scope it is in now.
        """
        ...

    def session_in(self, scope_id: ScopeId, session_id: SessionId) -> Session | None:
        """A session as a scope knows it; like ``session_numbered``."""
        ...

    def sessions(self, scope_id: ScopeId) -> tuple[Session, ...]:
        """The sessions that are in a scope now, by number."""
        ...

    def children(self, host: str, host_session: str) -> tuple[Session, ...]:
        """The sessions whose parent is that host session, oldest first."""
        ...

    def scopes_of(self, session_id: SessionId) -> tuple[ScopeId, ...]:
        """The scopes that know a session by a number, in order."""
        ...

    def put_session(self, session: Session) -> None:
        """Insert or replace; (host, host_session) and (scope, number) are unique.

        A scope that it was in before goes on knowing it by its number there.

        Raises:
            Conflict: if another session has that host session or that number.
        """
        ...

    def leave_scope(self, scope_id: ScopeId, session_id: SessionId) -> None:
        """Have a scope that a session is not in any more forget its number."""
        ...

    def generation(self, session_id: SessionId, number: int) -> Generation | None: ...
    def put_generation(self, generation: Generation) -> None:
        """Insert or replace; ``length`` only grows. ``Records.append`` raises it by itself."""
        ...

    def generations(self, session_id: SessionId) -> tuple[Generation, ...]:
        """The generations of a session, by number."""
        ...

    def derived(self, tree: SessionTree) -> tuple[Generation, ...]:
        """The generations whose base is ``tree``, of whatever session."""
        ...

    def of_project(self, project_id: ProjectId) -> tuple[Session, ...]:
        """The sessions of a project in all scopes, by id."""
        ...

    def remove_session(self, session_id: SessionId) -> None:
        """Remove its row and its generations; its number is not given again."""
        ...

    def remove_project(self, project_id: ProjectId) -> None: ...
    def remove_scope(self, scope_id: ScopeId) -> None: ...


class Records(Protocol):
    """Sealed records, the host's membership, and turns."""

    def append(self, record: Record, text: str) -> bool:
        """Seal one record at its generation's next seq, and index ``text`` for search.

        The next seq is the generation's ``length``, which this raises by one. ``text`` is the
        searchable text of the payload; "" indexes nothing.

        Returns:
            True when sealed; False when its event key is there with the same payload (a replay).

        Raises:
            EventConflict: the event key is there with another payload; nothing is written.
            Conflict: ``seq`` is taken or would leave a gap, or there is no such generation.
            IntegrityError: its payload is not kept.
        """
        ...

    def record(self, tree: SessionTree, seq: int) -> Record | None:
        """An own record of ``tree``; the engine resolves lineage."""
        ...

    def by_event_key(self, event_key: str) -> Record | None: ...
    def range(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[Record, ...]:
        """Own records of ``tree`` in the range, in order."""
        ...

    def count(self) -> int:
        """All records in the store, for status."""
        ...

    def messages(self, session_id: SessionId, start: int = 0) -> tuple[HostMessage, ...]:
        """The current membership by position, of messages that begin at record ``start`` or later.

        A message without records begins where the next record will.
        """
        ...

    def put_message(self, message: HostMessage) -> None:
        """Insert or replace at (session, position); message ids are unique in a session.

        Raises:
            Conflict: if that message id stands at another position.
        """
        ...

    def put_messages(self, messages: Sequence[HostMessage]) -> None:
        """The first messages of a session that has none, in one statement.

        Raises:
            Conflict: a position or an id is taken; nothing is written.
        """
        ...

    def truncate_messages(self, session_id: SessionId, position: int) -> None:
        """Drop the membership from ``position`` on; the records stay."""
        ...

    def turn(self, turn_id: TurnId) -> Turn | None: ...
    def turn_by_key(self, session_id: SessionId, generation: int, key: str) -> Turn | None: ...
    def turns(self, session_id: SessionId) -> tuple[Turn, ...]:
        """All turns of the session, every generation, by (start_seq, opened_ms, turn id)."""
        ...

    def open_turn(self, session_id: SessionId, generation: int) -> Turn | None:
        """The generation's turn without an outcome; the earliest, should there be several."""
        ...

    def last_pinned(self, session_id: SessionId, generation: int) -> Turn | None:
        """The generation's last turn that has a pin, by the order of ``turns``."""
        ...

    def turns_of_fold(self, session_id: SessionId, fold_id: FoldId) -> tuple[Turn, ...]:
        """The session's turns that were sent with this fold, in the order of ``turns``."""
        ...

    def folded_turns(self, session_id: SessionId, generation: int) -> tuple[Turn, ...]:
        """The generation's turns that have checkpoints, in the order of ``turns``."""
        ...

    def put_turn(self, turn: Turn) -> None:
        """Insert or replace; (session, generation, key) is unique.

        Raises:
            Conflict: if another turn has that key.
        """
        ...

    def put_turns(self, turns: Sequence[Turn]) -> None:
        """New turns that no request was sent with: no pin, fold or news. In one statement.

        Raises:
            Conflict: an id or a key is taken; nothing is written.
        """
        ...

    def own_results(self, session_id: SessionId) -> tuple[Record, ...]:
        """The results of our own tools in a session, every generation: manifests of refs."""
        ...

    def remove(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[BlobHash, ...]:
        """Remove own records of ``tree`` with their searched text; positions stay taken.

        Returns:
            The payload of each that was there, for ``Blobs.drop_unused``.
        """
        ...

    def remove_turns(self, session_id: SessionId) -> None: ...
    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        """Make the own records of ``tree`` below ``end_exclusive`` those of ``to``."""
        ...


class Blobs(Protocol):
    """Content-addressed payloads, in compressed chunks."""

    def put(self, payload: bytes) -> BlobHash:
        """Keep ``payload`` once under the sha256 of its bytes. At most PAYLOAD_BYTES_MAX.

        Raises:
            BadInput: over the bound; nothing is kept.
        """
        ...

    def size(self, blob: BlobHash) -> int:
        """Its bytes. Raises IntegrityError if it is not there."""
        ...

    def read(self, blob: BlobHash, start: int, count: int) -> bytes:
        """Exactly the bytes ``[start, min(start + count, size))``; only touches their chunks.

        Raises:
            IntegrityError: if the blob or one of its chunks is missing or damaged.
        """
        ...

    def chunks(self, blob: BlobHash) -> Iterator[bytes]:
        """The whole payload, a chunk at a time, for hashing and export. Errors as ``read``."""
        ...

    def verify(self, blob: BlobHash) -> None:
        """Hash the whole payload again.

        Raises:
            IntegrityError: if it is missing, or is not what its name says.
        """
        ...

    def drop_unused(self, blobs: Collection[BlobHash]) -> int:
        """Remove those of ``blobs`` that no record refers to; how many that were."""
        ...


class Trees(Protocol):
    """Nodes, views and their projections."""

    def put_node(self, node: Node) -> bool:
        """Add a revision of a node.

        Returns:
            False, writing nothing, when a live revision of the span has the same input hash.

        Raises:
            Conflict: the revision number is taken, or another live revision exists.
        """
        ...

    def node(self, tree: Tree, span: Span, csn: Csn | None = None) -> Node | None:
        """The revision that a snapshot at ``csn`` sees; the live one when None."""
        ...

    def node_revision(self, tree: Tree, span: Span, revision: int) -> Node | None: ...
    def nodes_in(self, tree: Tree, spans: Sequence[tuple[Span, int]]) -> tuple[Node | None, ...]:
        """The named revisions, in the order asked; one statement for many."""
        ...

    def last_revision(self, tree: Tree, span: Span) -> int:
        """The highest revision that the span ever had; 0 for none."""
        ...

    def leaves_from(self, tree: Tree, start: int, limit: int) -> tuple[Node, ...]:
        """The contiguous live leaves from ``start`` on; stops at the first gap."""
        ...

    def made_otherwise(
        self, tree: Tree, model: str | None, prompt_version: str
    ) -> tuple[Node, ...]:
        """The live nodes that some other model (if one is given) or prompt version made.

        Verbatim ones and tombstones were made by none. Shorter spans first, then by start.
        """
        ...

    def retire_node(self, tree: Tree, span: Span, csn: Csn) -> None:
        """End the live revision at ``csn``; no live revision is a no-op."""
        ...

    def view(self, tree: Tree, csn: Csn | None = None) -> View:
        """The view as of ``csn``, else the newest; an empty view at revision 0 if there is none."""
        ...

    def put_view(self, tree: Tree, view: View, csn: Csn) -> None:
        """Add a revision, born at ``csn``.

        Raises:
            Conflict: if its revision is not the successor of the newest (compare-and-set).
        """
        ...

    def prune_views(self, tree: Tree, pinned: Collection[Csn]) -> int:
        """Forget the revisions but the newest and those that the ``pinned`` snapshots see.

        Returns:
            How many were forgotten.
        """
        ...

    def remove_node(self, tree: Tree, span: Span) -> int:
        """Remove every revision of a node, with its searched text; how many that were."""
        ...

    def remove_tree(self, tree: Tree) -> int:
        """Remove every node and view of a tree; how many nodes that were."""
        ...

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        """Make the nodes of ``tree`` that end at or below ``end_exclusive`` those of ``to``."""
        ...


class Publications(Protocol):
    """The scope's numbered publications, folds and shared bases."""

    def append(self, publication: Publication) -> bool:
        """Add it under its scope's next number.

        Returns:
            False when (scope, session, generation, turn) is published already.

        Raises:
            Conflict: if its number is not the scope's next, or there is no such scope. The counter
                is ``Scope.publications``, which this raises by one.
        """
        ...

    def publication(self, scope_id: ScopeId, seq: int) -> Publication | None: ...
    def of_turn(self, turn_id: TurnId) -> Publication | None:
        """The live publication of a turn; the last made, should several scopes hold one."""
        ...

    def range(self, scope_id: ScopeId, start: int, end_exclusive: int) -> tuple[Publication, ...]:
        """Publications by number, retired ones included."""
        ...

    def of_session(
        self, visibility: Visibility, session_id: SessionId, before: int | None, limit: int
    ) -> tuple[Publication, ...]:
        """The visible publications of a session, newest first, numbered below ``before``."""
        ...

    def covering(
        self, visibility: Visibility, session_id: SessionId, generation: int, seq: int
    ) -> Publication | None:
        """The last publication of a record that the reader could see at some time, or None.

        Numbered below the snapshot's end and born by its commit, retired or not; ``generation`` is
        the publication's own.
        """
        ...

    def retire(self, scope_id: ScopeId, seq: int, csn: Csn) -> None:
        """End it at ``csn``; a publication that is not there or retired already is left alone."""
        ...

    def retired_since(self, scope_id: ScopeId, csn: Csn, before_seq: int) -> bool:
        """Whether one numbered below ``before_seq`` was retired after the commit ``csn``."""
        ...

    def of_turn_ever(self, turn_id: TurnId) -> tuple[Publication, ...]:
        """All publications of a turn, retired ones included, by scope and number."""
        ...

    def ends(
        self, scope_id: ScopeId, start: int, end_exclusive: int
    ) -> tuple[Publication, Publication] | None:
        """The first and the last that are there in a range of numbers."""
        ...

    def remove(self, scope_id: ScopeId, seq: int) -> None:
        """Remove it with its cover; its number stays taken."""
        ...

    def move_covers(self, tree: SessionTree, to: SessionTree) -> None:
        """Let every cover part in ``tree`` name ``to``."""
        ...

    def remove_rendered(self, scope_id: ScopeId) -> int:
        """Remove what was rendered of a scope: its base; its sessions' folds, news, checkpoints.

        Returns:
            The number of texts that held something.
        """
        ...

    def put_fold(self, fold: Fold) -> None: ...
    def fold(self, fold_id: FoldId) -> Fold | None: ...
    def prune_folds(self, session_id: SessionId, kept: Collection[FoldId]) -> int:
        """Forget the session's folds but these; how many were forgotten."""
        ...

    def put_shared_base(self, base: SharedBase) -> None:
        """Replace the scope's base."""
        ...

    def shared_base(self, scope_id: ScopeId) -> SharedBase | None: ...

    def visible_count(
        self, visibility: Visibility, tree: SessionTree, start: int, end_exclusive: int
    ) -> int:
        """How many own records of ``tree`` in the range lie in visible publications (§9, §11)."""
        ...

    def visible_sessions(self, visibility: Visibility) -> tuple[tuple[Session, int, int, int], ...]:
        """Sessions with a visible publication: (session, publications, first_ms, last_ms).

        Times and counts are of what is visible: the first turn's opening and the last completion.
        Newest activity first, then by number.
        """
        ...


class Jobs(Protocol):
    """The durable queue: unique jobs, leases with fencing tokens, dependencies, outbox."""

    def put(self, job: Job, waits_for: Sequence[tuple[Tree, Span]] = ()) -> bool:
        """Enqueue; False when (kind, target, input_hash) is there already, in whatever state.

        Without a dependency that is still missing it becomes READY, else WAITING.
        """
        ...

    def resolve(self, tree: Tree, span: Span) -> int:
        """A node became durable: drop it from what waits for it; jobs without any left get READY.

        Returns:
            The number of jobs that became ready.
        """
        ...

    def claim(
        self,
        worker: str,
        now_ms: int,
        lease_ms: int,
        scopes: Collection[ScopeId] | None = None,
    ) -> Job | None:
        """Lease the next job: READY and due, or LEASED, nothing missing, and the lease run out.

        The queue served longest ago comes first, by queue (a session's, else a scope's); in it
        turns before nodes, then oldest first. ``scopes`` leaves out the jobs of others. The claim
        raises the token, counts an attempt, and sends the queue to the end of the line. To take
        over a lease that ran out is no new attempt: the machine may have slept.
        """
        ...

    def end_leases(self) -> int:
        """Give back what the owner before held, its attempts counted; how many jobs that were.

        For a new owner of the store: nobody whom it does not know can hold a lease.
        """
        ...

    def lease(self, job_id: str, worker: str, now_ms: int, lease_ms: int) -> Job | None:
        """Lease a certain job to go with one that was claimed.

        READY (due or not), WAITING, or LEASED with the lease run out; None in another state. What
        it waits for is to be made by its holder.
        """
        ...

    def open_in(self, queue: str, now_ms: int, limit: int) -> tuple[Job, ...]:
        """The jobs of a queue that ``lease`` would give, oldest first."""
        ...

    def waits(self, job_id: str) -> tuple[tuple[str, Span], ...]:
        """What a job still waits for: (name of the tree, span), in order."""
        ...

    def hurry(self, queue: str, now_ms: int, *, first: bool) -> int:
        """Make due what was put off when it was enqueued and never tried; how many that were.

        ``first`` sends the queue to the head of the line.
        """
        ...

    def postpone(self, job_id: str, token: int, *, not_before_ms: int, error: str) -> bool:
        """Give a job back without counting the attempt, because the fault is not the job's."""
        ...

    def retry(self, now_ms: int, job_id: str | None = None) -> int:
        """Make FAILED jobs READY with their attempts forgotten: one of them, or all."""
        ...

    def release_put_off(self, reason: str, now_ms: int) -> int:
        """Make due what waits with an error that begins with ``reason``; how many that were."""
        ...

    def redo(self, job: Job, waits_for: Sequence[tuple[Tree, Span]]) -> bool:
        """As ``put``, but wait for the next commit of each node, also of one that is there."""
        ...

    def remove(self, kind: JobKind, target: str) -> int:
        """Remove the jobs of a target; a result that comes late finds none. How many there were."""
        ...

    def remove_queue(self, queue: str) -> tuple[Job, ...]:
        """Remove every job of a queue; those that were not done, oldest first."""
        ...

    def move_waits(self, tree: SessionTree, to: SessionTree) -> None:
        """Let what waits for nodes of ``tree`` wait for those of ``to``."""
        ...

    def listed(self, state: JobState, limit: int) -> tuple[Job, ...]:
        """The jobs in a state, newest first."""
        ...

    def renew(self, job_id: str, token: int, until_ms: int) -> bool:
        """Extend a lease; False when the token is no longer the job's or the job not leased."""
        ...

    def finish(self, job_id: str, token: int) -> bool:
        """Mark DONE; False, writing nothing, when the token is old or the job not leased.

        The caller commits the result in the same transaction only when this is True.
        """
        ...

    def release(
        self, job_id: str, token: int, *, not_before_ms: int, error: str, failed: bool
    ) -> bool:
        """Give a job back: READY again after ``not_before_ms``, or FAILED for good."""
        ...

    def job(self, job_id: str) -> Job | None: ...
    def of_target(self, kind: JobKind, target: str) -> Job | None:
        """The newest job for a target."""
        ...

    def counts(self, session_id: SessionId | None = None) -> dict[JobState, int]:
        """Jobs by state, every state named."""
        ...

    def failed(self, limit: int) -> tuple[Job, ...]:
        """The failed jobs, newest first."""
        ...

    def next_due_ms(self) -> int | None:
        """When the earliest unfinished claimable job is due; None when there is none."""
        ...


class Ledger(Protocol):
    """The meter: every call to a summary model, and what the checks on the answers found (I12)."""

    def open(self, call: ModelCall) -> None:
        """Write a call before it is sent. Raises Conflict when the id is taken."""
        ...

    def close(self, call: ModelCall) -> None:
        """Replace the row of a call by what came of it; a row that is gone stays gone."""
        ...

    def drop(self, call_id: str) -> None:
        """Take back the row of a call that never left the process."""
        ...

    def spent(
        self,
        since_ms: int,
        *,
        day: str | None = None,
        turn_id: TurnId | None = None,
        idle: bool | None = None,
    ) -> Spent:
        """The sum of the calls at or after ``since_ms`` that all the given conditions fit."""
        ...

    def table(
        self, by: Literal["day", "session", "purpose", "model"], since_ms: int
    ) -> tuple[tuple[str, Spent], ...]:
        """Sums by one column, in its order; calls of no session are under ""."""
        ...

    def unfinished(self) -> int:
        """How many calls are still marked as sent."""
        ...

    def disown(self, *, session_id: SessionId | None = None, turn_id: TurnId | None = None) -> None:
        """Keep what the calls of a session or a turn cost, and not whose they were."""
        ...

    def count(self, model: str, prompt_version: str, finding: str, times: int) -> None:
        """Add to how often the checks found something in a model's answers."""
        ...

    def findings(self) -> tuple[tuple[str, str, str, int], ...]:
        """(model, prompt version, finding, times), in that order."""
        ...


class Chunks(Protocol):
    """The recorded pieces of oversized payloads; they go when their payload goes (I8)."""

    def put(self, chunk: Chunk) -> None:
        """Insert or replace. Raises IntegrityError when the payload is not kept."""
        ...

    def of(self, payload: BlobHash, plan: str) -> tuple[Chunk, ...]:
        """All that is recorded of a plan, by level and position."""
        ...


class Search(Protocol):
    """Full text over record originals, inside the visibility filter before any limit."""

    def hits(self, visibility: Visibility, query: SearchQuery) -> Iterator[SearchHit]:
        """Visible records that hold at least one term or phrase and no excluded word.

        In no particular order. What is not visible influences neither the hits nor their number
        nor, since scores are made from the hits alone, their rank.
        """
        ...

    def node_hits(self, visibility: Visibility, query: SearchQuery) -> Iterator[NodeHit]:
        """Visible summary nodes that match like ``hits``; verbatim and fallback nodes never do.

        A session's node is visible when every record below it is; one that crosses the point where
        its generation began is left out, for its halves are found. A query for one session leaves
        the shared tree out; a query with times gives none, for a node has no one time.
        """
        ...

    def searchable(self, visibility: Visibility) -> int:
        """How many records a search under this visibility looks at."""
        ...


class Removals(Protocol):
    """What was forgotten, so that it stays so: hashes of a host's ids, a log of counts (§12)."""

    def bury(self, key: str) -> None:
        """Set a tombstone; again is a no-op. ``key`` is a hash and says nothing by itself."""
        ...

    def is_buried(self, key: str) -> bool: ...
    def log(self, removal: Removal) -> None: ...
    def logged(self, limit: int) -> tuple[Removal, ...]:
        """The last removals, newest first."""
        ...


class Meta(Protocol):
    """The store's own counters."""

    def csn(self) -> Csn:
        """The last commit that changed what can be read."""
        ...

    def next_csn(self) -> Csn:
        """Take the next number; the same one for the whole transaction."""
        ...

    def epoch(self) -> int: ...
    def raise_epoch(self) -> int:
        """A new owner of the data directory; a write under an older epoch is fenced."""
        ...

    def get(self, key: str) -> str | None: ...
    def put(self, key: str, value: str) -> None: ...


class Tx(Protocol):
    """One transaction, as families of verbs."""

    @property
    def sessions(self) -> Sessions: ...
    @property
    def records(self) -> Records: ...
    @property
    def blobs(self) -> Blobs: ...
    @property
    def trees(self) -> Trees: ...
    @property
    def publications(self) -> Publications: ...
    @property
    def jobs(self) -> Jobs: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def chunks(self) -> Chunks: ...
    @property
    def search(self) -> Search: ...
    @property
    def removals(self) -> Removals: ...
    @property
    def meta(self) -> Meta: ...


class Store(Protocol):
    """A transactional store. Both calls may run ``work`` again; neither is held open."""

    def write(self, work: Callable[[Tx], T]) -> T:
        """Run ``work`` alone, durably: all of it is there after return, or nothing after a raise.

        Raises:
            StoreBusy, DiskFull, Fenced: nothing of ``work`` is kept.
        """
        ...

    def read(self, work: Callable[[Tx], T]) -> T:
        """Run ``work`` over one consistent state; writing in it is a StorageError.

        What ``work`` returns must not read on: an iterator of the transaction ends with it.
        """
        ...

    def damage(self) -> tuple[Damage, ...]:
        """What the store's own checks find wrong, below all meaning; reads everything."""
        ...

    def rebuild_search(self) -> None:
        """Make the search indexes anew from the texts that they are over; changes nothing else."""
        ...

    def scrub(self) -> bool:
        """Leave no byte of what was removed behind: in the file, its log, or older copies of ours.

        Returns:
            False when a reader of an older state held it up; to be tried again.

        Raises:
            DiskFull: there is no room to rewrite the file; the store is as it was.
        """
        ...

    def close(self) -> None: ...


__all__ = [
    "Blobs",
    "Chunk",
    "Chunks",
    "Clock",
    "Damage",
    "DamageKind",
    "IdSource",
    "Job",
    "JobKind",
    "JobState",
    "Jobs",
    "Ledger",
    "Meta",
    "ModelCall",
    "NodeHit",
    "Publications",
    "Records",
    "Removal",
    "Removals",
    "Search",
    "SearchHit",
    "SearchQuery",
    "Sessions",
    "SharedBase",
    "Spent",
    "Store",
    "Trees",
    "Tx",
]
