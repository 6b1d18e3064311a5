// Generated from src/optchat/wire.py by tools/gen_wire.py. Do not edit.

/**
 * The shape of a request about to be sent (§7).
 *
 * ``overhead`` measures instructions and tool definitions as far as the host shows them before the
 * call; ``overhead_known`` is false while it is a guess. ``shape`` is the outgoing message list in
 * order, before anything of ours. ``purpose`` "compaction" asks what the host's own summary is to
 * be made from: the session's earlier history in ``base`` instead of the messages that it stands
 * for, and nothing of other sessions.
 */
export interface AssembleRequest {
  session: SessionInfo;
  model: ModelInfo;
  agent: string;
  shape: ShapeMessage[];
  overhead: SizesInfo;
  overhead_known?: boolean;
  usage?: UsageInfo | null;
  purpose?: "compaction" | "main";
}
/**
 * A host's session as the host sees it now.
 *
 * ``project_key`` is what the host identifies the project by; for directories that the host does
 * not tell apart, the directory. ``fork_of`` is the host session that this one was forked from,
 * when the adapter knows. ``parent_id`` is set for a subagent's session. ``store`` names the place
 * where the host keeps the session, so that two data directories of one host are told apart.
 */
export interface SessionInfo {
  host: string;
  id: string;
  project_key: string;
  project_directory: string;
  directory: string;
  title?: string;
  created_ms?: number;
  updated_ms?: number;
  parent_id?: string | null;
  fork_of?: string | null;
  archived?: boolean;
  worktree?: string | null;
  store?: string;
}
/**
 * The model of the request, with its limits in tokens.
 */
export interface ModelInfo {
  provider: string;
  id: string;
  context_tokens: number;
  output_tokens: number;
  input_tokens?: number | null;
}
/**
 * One message of the outgoing request: identity and size, no content.
 */
export interface ShapeMessage {
  id: string;
  role: "assistant" | "other" | "user";
  sizes: SizesInfo;
}
/**
 * A text's size by class of character; tokens are made from it by the coordinator.
 */
export interface SizesInfo {
  letters?: number;
  spaces?: number;
  symbols?: number;
  other_bytes?: number;
  media?: number;
}
/**
 * What the provider reported for an earlier request of this session, all input included.
 *
 * For one that it refused as too long, the model's whole window.
 */
export interface UsageInfo {
  message_id: string;
  input_tokens: number;
}
/**
 * What to put into the request, byte for byte.
 *
 * ``state`` "ready": inject. "native": leave the request as it is, for the reason in ``notice`` if
 * there is one to tell. "stop": do not send it; ``error`` says why and what to do.
 * ``keep_from`` names the first message to keep; everything before it is in the base.
 */
export interface AssembleResponse {
  state: "native" | "ready" | "stop";
  base: string;
  placement: "message" | "system";
  keep_from: string | null;
  news: NewsText[];
  checkpoints: CheckpointText[];
  notice: string | null;
  error: ErrorInfo | null;
  turn: string | null;
  estimated_tokens: number;
  limit_tokens: number;
}
/**
 * Text to stand first in the named message.
 */
export interface NewsText {
  message_id: string;
  text: string;
}
/**
 * What stands for finished steps of a turn (§7).
 *
 * ``text`` is to stand last in message ``after``; the messages between it and ``until`` are left
 * out. Both are in the request, and no call is parted from its result.
 */
export interface CheckpointText {
  after: string;
  until: string;
  text: string;
}
/**
 * An error as it crosses the wire; ``hint`` is the next thing to do.
 */
export interface ErrorInfo {
  code: string;
  message: string;
  hint: string;
  retryable: boolean;
}
/**
 * One cap: ``limit`` 0 is none.
 */
export interface CapInfo {
  name: string;
  used: number;
  limit: number;
}
/**
 * The final check before dispatch, when the overhead is not what was announced.
 */
export interface CheckRequest {
  session: SessionInfo;
  model: ModelInfo;
  agent: string;
  overhead: SizesInfo;
}
/**
 * ``error`` is None when the request fits the model's window.
 */
export interface CheckResponse {
  error: ErrorInfo | null;
  estimated_tokens: number;
  limit_tokens: number;
}
/**
 * A subagent's session as the host has it at this moment.
 */
export interface ChildInfo {
  id: string;
  title?: string;
  state?: "cancelled" | "completed" | "failed" | "running" | "unknown";
  created_ms?: number;
  updated_ms?: number;
}
/**
 * Check the store. ``full`` hashes every payload instead of a sample.
 *
 * ``repair`` makes damaged search indexes anew and schedules lost summaries again, first; it never
 * removes an original.
 */
export interface DoctorRequest {
  full?: boolean;
  repair?: boolean;
}
/**
 * ``faults`` are what is wrong now, after any repair; ``checked`` counts what was looked at.
 */
export interface DoctorResponse {
  faults: Fault[];
  repaired: string[];
  notes: string[];
  checked: {
    [k: string]: number;
  };
}
/**
 * One thing that is wrong, what is unharmed by it, and the next command to run.
 */
export interface Fault {
  what: string;
  unharmed: string;
  next: string;
}
/**
 * The body of every answer that is not a success.
 */
export interface ErrorBody {
  error: ErrorInfo;
}
/**
 * Write a scope as Markdown below ``folder``: tree, publications, originals.
 */
export interface ExportRequest {
  folder: string;
  directory?: string | null;
  scope?: string | null;
}
/**
 * What was written.
 */
export interface ExportResponse {
  folder: string;
  files: number;
  publications: number;
  records: number;
}
/**
 * An attachment: kept as a manifest, not as bytes.
 */
export interface FilePart {
  type: "file";
  id: string;
  mime: string;
  filename?: string;
  url?: string;
  content_bytes?: number | null;
}
/**
 * How often the checks found something in a model's answers.
 */
export interface FindingInfo {
  model: string;
  prompt_version: string;
  finding: string;
  times: number;
}
/**
 * What has changed about a session besides its messages: its title, whether it is archived.
 *
 * A session that is not known stays unknown.
 */
export interface FollowRequest {
  session: SessionInfo;
}
/**
 * Whether the session is known.
 */
export interface FollowResponse {
  known: boolean;
}
/**
 * Remove what was remembered, with everything made of it, for good (§12).
 *
 * ``what`` "session": ``name`` as s12 or the host's id; "turn": a ref such as pub:24 or s12:0:71;
 * both of the scope that ``scope`` or ``directory`` chooses. "before": the turns of that scope
 * that ended before the time ``name`` (ISO, local). "project": the directory ``name``, all of it.
 * ``dry_run`` tells what would go and removes nothing.
 */
export interface ForgetRequest {
  what: "before" | "project" | "session" | "turn";
  name: string;
  directory?: string | null;
  scope?: string | null;
  dry_run?: boolean;
}
/**
 * What was removed, and in ``unreachable`` what could not be and where it may still be.
 */
export interface ForgetResponse {
  removal: RemovalInfo;
  dry_run: boolean;
  unreachable: string[];
}
/**
 * One removal: counts by kind, and ``places`` that still quote it, as refs. No word of it.
 */
export interface RemovalInfo {
  at_ms: number;
  what: string;
  counts: {
    [k: string]: number;
  };
  places: string[];
}
/**
 * List the last removals.
 */
export interface ForgottenRequest {
  limit?: number;
}
/**
 * The removals, newest first.
 */
export interface ForgottenResponse {
  removals: RemovalInfo[];
}
/**
 * Who answers on the socket, whether it takes in what subagents say (§12), and whether it
 * answers under the names of other systems' tools as well.
 */
export interface Health {
  version: string;
  protocol: number;
  epoch: number;
  pid: number;
  home: string;
  subagents: boolean;
  aliases: boolean;
}
/**
 * Take in the history that a host keeps at ``path``, in the background; asking again joins.
 *
 * Only sessions that were used at ``since_ms`` or later, and those of the directory ``project``.
 * ``form`` "memory-tree" is the folder of another plugin, whose trees are of that directory.
 * ``dry_run`` counts and keeps nothing.
 */
export interface ImportRequest {
  path: string;
  form?: "memory-tree" | "opencode";
  since_ms?: number;
  project?: string | null;
  dry_run?: boolean;
}
/**
 * An import: ``done`` of ``total`` sessions looked at; ``records`` are new.
 *
 * ``skipped`` counts sessions by reason. ``error`` says why it ended early; what was taken in
 * until then is kept, and another import goes on from there.
 */
export interface ImportStatus {
  id: number;
  path: string;
  running: boolean;
  dry_run: boolean;
  total: number;
  done: number;
  sessions: number;
  records: number;
  skipped: {
    [k: string]: number;
  };
  unreadable: string[];
  error: ErrorInfo | null;
}
/**
 * How an import is getting on.
 */
export interface ImportStatusRequest {
  id: number;
}
/**
 * One job that is set aside, or that has been tried.
 */
export interface JobInfo {
  id: string;
  kind: string;
  target: string;
  session: string;
  state: string;
  attempts: number;
  error: string;
  due_ms: number;
}
/**
 * List the queue; ``retry`` a failed job by its id, or "all" of them, first.
 */
export interface JobsRequest {
  retry?: string | null;
  limit?: number;
}
/**
 * The queue: counts by state, the jobs set aside, and those that wait after a failure.
 */
export interface JobsResponse {
  counts: {
    [k: string]: number;
  };
  retried: number;
  failed: JobInfo[];
  waiting: JobInfo[];
  notices: string[];
}
/**
 * One message of the host's transcript, with or without its content.
 *
 * ``digest`` covers all that we would seal of it. ``final`` says that the host will not add to it.
 * ``terminal`` is set on the assistant message that ends a run of the model loop. ``opens`` is
 * true for a user message that arrived while the session was idle, false for one that arrived
 * while it ran, None when nobody watched. ``role`` "other" is part of the host's own machinery
 * (such as its compaction) and gives no records.
 */
export interface MessageInfo {
  id: string;
  role: "assistant" | "other" | "user";
  digest: string;
  final: boolean;
  created_ms?: number;
  terminal?: ("completed" | "failed" | "interrupted") | null;
  opens?: boolean | null;
  parts?: (TextPart | FilePart | ToolPart)[] | null;
}
/**
 * Text of a message. ``synthetic`` marks what a host or plugin added, not the person.
 */
export interface TextPart {
  type: "text";
  id: string;
  text: string;
  synthetic?: boolean;
}
/**
 * A tool call with its result, as the host holds them.
 *
 * ``input_json`` is the call's input exactly as the host keeps it, serialised. ``output`` is None
 * while there is none. ``truncated`` says in the host's own terms what it dropped, and
 * ``full_output_path`` where the whole is, if anywhere. ``report`` marks a subagent's answer.
 */
export interface ToolPart {
  type: "tool";
  id: string;
  tool: string;
  input_json: string;
  status: "completed" | "error" | "pending" | "running";
  output?: string | null;
  error?: string | null;
  title?: string;
  started_ms?: number | null;
  ended_ms?: number | null;
  truncated?: string | null;
  full_output_path?: string | null;
  report?: boolean;
  own?: OwnResult | null;
  attachments?: FilePart[];
}
/**
 * What optchat's own tool answered, by reference: its text is never ingested again.
 */
export interface OwnResult {
  refs: string[];
  snapshot: string;
  sha256: string;
}
/**
 * The sessions that a host has of a project, in one of its stores, so that what is gone goes.
 *
 * ``ids`` may be a part of them: a session that is not in it is asked about, never removed for it.
 * ``gone`` are those of which the host has said, each by its id, that there is no such session;
 * only these are forgotten. ``store`` as in ``SessionInfo``; "" answers nothing.
 */
export interface PresentRequest {
  host: string;
  store: string;
  project_key: string;
  ids: string[];
  gone?: string[];
}
/**
 * ``missing``: sessions of that store and project in the memory and not in ``ids``.
 */
export interface PresentResponse {
  missing: string[];
  forgotten: number;
}
/**
 * Make summaries of another model or prompt version anew, as new revisions.
 *
 * ``session`` as s12 with a directory or scope, else everything of the scope. Without
 * ``confirmed`` nothing is queued and the answer is the estimate.
 */
export interface RebuildRequest {
  session?: string | null;
  directory?: string | null;
  scope?: string | null;
  confirmed?: boolean;
}
/**
 * ``nodes`` to be made again, about ``calls`` and ``input_tokens``; ``queued`` of them.
 */
export interface RebuildResponse {
  nodes: number;
  calls: number;
  input_tokens: number;
  queued: number;
}
/**
 * Caps count anew from now on; ``released`` jobs that one had put off are due.
 */
export interface ResumeResponse {
  released: number;
}
/**
 * Enable memory of a session again and compare it with the host at its next turn (§12).
 */
export interface ResyncRequest {
  session: string;
}
/**
 * One scope in ``status``.
 */
export interface ScopeStatus {
  scope: string;
  name: string;
  publications: number;
  retention_epoch: number;
  policy_revision: number;
  sessions: SessionCounts[];
}
/**
 * One session in ``status``; ``sharing`` is what was chosen for it alone.
 */
export interface SessionCounts {
  ref: string;
  title: string;
  host_session: string;
  turns: number;
  records: number;
  published: number;
  disabled: string | null;
  archived?: boolean;
  sharing?: string | null;
}
/**
 * Who shares with a session, from its next turn on (§11, §12).
 *
 * ``session`` is a host's id, or s12 in the scope that ``directory`` or ``scope`` names.
 * ``sharing``: "isolated", "project", a profile's name, or None for what the configuration says.
 */
export interface ShareRequest {
  session: string;
  sharing?: string | null;
  directory?: string | null;
  scope?: string | null;
}
/**
 * What was decided; ``withdrawn`` publications are out of every read already.
 */
export interface ShareResponse {
  session: string;
  host_session: string;
  scope: string;
  next_scope: string;
  withdrawn: number;
}
/**
 * What summaries have cost in the last ``days`` calendar days, today included.
 */
export interface SpendRequest {
  days?: number;
}
/**
 * The meter, by day, session, purpose and model; sessions are named as in refs.
 */
export interface SpendResponse {
  total: SpendRow;
  by_day: SpendRow[];
  by_session: SpendRow[];
  by_purpose: SpendRow[];
  by_model: SpendRow[];
  caps: CapInfo[];
  currency: string;
  unfinished: number;
  notices: string[];
  findings: FindingInfo[];
}
/**
 * One line of a table. ``cost`` is null while some of its calls have no known price.
 */
export interface SpendRow {
  name: string;
  calls: number;
  input_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  cost: number | null;
}
/**
 * The state of the store, the queue and the coordinator.
 */
export interface StatusResponse {
  health: Health;
  records: number;
  jobs: {
    [k: string]: number;
  };
  failed_jobs: string[];
  scopes: ScopeStatus[];
  summariser: string;
  notices: string[];
}
/**
 * Have history that was taken in summarised: turns that ended at ``since_ms`` or later.
 *
 * Of every scope, or those of the directory ``project``. Without ``confirmed`` nothing is queued
 * and the answer is the estimate.
 */
export interface SummariseRequest {
  since_ms?: number;
  project?: string | null;
  confirmed?: boolean;
}
/**
 * ``turns`` that only have a name so far, and about what real lines for them take.
 *
 * ``cost`` is null where no price is configured. ``days`` is how long the daily caps stretch it;
 * ``queued`` turns are to get one.
 */
export interface SummariseResponse {
  turns: number;
  lines: number;
  calls: number;
  input_tokens: number;
  output_tokens: number;
  cost: number | null;
  currency: string;
  days: number;
  queued: number;
}
/**
 * The membership of a session: every message of the host, in its order (§3, §12).
 *
 * Content goes along for messages that the sender thinks are new; the answer names what else is
 * needed. ``idle`` says that no run of this session is going on in the sender's process, which
 * closes a turn that has no terminal message as interrupted. ``observed_ms`` is when the
 * membership was read: one read earlier than what is sealed never takes anything back.
 */
export interface SyncRequest {
  session: SessionInfo;
  messages: MessageInfo[];
  idle?: boolean;
  observed_ms?: number;
}
/**
 * What the store holds now. ``need`` empty means that everything final is sealed.
 *
 * ``notice`` says, once a person should know it, why summaries are not being made (a cap, no key).
 */
export interface SyncResponse {
  session: string;
  generation: number;
  need: string[];
  records: number;
  sealed: number;
  turn: string | null;
  disabled: string | null;
  notice: string | null;
}
/**
 * A retrieval call (§8).
 *
 * From a host: ``host`` and ``session`` name the asking conversation (a subagent's parent) and its
 * open turn's snapshot is served. From a person: ``directory`` or ``scope`` chooses the scope and
 * the newest state is served. ``args`` are raw and validated here. ``children`` are the asking
 * conversation's subagents, told when it asks about them.
 */
export interface ToolRequest {
  tool:
    | ("memory_date" | "memory_messages" | "memory_search" | "memory_sessions" | "memory_zoom")
    | (
        | "recall"
        | "recall_context"
        | "recall_get"
        | "recall_messages"
        | "recall_sessions"
        | "search_memory_tree"
      );
  args_json?: string;
  host?: string | null;
  session?: string | null;
  directory?: string | null;
  scope?: string | null;
  children?: ChildInfo[];
}
/**
 * The answer as text for a model, and as data for a program.
 *
 * ``refs`` are those shown, ``snapshot`` the one served, ``sha256`` of ``output``.
 */
export interface ToolResponse {
  output: string;
  title: string;
  refs: string[];
  snapshot: string;
  sha256: string;
  complete: boolean;
  data_json: string;
}
/**
 * One call to make. ``id`` is used once and is its fencing token.
 *
 * Ask the model with ``system`` as the *only* instructions (no environment block, no agent prompt)
 * and ``messages`` as the conversation, without any tool, not streamed to anybody, at most
 * ``output_tokens_max`` tokens. ``model`` is "provider/model" where the person configured one,
 * else null: the host's small model where it names one, else the session's own. Where the host can
 * only run a session, use a hidden agent without tools in a child session, mark it so that it is
 * neither listed nor synced to us, and delete it afterwards whatever happened. Answer with
 * ``/v1/work-done`` within ``timeout_ms``; a later answer is refused and the call is made again
 * by somebody.
 */
export interface Work {
  id: string;
  purpose: string;
  system: string;
  messages: WorkMessage[];
  output_tokens_max: number;
  timeout_ms: number;
  model?: string | null;
}
/**
 * One message of the call. The roles alternate and begin with "user".
 */
export interface WorkMessage {
  role: "assistant" | "user";
  text: string;
}
/**
 * What came of a call.
 *
 * ``outcome`` is "answer" with the whole ``text`` (reasoning left out), else why there is none:
 * "empty", "reasoning_only", "refused", "filtered", "cut" (the output limit came first),
 * "rate_limited", "timed_out", "unavailable" (the provider or the host failed), "gone" (no such
 * model), "denied" (no key, no credit), "rejected". ``model`` is "provider/model" as used, stored
 * with the nodes. ``usage`` is null where the host reports none; it is then estimated. ``sent``
 * false says that the provider never saw the call, which then costs nothing. ``detail`` is shown
 * to the person and must hold no text of the call.
 */
export interface WorkDone {
  id: string;
  outcome:
    | "answer"
    | "cut"
    | "denied"
    | "empty"
    | "filtered"
    | "gone"
    | "rate_limited"
    | "reasoning_only"
    | "refused"
    | "rejected"
    | "timed_out"
    | "unavailable";
  text?: string;
  model?: string;
  usage?: WorkUsage | null;
  retry_after_ms?: number | null;
  sent?: boolean;
  detail?: string;
}
/**
 * Tokens as the host reports them; input includes what came from the provider's cache.
 */
export interface WorkUsage {
  input_tokens?: number;
  cached_tokens?: number;
  output_tokens?: number;
}
/**
 * ``accepted`` false: nobody waits for that call any more; drop the answer.
 */
export interface WorkDoneResponse {
  accepted: boolean;
}
/**
 * A host offers its model: "is there something to summarise for this project?" (§10, §13).
 *
 * The plugin sends this in a loop while it runs, one at a time for each directory, from outside of
 * every hook. ``host`` and ``instance`` name the asking process (any string that it keeps to).
 * ``project_key``, ``project_directory`` and ``directory`` are as in ``SessionInfo``; only work of
 * the scope that they lead to is given out, since another project's text must not reach this
 * project's provider. ``wait_ms`` (at most 10,000) is how long the answer may be held back when
 * there is nothing. Asking is also the sign of presence: jobs of a scope that no host has asked
 * for within 30 seconds stay queued and cost nothing.
 */
export interface WorkRequest {
  host: string;
  instance: string;
  project_key: string;
  project_directory: string;
  directory: string;
  wait_ms?: number;
}
/**
 * ``work`` is null when there is nothing to do. ``wanted`` false: stop asking, because another
 * kind of model is configured; ask again only after the host restarts.
 */
export interface WorkResponse {
  wanted: boolean;
  work: Work | null;
}

export const PROTOCOL = 1;
export const PROTOCOL_HEADER = "x-optchat-protocol";

/** Our own tools. */
export const TOOLS = [
  "memory_zoom",
  "memory_search",
  "memory_date",
  "memory_sessions",
  "memory_messages",
] as const;

/** Tools of other systems under which ours can be called as well. */
export const ALIASES = [
  "recall",
  "recall_get",
  "recall_context",
  "recall_messages",
  "recall_sessions",
  "search_memory_tree",
] as const;

/** Every path with its request and answer. */
export interface Routes {
  "/v1/health": { request: undefined; answer: Health };
  "/v1/sync": { request: SyncRequest; answer: SyncResponse };
  "/v1/assemble": { request: AssembleRequest; answer: AssembleResponse };
  "/v1/check": { request: CheckRequest; answer: CheckResponse };
  "/v1/tool": { request: ToolRequest; answer: ToolResponse };
  "/v1/status": { request: undefined; answer: StatusResponse };
  "/v1/import": { request: ImportRequest; answer: ImportStatus };
  "/v1/import-status": { request: ImportStatusRequest; answer: ImportStatus };
  "/v1/export": { request: ExportRequest; answer: ExportResponse };
  "/v1/follow": { request: FollowRequest; answer: FollowResponse };
  "/v1/share": { request: ShareRequest; answer: ShareResponse };
  "/v1/resync": { request: ResyncRequest; answer: SyncResponse };
  "/v1/forget": { request: ForgetRequest; answer: ForgetResponse };
  "/v1/forgotten": { request: ForgottenRequest; answer: ForgottenResponse };
  "/v1/present": { request: PresentRequest; answer: PresentResponse };
  "/v1/work": { request: WorkRequest; answer: WorkResponse };
  "/v1/work-done": { request: WorkDone; answer: WorkDoneResponse };
  "/v1/spend": { request: SpendRequest; answer: SpendResponse };
  "/v1/jobs": { request: JobsRequest; answer: JobsResponse };
  "/v1/resume": { request: undefined; answer: ResumeResponse };
  "/v1/rebuild": { request: RebuildRequest; answer: RebuildResponse };
  "/v1/summarise": { request: SummariseRequest; answer: SummariseResponse };
  "/v1/doctor": { request: DoctorRequest; answer: DoctorResponse };
  "/v1/stop": { request: undefined; answer: Health };
}
