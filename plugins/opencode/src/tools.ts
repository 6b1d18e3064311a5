/** The four retrieval tools: arguments and answers pass through, the coordinator judges both. */
import type { Hooks } from "@opencode-ai/plugin";
import type { Connection } from "./connection.ts";
import { describe } from "./failure.ts";
import type { Host } from "./host.ts";
import { toJson } from "./map.ts";
import { HOST, type ToolName } from "./names.ts";
import type { Options } from "./options.ts";
import { rootOf } from "./session.ts";

interface Definition {
  description: string;
  properties: Record<string, { type: "string" | "integer" | "boolean"; description: string }>;
  required: string[];
}

const CURSOR = { type: "string", description: "Where to go on, from the answer before" } as const;
const DAY = "a date or time, such as 2026-03-01 or 2026-03-01T14:00";

export const DEFINITIONS: Record<ToolName, Definition> = {
  memory_zoom: {
    description:
      "Open a reference from memory. A range opens into its two halves, a publication into the " +
      "turn it came from, a single record into its exact original, page by page.",
    properties: {
      ref: { type: "string", description: "A reference as it stands at the start of a line" },
      cursor: CURSOR,
      max_tokens: { type: "integer", description: "The most to return at once" },
    },
    required: ["ref"],
  },
  memory_search: {
    description:
      "Search the originals and summaries of earlier conversations for words, identifiers or " +
      '"exact phrases". Finds details that no summary mentions. Hits are excerpts with their ' +
      "references: open one before relying on it.",
    properties: {
      query: { type: "string", description: "Words to find; quotes keep a phrase together" },
      session: { type: "string", description: "Only this conversation, such as s12" },
      before: { type: "string", description: `Only before ${DAY}` },
      after: { type: "string", description: `Only after ${DAY}` },
      cursor: CURSOR,
    },
    required: ["query"],
  },
  memory_date: {
    description: "Tell when what a reference stands for was said or done.",
    properties: {
      ref: { type: "string", description: "A reference as it stands at the start of a line" },
    },
    required: ["ref"],
  },
  memory_sessions: {
    description: "List the conversations that share this memory, the most recent first.",
    properties: {
      archived: { type: "boolean", description: "Also those that were archived" },
      cursor: CURSOR,
    },
    required: [],
  },
};

/** The tools as the host registers them. */
export function tools(host: Host, connection: Connection, options: Options): Hooks["tool"] {
  const made = Object.entries(DEFINITIONS).map(([name, { description, properties }]) => {
    const execute = (args: unknown, context: { sessionID: string; abort?: AbortSignal }) =>
      answer(name as ToolName, args, context);
    return [name, { description, args: properties, execute }];
  });

  async function answer(
    tool: ToolName,
    args: unknown,
    { sessionID, abort }: { sessionID: string; abort?: AbortSignal },
  ) {
    try {
      const session = await rootOf(host, sessionID);
      const body = { tool, args_json: toJson(args), host: HOST, session };
      const found = await connection.ask("/v1/tool", body, options.toolTimeoutMs, abort);
      const { output, title, refs, snapshot, sha256 } = found;
      return { title, output, metadata: { optchat: { refs, snapshot, sha256 } } };
    } catch (thrown) {
      // As text, so that the model can correct itself; a throw says less and looks like a defect.
      const { code, message, hint } = describe(thrown);
      const none = { refs: [], snapshot: "", sha256: "" };
      const output = `${code}: ${message}\n${hint}`;
      return { title: code, output, metadata: { optchat: none } };
    }
  }

  return Object.fromEntries(made) as unknown as Hooks["tool"];
}

/**
 * State the schema of our tools exactly: made from plain properties, the host's requires them all.
 * The field is there in the host's hook and missing in its types.
 */
export function define(tool: string, output: object): void {
  if (!Object.hasOwn(DEFINITIONS, tool)) return;
  const { properties, required } = DEFINITIONS[tool as ToolName];
  Object.assign(output, {
    jsonSchema: { type: "object", properties, required, additionalProperties: false },
  });
}
