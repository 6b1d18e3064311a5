// Generated from src/optchat/wire.py by tools/gen_wire.py. Do not edit.

/**
 * The shape of a request about to be sent (§7).
 *
 * ``overhead`` measures instructions and tool definitions as far as the host shows them before the
 * call; ``overhead_known`` is false while it is a guess. ``shape`` is the outgoing message list in
 * order, before anything of ours.
 */
export interface AssembleRequest {
  session: SessionInfo;
  model: ModelInfo;
  agent: string;
  shape: ShapeMessage[];
  overhead: SizesInfo;
  overhead_known?: boolean;
  usage?: UsageInfo | null;
}
/**
 * A host's session as the host sees it now.
 *
 * ``project_key`` is what the host identifies the project by; for directories that the host does
 * not tell apart, the directory. ``fork_of`` is the host session that this one was forked from,
 * when the adapter knows. ``parent_id`` is set for a subagent's session.
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
 * An error as it crosses the wire; ``hint`` is the next thing to do.
 */
export interface ErrorInfo {
  code: string;
  message: string;
  hint: string;
  retryable: boolean;
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
 * Who answers on the socket.
 */
export interface Health {
  version: string;
  protocol: number;
  epoch: number;
  pid: number;
  home: string;
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
 * One session in ``status``.
 */
export interface SessionCounts {
  ref: string;
  title: string;
  host_session: string;
  turns: number;
  records: number;
  published: number;
  disabled: string | null;
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
 * The membership of a session: every message of the host, in its order (§3, §12).
 *
 * Content goes along for messages that the sender thinks are new; the answer names what else is
 * needed. ``idle`` says that no run of this session is going on in the sender's process, which
 * closes a turn that has no terminal message as interrupted.
 */
export interface SyncRequest {
  session: SessionInfo;
  messages: MessageInfo[];
  idle?: boolean;
}
/**
 * What the store holds now. ``need`` empty means that everything final is sealed.
 */
export interface SyncResponse {
  session: string;
  generation: number;
  need: string[];
  records: number;
  sealed: number;
  turn: string | null;
  disabled: string | null;
}
/**
 * A retrieval call (§8).
 *
 * From a host: ``host`` and ``session`` name the asking conversation (a subagent's parent) and its
 * open turn's snapshot is served. From a person: ``directory`` or ``scope`` chooses the scope and
 * the newest state is served. ``args`` are raw and validated here.
 */
export interface ToolRequest {
  tool: "memory_date" | "memory_search" | "memory_sessions" | "memory_zoom";
  args_json?: string;
  host?: string | null;
  session?: string | null;
  directory?: string | null;
  scope?: string | null;
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

export const PROTOCOL = 1;
export const PROTOCOL_HEADER = "x-optchat-protocol";

/** Every path with its request and answer. */
export interface Routes {
  "/v1/health": { request: undefined; answer: Health };
  "/v1/sync": { request: SyncRequest; answer: SyncResponse };
  "/v1/assemble": { request: AssembleRequest; answer: AssembleResponse };
  "/v1/check": { request: CheckRequest; answer: CheckResponse };
  "/v1/tool": { request: ToolRequest; answer: ToolResponse };
  "/v1/status": { request: undefined; answer: StatusResponse };
  "/v1/export": { request: ExportRequest; answer: ExportResponse };
  "/v1/resync": { request: ResyncRequest; answer: SyncResponse };
  "/v1/stop": { request: undefined; answer: Health };
}
