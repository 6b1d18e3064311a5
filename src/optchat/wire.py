"""The host-neutral protocol: what a host's plugin or a command and the coordinator say.

JSON over HTTP/1.1 on a private Unix socket. Each request carries ``x-optchat-protocol``; another
number is answered with ``version_mismatch``. Requests are ``POST`` with one of the structures below
as body, and are safe to repeat. Errors have the status of their class in ``optchat.errors`` and an
``ErrorBody``. Unknown fields are refused, so that a misspelt one is not silently dropped.

``docs/protocol.md`` and the plugin's types are generated from here.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

PROTOCOL = 1
PROTOCOL_HEADER = "x-optchat-protocol"


class Wire(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """The base of all wire structures. None holds itself, so that no collector has to look."""


class ErrorInfo(Wire):
    """An error as it crosses the wire; ``hint`` is the next thing to do."""

    code: str
    message: str
    hint: str
    retryable: bool


class ErrorBody(Wire):
    """The body of every answer that is not a success."""

    error: ErrorInfo


# --- what a host tells ----------------------------------------------------------------------------


class SizesInfo(Wire):
    """A text's size by class of character; tokens are made from it by the coordinator."""

    letters: int = 0
    spaces: int = 0
    symbols: int = 0
    other_bytes: int = 0
    media: int = 0


class SessionInfo(Wire):
    """A host's session as the host sees it now.

    ``project_key`` is what the host identifies the project by; for directories that the host does
    not tell apart, the directory. ``fork_of`` is the host session that this one was forked from,
    when the adapter knows. ``parent_id`` is set for a subagent's session. ``store`` names the place
    where the host keeps the session, so that two data directories of one host are told apart.
    """

    host: str
    id: str
    project_key: str
    project_directory: str
    directory: str
    title: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    parent_id: str | None = None
    fork_of: str | None = None
    archived: bool = False
    worktree: str | None = None
    store: str = ""


class TextPart(Wire, tag="text"):
    """Text of a message. ``synthetic`` marks what a host or plugin added, not the person."""

    id: str
    text: str
    synthetic: bool = False


class FilePart(Wire, tag="file"):
    """An attachment: kept as a manifest, not as bytes."""

    id: str
    mime: str
    filename: str = ""
    url: str = ""
    content_bytes: int | None = None


class OwnResult(Wire):
    """What optchat's own tool answered, by reference: its text is never ingested again."""

    refs: list[str]
    snapshot: str
    sha256: str


class ToolPart(Wire, tag="tool"):
    """A tool call with its result, as the host holds them.

    ``input_json`` is the call's input exactly as the host keeps it, serialised. ``output`` is None
    while there is none. ``truncated`` says in the host's own terms what it dropped, and
    ``full_output_path`` where the whole is, if anywhere. ``report`` marks a subagent's answer.
    """

    id: str
    tool: str
    input_json: str
    status: Literal["pending", "running", "completed", "error"]
    output: str | None = None
    error: str | None = None
    title: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    truncated: str | None = None
    full_output_path: str | None = None
    report: bool = False
    own: OwnResult | None = None
    attachments: list[FilePart] = []


Part = TextPart | FilePart | ToolPart


class MessageInfo(Wire):
    """One message of the host's transcript, with or without its content.

    ``digest`` covers all that we would seal of it. ``final`` says that the host will not add to it.
    ``terminal`` is set on the assistant message that ends a run of the model loop. ``opens`` is
    true for a user message that arrived while the session was idle, false for one that arrived
    while it ran, None when nobody watched. ``role`` "other" is part of the host's own machinery
    (such as its compaction) and gives no records.
    """

    id: str
    role: Literal["user", "assistant", "other"]
    digest: str
    final: bool
    created_ms: int = 0
    terminal: Literal["completed", "interrupted", "failed"] | None = None
    opens: bool | None = None
    parts: list[Part] | None = None


class SyncRequest(Wire):
    """The membership of a session: every message of the host, in its order (§3, §12).

    Content goes along for messages that the sender thinks are new; the answer names what else is
    needed. ``idle`` says that no run of this session is going on in the sender's process, which
    closes a turn that has no terminal message as interrupted. ``observed_ms`` is when the
    membership was read: one read earlier than what is sealed never takes anything back.
    """

    session: SessionInfo
    messages: list[MessageInfo]
    idle: bool = False
    observed_ms: int = 0


class SyncResponse(Wire):
    """What the store holds now. ``need`` empty means that everything final is sealed.

    ``notice`` says, once a person should know it, why summaries are not being made (a cap, no key).
    """

    session: str
    generation: int
    need: list[str]
    records: int
    sealed: int
    turn: str | None = None
    disabled: str | None = None
    notice: str | None = None


# --- assembly -------------------------------------------------------------------------------------


class ModelInfo(Wire):
    """The model of the request, with its limits in tokens."""

    provider: str
    id: str
    context_tokens: int
    output_tokens: int
    input_tokens: int | None = None


class ShapeMessage(Wire):
    """One message of the outgoing request: identity and size, no content."""

    id: str
    role: Literal["user", "assistant", "other"]
    sizes: SizesInfo


class UsageInfo(Wire):
    """What the provider reported for an earlier request of this session, all input included.

    For one that it refused as too long, the model's whole window.
    """

    message_id: str
    input_tokens: int


class AssembleRequest(Wire):
    """The shape of a request about to be sent (§7).

    ``overhead`` measures instructions and tool definitions as far as the host shows them before the
    call; ``overhead_known`` is false while it is a guess. ``shape`` is the outgoing message list in
    order, before anything of ours. ``purpose`` "compaction" asks what the host's own summary is to
    be made from: the session's earlier history in ``base`` instead of the messages that it stands
    for, and nothing of other sessions.
    """

    session: SessionInfo
    model: ModelInfo
    agent: str
    shape: list[ShapeMessage]
    overhead: SizesInfo
    overhead_known: bool = False
    usage: UsageInfo | None = None
    purpose: Literal["main", "compaction"] = "main"


class NewsText(Wire):
    """Text to stand first in the named message."""

    message_id: str
    text: str


class CheckpointText(Wire):
    """What stands for finished steps of a turn (§7).

    ``text`` is to stand last in message ``after``; the messages between it and ``until`` are left
    out. Both are in the request, and no call is parted from its result.
    """

    after: str
    until: str
    text: str


class AssembleResponse(Wire):
    """What to put into the request, byte for byte.

    ``state`` "ready": inject. "native": leave the request as it is, for the reason in ``notice`` if
    there is one to tell. "stop": do not send it; ``error`` says why and what to do.
    ``keep_from`` names the first message to keep; everything before it is in the base.
    """

    state: Literal["ready", "native", "stop"]
    base: str = ""
    placement: Literal["system", "message"] = "system"
    keep_from: str | None = None
    news: list[NewsText] = []
    checkpoints: list[CheckpointText] = []
    notice: str | None = None
    error: ErrorInfo | None = None
    turn: str | None = None
    estimated_tokens: int = 0
    limit_tokens: int = 0


class CheckRequest(Wire):
    """The final check before dispatch, when the overhead is not what was announced."""

    session: SessionInfo
    model: ModelInfo
    agent: str
    overhead: SizesInfo


class CheckResponse(Wire):
    """``error`` is None when the request fits the model's window."""

    error: ErrorInfo | None = None
    estimated_tokens: int = 0
    limit_tokens: int = 0


# --- retrieval ------------------------------------------------------------------------------------


ToolName = Literal[
    "memory_zoom", "memory_search", "memory_date", "memory_sessions", "memory_messages"
]
"""Our own tools."""

AliasName = Literal[
    "recall",
    "recall_get",
    "recall_context",
    "recall_messages",
    "recall_sessions",
    "search_memory_tree",
]
"""Tools of other systems under which ours can be called as well, where that is switched on."""

TOOL_NAMES: tuple[str, ...] = get_args(ToolName)
ALIAS_NAMES: tuple[str, ...] = get_args(AliasName)
OWN_TOOLS: frozenset[str] = frozenset((*TOOL_NAMES, *ALIAS_NAMES))
"""What answers under these is ours, and is kept by reference only."""


class ChildInfo(Wire):
    """A subagent's session as the host has it at this moment."""

    id: str
    title: str = ""
    state: Literal["running", "completed", "cancelled", "failed", "unknown"] = "unknown"
    created_ms: int = 0
    updated_ms: int = 0


class ToolRequest(Wire):
    """A retrieval call (§8).

    From a host: ``host`` and ``session`` name the asking conversation (a subagent's parent) and its
    open turn's snapshot is served. From a person: ``directory`` or ``scope`` chooses the scope and
    the newest state is served. ``args`` are raw and validated here. ``children`` are the asking
    conversation's subagents, told when it asks about them.
    """

    tool: ToolName | AliasName
    args_json: str = "{}"
    host: str | None = None
    session: str | None = None
    directory: str | None = None
    scope: str | None = None
    children: list[ChildInfo] = []


class ToolResponse(Wire):
    """The answer as text for a model, and as data for a program.

    ``refs`` are those shown, ``snapshot`` the one served, ``sha256`` of ``output``.
    """

    output: str
    title: str
    refs: list[str]
    snapshot: str
    sha256: str
    complete: bool
    data_json: str


# --- running it -----------------------------------------------------------------------------------


class Health(Wire):
    """Who answers on the socket, whether it takes in what subagents say (§12), and whether it
    answers under the names of other systems' tools as well.
    """

    version: str
    protocol: int
    epoch: int
    pid: int
    home: str
    subagents: bool = False
    aliases: bool = False


class FollowRequest(Wire):
    """What has changed about a session besides its messages: its title, whether it is archived.

    A session that is not known stays unknown.
    """

    session: SessionInfo


class FollowResponse(Wire):
    """Whether the session is known."""

    known: bool


class ShareRequest(Wire):
    """Who shares with a session, from its next turn on (§11, §12).

    ``session`` is a host's id, or s12 in the scope that ``directory`` or ``scope`` names.
    ``sharing``: "isolated", "project", a profile's name, or None for what the configuration says.
    """

    session: str
    sharing: str | None = None
    directory: str | None = None
    scope: str | None = None


class ShareResponse(Wire):
    """What was decided; ``withdrawn`` publications are out of every read already."""

    session: str
    host_session: str
    scope: str
    next_scope: str
    withdrawn: int


class ResyncRequest(Wire):
    """Enable memory of a session again and compare it with the host at its next turn (§12)."""

    session: str


class ForgetRequest(Wire):
    """Remove what was remembered, with everything made of it, for good (§12).

    ``what`` "session": ``name`` as s12 or the host's id; "turn": a ref such as pub:24 or s12:0:71;
    both of the scope that ``scope`` or ``directory`` chooses. "before": the turns of that scope
    that ended before the time ``name`` (ISO, local). "project": the directory ``name``, all of it.
    ``dry_run`` tells what would go and removes nothing.
    """

    what: Literal["session", "turn", "project", "before"]
    name: str
    directory: str | None = None
    scope: str | None = None
    dry_run: bool = False


class RemovalInfo(Wire):
    """One removal: counts by kind, and ``places`` that still quote it, as refs. No word of it."""

    at_ms: int
    what: str
    counts: dict[str, int]
    places: list[str]


class ForgetResponse(Wire):
    """What was removed, and in ``unreachable`` what could not be and where it may still be."""

    removal: RemovalInfo
    dry_run: bool
    unreachable: list[str]


class ForgottenRequest(Wire):
    """List the last removals."""

    limit: int = 20


class ForgottenResponse(Wire):
    """The removals, newest first."""

    removals: list[RemovalInfo]


class PresentRequest(Wire):
    """The sessions that a host has of a project, in one of its stores, so that what is gone goes.

    ``ids`` may be a part of them: a session that is not in it is asked about, never removed for it.
    ``gone`` are those of which the host has said, each by its id, that there is no such session;
    only these are forgotten. ``store`` as in ``SessionInfo``; "" answers nothing.
    """

    host: str
    store: str
    project_key: str
    ids: list[str]
    gone: list[str] = []


class PresentResponse(Wire):
    """``missing``: sessions of that store and project in the memory and not in ``ids``."""

    missing: list[str]
    forgotten: int = 0


class ImportRequest(Wire):
    """Take in the history that a host keeps at ``path``, in the background; asking again joins.

    Only sessions that were used at ``since_ms`` or later, and those of the directory ``project``.
    ``form`` "memory-tree" is the folder of another plugin, whose trees are of that directory.
    ``dry_run`` counts and keeps nothing.
    """

    path: str
    form: Literal["opencode", "memory-tree"] = "opencode"
    since_ms: int = 0
    project: str | None = None
    dry_run: bool = False


class ImportStatusRequest(Wire):
    """How an import is getting on."""

    id: int


class ImportStatus(Wire):
    """An import: ``done`` of ``total`` sessions looked at; ``records`` are new.

    ``skipped`` counts sessions by reason. ``error`` says why it ended early; what was taken in
    until then is kept, and another import goes on from there.
    """

    id: int
    path: str
    running: bool
    dry_run: bool = False
    total: int = 0
    done: int = 0
    sessions: int = 0
    records: int = 0
    skipped: dict[str, int] = {}
    unreadable: list[str] = []
    error: ErrorInfo | None = None


class ExportRequest(Wire):
    """Write a scope as Markdown below ``folder``: tree, publications, originals."""

    folder: str
    directory: str | None = None
    scope: str | None = None


class ExportResponse(Wire):
    """What was written."""

    folder: str
    files: int
    publications: int
    records: int


class SessionCounts(Wire):
    """One session in ``status``; ``sharing`` is what was chosen for it alone."""

    ref: str
    title: str
    host_session: str
    turns: int
    records: int
    published: int
    disabled: str | None
    archived: bool = False
    sharing: str | None = None


class ScopeStatus(Wire):
    """One scope in ``status``."""

    scope: str
    name: str
    publications: int
    retention_epoch: int
    policy_revision: int
    sessions: list[SessionCounts]


class StatusResponse(Wire):
    """The state of the store, the queue and the coordinator."""

    health: Health
    records: int
    jobs: dict[str, int]
    failed_jobs: list[str]
    scopes: list[ScopeStatus]
    summariser: str
    notices: list[str]


# --- summaries: the host's own model --------------------------------------------------------------


class WorkRequest(Wire):
    """A host offers its model: "is there something to summarise for this project?" (§10, §13).

    The plugin sends this in a loop while it runs, one at a time for each directory, from outside of
    every hook. ``host`` and ``instance`` name the asking process (any string that it keeps to).
    ``project_key``, ``project_directory`` and ``directory`` are as in ``SessionInfo``; only work of
    the scope that they lead to is given out, since another project's text must not reach this
    project's provider. ``wait_ms`` (at most 10,000) is how long the answer may be held back when
    there is nothing. Asking is also the sign of presence: jobs of a scope that no host has asked
    for within 30 seconds stay queued and cost nothing.
    """

    host: str
    instance: str
    project_key: str
    project_directory: str
    directory: str
    wait_ms: int = 5_000


class WorkMessage(Wire):
    """One message of the call. The roles alternate and begin with "user"."""

    role: Literal["user", "assistant"]
    text: str


class Work(Wire):
    """One call to make. ``id`` is used once and is its fencing token.

    Ask the model with ``system`` as the *only* instructions (no environment block, no agent prompt)
    and ``messages`` as the conversation, without any tool, not streamed to anybody, at most
    ``output_tokens_max`` tokens. ``model`` is "provider/model" where the person configured one,
    else null: the host's small model where it names one, else the session's own. Where the host can
    only run a session, use a hidden agent without tools in a child session, mark it so that it is
    neither listed nor synced to us, and delete it afterwards whatever happened. Answer with
    ``/v1/work-done`` within ``timeout_ms``; a later answer is refused and the call is made again
    by somebody.
    """

    id: str
    purpose: str
    system: str
    messages: list[WorkMessage]
    output_tokens_max: int
    timeout_ms: int
    model: str | None = None


class WorkResponse(Wire):
    """``work`` is null when there is nothing to do. ``wanted`` false: stop asking, because another
    kind of model is configured; ask again only after the host restarts.
    """

    wanted: bool
    work: Work | None = None


class WorkUsage(Wire):
    """Tokens as the host reports them; input includes what came from the provider's cache."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class WorkDone(Wire):
    """What came of a call.

    ``outcome`` is "answer" with the whole ``text`` (reasoning left out), else why there is none:
    "empty", "reasoning_only", "refused", "filtered", "cut" (the output limit came first),
    "rate_limited", "timed_out", "unavailable" (the provider or the host failed), "gone" (no such
    model), "denied" (no key, no credit), "rejected". ``model`` is "provider/model" as used, stored
    with the nodes. ``usage`` is null where the host reports none; it is then estimated. ``sent``
    false says that the provider never saw the call, which then costs nothing. ``detail`` is shown
    to the person and must hold no text of the call.
    """

    id: str
    outcome: Literal[
        "answer",
        "empty",
        "reasoning_only",
        "refused",
        "filtered",
        "cut",
        "rate_limited",
        "timed_out",
        "unavailable",
        "gone",
        "denied",
        "rejected",
    ]
    text: str = ""
    model: str = ""
    usage: WorkUsage | None = None
    retry_after_ms: int | None = None
    sent: bool = True
    detail: str = ""


class WorkDoneResponse(Wire):
    """``accepted`` false: nobody waits for that call any more; drop the answer."""

    accepted: bool


# --- summaries: money and the queue ---------------------------------------------------------------


class SpendRequest(Wire):
    """What summaries have cost in the last ``days`` calendar days, today included."""

    days: int = 30


class SpendRow(Wire):
    """One line of a table. ``cost`` is null while some of its calls have no known price."""

    name: str
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: float | None


class CapInfo(Wire):
    """One cap: ``limit`` 0 is none."""

    name: str
    used: int
    limit: int


class FindingInfo(Wire):
    """How often the checks found something in a model's answers."""

    model: str
    prompt_version: str
    finding: str
    times: int


class SpendResponse(Wire):
    """The meter, by day, session, purpose and model; sessions are named as in refs."""

    total: SpendRow
    by_day: list[SpendRow]
    by_session: list[SpendRow]
    by_purpose: list[SpendRow]
    by_model: list[SpendRow]
    caps: list[CapInfo]
    currency: str
    unfinished: int
    notices: list[str]
    findings: list[FindingInfo]


class JobsRequest(Wire):
    """List the queue; ``retry`` a failed job by its id, or "all" of them, first."""

    retry: str | None = None
    limit: int = 50


class JobInfo(Wire):
    """One job that is set aside, or that has been tried."""

    id: str
    kind: str
    target: str
    session: str
    state: str
    attempts: int
    error: str
    due_ms: int


class JobsResponse(Wire):
    """The queue: counts by state, the jobs set aside, and those that wait after a failure."""

    counts: dict[str, int]
    retried: int
    failed: list[JobInfo]
    waiting: list[JobInfo]
    notices: list[str]


class ResumeResponse(Wire):
    """Caps count anew from now on; ``released`` jobs that one had put off are due."""

    released: int


class RebuildRequest(Wire):
    """Make summaries of another model or prompt version anew, as new revisions.

    ``session`` as s12 with a directory or scope, else everything of the scope. Without
    ``confirmed`` nothing is queued and the answer is the estimate.
    """

    session: str | None = None
    directory: str | None = None
    scope: str | None = None
    confirmed: bool = False


class RebuildResponse(Wire):
    """``nodes`` to be made again, about ``calls`` and ``input_tokens``; ``queued`` of them."""

    nodes: int
    calls: int
    input_tokens: int
    queued: int


class SummariseRequest(Wire):
    """Have history that was taken in summarised: turns that ended at ``since_ms`` or later.

    Of every scope, or those of the directory ``project``. Without ``confirmed`` nothing is queued
    and the answer is the estimate.
    """

    since_ms: int = 0
    project: str | None = None
    confirmed: bool = False


class SummariseResponse(Wire):
    """``turns`` that only have a name so far, and about what real lines for them take.

    ``cost`` is null where no price is configured. ``days`` is how long the daily caps stretch it;
    ``queued`` turns are to get one.
    """

    turns: int
    lines: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    currency: str
    days: int
    queued: int


# --- doctor ---------------------------------------------------------------------------------------


class DoctorRequest(Wire):
    """Check the store. ``full`` hashes every payload instead of a sample.

    ``repair`` makes damaged search indexes anew and schedules lost summaries again, first; it never
    removes an original.
    """

    full: bool = False
    repair: bool = False


class Fault(Wire):
    """One thing that is wrong, what is unharmed by it, and the next command to run."""

    what: str
    unharmed: str
    next: str


class DoctorResponse(Wire):
    """``faults`` are what is wrong now, after any repair; ``checked`` counts what was looked at."""

    faults: list[Fault]
    repaired: list[str]
    notes: list[str]
    checked: dict[str, int]


ROUTES: dict[str, tuple[type[Wire] | None, type[Wire]]] = {
    "/v1/health": (None, Health),
    "/v1/sync": (SyncRequest, SyncResponse),
    "/v1/assemble": (AssembleRequest, AssembleResponse),
    "/v1/check": (CheckRequest, CheckResponse),
    "/v1/tool": (ToolRequest, ToolResponse),
    "/v1/status": (None, StatusResponse),
    "/v1/import": (ImportRequest, ImportStatus),
    "/v1/import-status": (ImportStatusRequest, ImportStatus),
    "/v1/export": (ExportRequest, ExportResponse),
    "/v1/follow": (FollowRequest, FollowResponse),
    "/v1/share": (ShareRequest, ShareResponse),
    "/v1/resync": (ResyncRequest, SyncResponse),
    "/v1/forget": (ForgetRequest, ForgetResponse),
    "/v1/forgotten": (ForgottenRequest, ForgottenResponse),
    "/v1/present": (PresentRequest, PresentResponse),
    "/v1/work": (WorkRequest, WorkResponse),
    "/v1/work-done": (WorkDone, WorkDoneResponse),
    "/v1/spend": (SpendRequest, SpendResponse),
    "/v1/jobs": (JobsRequest, JobsResponse),
    "/v1/resume": (None, ResumeResponse),
    "/v1/rebuild": (RebuildRequest, RebuildResponse),
    "/v1/summarise": (SummariseRequest, SummariseResponse),
    "/v1/doctor": (DoctorRequest, DoctorResponse),
    "/v1/stop": (None, Health),
}
"""Every path with its request and answer."""
