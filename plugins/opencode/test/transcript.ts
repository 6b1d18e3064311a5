/** Messages in the shapes that were recorded on the real host, made short. */
import type { HostAssistant, HostMessage, HostPart, HostTool } from "../src/host.ts";

export const SESSION = "ses_1";
const MODEL = { providerID: "fake", modelID: "big-200k" };
let clock = 1_796_010_298_000;
let count = 0;

function next(prefix: string): string {
  count++;
  return `${prefix}_${String(count).padStart(6, "0")}`;
}

export function text(content: string, fields: Partial<HostPart> = {}): HostPart {
  return { id: next("prt"), type: "text", text: content, ...fields } as HostPart;
}

export function tool(name: string, state: Partial<HostTool["state"]> = {}): HostPart {
  const time = { start: 1, end: 2 };
  const full = { status: "completed", input: { a: 1 }, output: "out", title: "t", time, ...state };
  return { id: next("prt"), type: "tool", tool: name, state: full } as HostPart;
}

export function part(type: string, fields: object = {}): HostPart {
  return { id: next("prt"), type, ...fields } as HostPart;
}

export function user(...parts: (string | HostPart)[]): HostMessage {
  clock += 1_000;
  return {
    info: {
      id: next("msg"),
      sessionID: SESSION,
      role: "user",
      agent: "build",
      model: MODEL,
      time: { created: clock },
    },
    parts: parts.map((item) => (typeof item === "string" ? text(item) : item)),
  };
}

/** An answer that ended well, unless the fields say otherwise. */
export function assistant(
  fields: Partial<HostAssistant> & { open?: boolean },
  ...parts: (string | HostPart)[]
): HostMessage {
  clock += 1_000;
  const { open, ...rest } = fields;
  return {
    info: {
      id: next("msg"),
      sessionID: SESSION,
      role: "assistant",
      parentID: "msg_0",
      ...MODEL,
      tokens: { input: 100, output: 0, reasoning: 0, cache: { read: 20, write: 3 } },
      time: open ? { created: clock } : { created: clock, completed: clock + 500 },
      ...rest,
    },
    parts: [part("step-start"), ...parts.map((p) => (typeof p === "string" ? text(p) : p))],
  };
}

export function answer(...parts: (string | HostPart)[]): HostMessage {
  return assistant({ finish: "stop" }, ...parts);
}
