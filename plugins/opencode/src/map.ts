/**
 * The host's messages in the protocol's terms: what is sealed of them, and a digest of just that.
 *
 * Reasoning, snapshots and step marks end here and never leave the process. Bytes of attachments do
 * not either: a manifest stands for them.
 */
import { createHash } from "node:crypto";
import type { HostAssistant, HostFile, HostMessage, HostPart, HostTool } from "./host.ts";
import { OWN_TOOLS } from "./names.ts";
import type { FilePart, MessageInfo, OwnResult, TextPart, ToolPart } from "./wire.gen.ts";

export type Role = MessageInfo["role"];
export type Part = TextPart | FilePart | ToolPart;

/** What the process has seen of a session beyond what its messages tell. */
export interface Watched {
  /** User messages, by whether each arrived while the session was idle. */
  opens: ReadonlyMap<string, boolean>;
  /** Messages whose parts are known to be complete because the host has sent them. */
  loaded: ReadonlySet<string>;
  /** Assistant messages that this process began. */
  begun: ReadonlySet<string>;
  /** The session is idle here and what it wrote has had time to arrive. */
  settled: boolean;
}

/** Every message, in order, with its content. */
export function mapMessages(messages: readonly HostMessage[], watched: Watched): MessageInfo[] {
  const roles = rolesOf(messages);
  const lastAssistant = messages.findLastIndex(({ info }) => info.role === "assistant");
  return messages.map((message, index) => {
    const { info } = message;
    const role = roles[index] ?? "other";
    const parts = role === "other" ? [] : message.parts.flatMap((part) => mapPart(part));
    const superseded = index < lastAssistant;
    const mapped: MessageInfo = {
      id: info.id,
      role,
      digest: digest(role, parts),
      final: isFinal(message, superseded, index === messages.length - 1, watched),
      created_ms: info.time.created,
      parts,
    };
    if (info.role === "user") mapped.opens = watched.opens.get(info.id) ?? null;
    else if (role === "assistant" && mapped.final)
      mapped.terminal = terminal(info, message.parts, follower(messages, index, watched));
    return mapped;
  });
}

/**
 * Who speaks in each message. The host's compaction adds a request of its own, the summary, and
 * then either a copy of the user's message or a synthetic "continue"; none of them is new history.
 */
export function rolesOf(messages: readonly HostMessage[]): Role[] {
  let person: string | undefined;
  let overflowed = false;
  return messages.map(({ info, parts }) => {
    if (info.role === "assistant") return info.summary ? "other" : "assistant";
    const compaction = parts.find((part) => part.type === "compaction");
    if (compaction) {
      overflowed = compaction.overflow === true;
      return "other";
    }
    if (parts.some((part) => part.type === "text" && part.metadata?.compaction_continue)) {
      return "other";
    }
    const text = spoken(parts);
    const replayed = overflowed && text === person;
    overflowed = false;
    person = text;
    return replayed ? "other" : "user";
  });
}

// The copy of a message turns its media into a line of text, which the original does not have.
function spoken(parts: readonly HostPart[]): string {
  const texts = parts.flatMap((part) => (part.type === "text" ? [part.text] : []));
  return texts.filter((text) => !/^\[Attached \S+: .*\]$/.test(text)).join("\n");
}

function isFinal(
  { info, parts }: HostMessage,
  superseded: boolean,
  last: boolean,
  watched: Watched,
): boolean {
  // The host writes a user's message before its parts.
  if (info.role === "user") return !last || watched.loaded.has(info.id) || watched.settled;
  if (superseded) return true;
  // A shell command is marked as completed before its output is stored.
  const open = parts.some((part) => part.type === "tool" && isOpen(part));
  if (info.time.completed !== undefined && !open) return true;
  return watched.settled && watched.begun.has(info.id);
}

function isOpen({ state }: HostTool): boolean {
  return state.status === "pending" || state.status === "running";
}

type Follower = "compaction" | "other" | "none" | "unknown";

// What comes after a message that was left without an end tells what became of its turn.
function follower(messages: readonly HostMessage[], index: number, watched: Watched): Follower {
  const next = messages[index + 1];
  if (!next) return watched.settled ? "none" : "unknown";
  const compaction = next.parts.find((part) => part.type === "compaction");
  return compaction?.overflow ? "compaction" : "other";
}

export function terminal(
  info: HostAssistant,
  parts: readonly HostPart[],
  follower: Follower,
): Exclude<MessageInfo["terminal"], undefined> {
  if (info.error) return info.error.name === "MessageAbortedError" ? "interrupted" : "failed";
  if (info.finish === "tool-calls" || info.finish === "unknown") return null;
  if (info.finish !== undefined) return "completed";
  // A command that the user ran himself has parts but no step of a model, and no finish either.
  if (parts.length > 0 && parts.every((part) => part.type === "tool")) return "completed";
  // Aborted while it waited, or too long for the model: then the turn goes on after a compaction.
  return follower === "compaction" || follower === "unknown" ? null : "interrupted";
}

function mapPart(part: HostPart): Part[] {
  switch (part.type) {
    case "text":
      if (part.ignored) return [];
      return [textPart(part.id, part.text, part.synthetic === true)];
    case "subtask":
      return [textPart(part.id, part.prompt, false)];
    case "file":
      return [mapFile(part)];
    case "tool":
      return [mapTool(part)];
    default:
      return [];
  }
}

// Cut in the middle of a character by the host or a tool, a text has half of a pair left over, which
// no UTF-8 can carry: the coordinator would have to refuse the whole request.
function textPart(id: string, text: string, synthetic: boolean): TextPart {
  return { type: "text", id, text: text.toWellFormed(), synthetic };
}

function mapFile({ id, mime, filename, url }: HostFile): FilePart {
  const file: FilePart = { type: "file", id, mime, filename: filename?.toWellFormed() ?? "", url };
  if (!url.startsWith("data:")) return file;
  const comma = url.indexOf(",");
  const payload = url.slice(comma + 1);
  const base64 = url.slice(0, comma).endsWith(";base64");
  const content_bytes = base64
    ? Buffer.byteLength(payload, "base64")
    : Buffer.byteLength(decode(payload));
  return { ...file, url: "data:", content_bytes };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function mapTool({ id, tool, state }: HostTool): ToolPart {
  const { metadata, time } = state;
  const part: ToolPart = {
    type: "tool",
    id,
    tool,
    input_json: toJson(state.input),
    status: state.status,
    title: state.title?.toWellFormed() ?? "",
    started_ms: time?.start ?? null,
    ended_ms: time?.end ?? null,
    report: tool === "task",
    attachments: (state.attachments ?? []).map(mapFile),
  };
  if (OWN_TOOLS.has(tool)) return { ...part, own: ownResult(metadata?.optchat) };
  part.output = state.output?.toWellFormed() ?? null;
  part.error = state.error?.toWellFormed() ?? null;
  if (metadata?.truncated === true) {
    part.truncated = "the host truncated this output";
    if (typeof metadata.outputPath === "string") part.full_output_path = metadata.outputPath;
  }
  return part;
}

/** A call's arguments as JSON that every parser can read back. */
export function toJson(value: unknown): string {
  const whole = (_: string, item: unknown) =>
    typeof item === "string" ? item.toWellFormed() : item;
  return JSON.stringify(value ?? {}, whole);
}

// A call that ended without an answer of ours still has no text worth keeping.
function ownResult(found: unknown): OwnResult {
  const { refs, snapshot, sha256 } = (found ?? {}) as Partial<OwnResult>;
  return { refs: refs ?? [], snapshot: snapshot ?? "", sha256: sha256 ?? "" };
}

// Part ids are left out: a fork's copies have new ones, and the same digest then says what they are.
function digest(role: Role, parts: readonly Part[]): string {
  const content = parts.map((part) => {
    const { id, ...rest } = part;
    if (rest.type !== "tool") return rest;
    return { ...rest, attachments: rest.attachments?.map(({ id: own, ...file }) => file) };
  });
  return createHash("sha256")
    .update(JSON.stringify([role, content]))
    .digest("hex");
}
