/** Sizes by class of character, as the coordinator counts them: tokens are made there, not here. */
import type { HostMessage, HostPart, HostTool } from "./host.ts";
import type { SizesInfo } from "./wire.gen.ts";

export type Sizes = Required<SizesInfo>;

export const NOTHING: Sizes = { letters: 0, spaces: 0, symbols: 0, other_bytes: 0, media: 0 };

export function add(a: Sizes, b: Sizes): Sizes {
  return {
    letters: a.letters + b.letters,
    spaces: a.spaces + b.spaces,
    symbols: a.symbols + b.symbols,
    other_bytes: a.other_bytes + b.other_bytes,
    media: a.media + b.media,
  };
}

/** Whether `a` is more than `b` in any class, which is when a request must be looked at again. */
export function exceeds(a: Sizes, b: Sizes): boolean {
  return (
    a.letters > b.letters ||
    a.spaces > b.spaces ||
    a.symbols > b.symbols ||
    a.other_bytes > b.other_bytes ||
    a.media > b.media
  );
}

export function measure(text: string): Sizes {
  let letters = 0;
  let spaces = 0;
  let symbols = 0;
  let other_bytes = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code > 0x7f) {
      // Half of a surrogate pair counts two of the pair's four bytes.
      other_bytes += code < 0x800 || (code >= 0xd800 && code <= 0xdfff) ? 2 : 3;
    } else if ((code | 0x20) >= 0x61 && (code | 0x20) <= 0x7a) letters++;
    else if (code === 0x20 || (code >= 0x09 && code <= 0x0d && code !== 0x0b && code !== 0x0c))
      spaces++;
    else symbols++;
  }
  return { letters, spaces, symbols, other_bytes, media: 0 };
}

/** What a message measured, and how long its text was then. */
export interface Measured {
  length: number;
  sizes: Sizes;
}

/**
 * The sizes of every message. Each step of a turn sends the whole list again, so that what is as
 * long as before is not counted anew.
 */
export function measureMessages(
  messages: readonly HostMessage[],
  known: Map<string, Measured>,
): Sizes[] {
  return messages.map((message) => {
    const length = message.parts.reduce((sum, part) => sum + lengthOf(part), 0);
    const before = known.get(message.info.id);
    if (before?.length === length) return before.sizes;
    const sizes = measureMessage(message);
    known.set(message.info.id, { length, sizes });
    return sizes;
  });
}

function lengthOf(part: HostPart): number {
  if (part.type === "text" || part.type === "reasoning") return 1 + part.text.length;
  if (part.type !== "tool" || part.state.time?.compacted) return 1;
  return 1 + part.state.status.length + (part.state.output ?? part.state.error ?? "").length;
}

/** What reaches the provider of one message, by the host's own rules of conversion. */
export function measureMessage({ info, parts }: HostMessage): Sizes {
  if (info.role === "assistant" && info.error && !survives(info.error.name, parts)) return NOTHING;
  return parts.map((part) => measurePart(part, info.role)).reduce(add, NOTHING);
}

// A failed answer is not sent again, unless it was aborted after it had said or done something.
function survives(error: string, parts: HostPart[]): boolean {
  const content = parts.some((part) => part.type !== "step-start" && part.type !== "reasoning");
  return error === "MessageAbortedError" && content;
}

function measurePart(part: HostPart, role: "user" | "assistant"): Sizes {
  switch (part.type) {
    case "text":
      return role === "user" && part.ignored ? NOTHING : measure(part.text);
    case "reasoning":
      return measure(part.text);
    case "tool":
      return measureTool(part);
    case "file":
      return inlined(part.mime) ? NOTHING : { ...NOTHING, media: 1 };
    case "compaction":
      return measure("What did we do so far?");
    case "subtask":
      return measure("The following tool was executed by the user");
    default:
      return NOTHING;
  }
}

function measureTool({ tool, state }: HostTool): Sizes {
  const call = measure(tool + JSON.stringify(state.input ?? {}));
  if (state.status === "error") return add(call, measure(state.error ?? ""));
  if (state.status !== "completed") return add(call, measure("[Tool execution was interrupted]"));
  if (state.time?.compacted) return add(call, measure("[Old tool result content cleared]"));
  const media = (state.attachments ?? []).filter((file) => !inlined(file.mime)).length;
  return add(add(call, measure(state.output ?? "")), { ...NOTHING, media });
}

// Text files and folders are written out beside the part by the host, and the part is not sent.
function inlined(mime: string): boolean {
  return mime === "text/plain" || mime === "application/x-directory";
}
