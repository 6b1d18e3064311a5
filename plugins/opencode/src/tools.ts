/** The retrieval tools: arguments and answers pass through, the coordinator judges both. */
import type { Hooks } from "@opencode-ai/plugin";
import { ALIAS_DEFINITIONS } from "./aliases.ts";
import type { Connection } from "./connection.ts";
import { type Definition, flag, number, text } from "./definition.ts";
import { describe } from "./failure.ts";
import type { Host } from "./host.ts";
import { terminal, toJson } from "./map.ts";
import { type AliasName, HOST, OWN_TOOLS, type ToolName } from "./names.ts";
import type { Options } from "./options.ts";
import { rootOf } from "./session.ts";
import type { ChildInfo } from "./wire.gen.ts";

const CURSOR = text("Where to go on, from the answer before");
const REF = text("A reference as it stands at the start of a line");
const DAY = "a date or time, such as 2026-03-01 or 2026-03-01T14:00";
const CHILDREN = 20;

export const DEFINITIONS: Record<ToolName, Definition> = {
  memory_zoom: {
    description:
      "Open a reference from memory. A range opens into its two halves, a publication into the " +
      "turn it came from, a single record into its exact original, page by page.",
    properties: { ref: REF, cursor: CURSOR, max_tokens: number("The most to return at once") },
    required: ["ref"],
  },
  memory_search: {
    description:
      "Search the originals and summaries of earlier conversations for words, identifiers or " +
      '"exact phrases". Finds details that no summary mentions. Hits are excerpts with their ' +
      "references: open one before relying on it.",
    properties: {
      query: text(
        "Words to find; quotes keep a phrase together, -word leaves out. Filters may stand in it: " +
          "role:user tool:bash file:src/x.py outcome:error evidence:human last:7d group:session",
      ),
      session: text("Only this conversation, such as s12, or current; else all but this one"),
      before: text(`Only before ${DAY}`),
      after: text(`Only after ${DAY}`),
      cursor: CURSOR,
    },
    required: ["query"],
  },
  memory_date: {
    description: "Tell when what a reference stands for was said or done.",
    properties: { ref: REF },
    required: ["ref"],
  },
  memory_sessions: {
    description:
      "List the conversations that share this memory, the most recent first, with their families.",
    properties: {
      search: text("Words of title or directory"),
      parent: text("Only subagents of this one, such as s12, or current"),
      since: text("Only if active after a date or time"),
      until: text("Only if active before it"),
      archived: flag("Archived ones too"),
      files: flag("Name files touched"),
      tools: flag("Name tools used"),
      cursor: CURSOR,
    },
    required: [],
  },
  memory_messages: {
    description:
      "Read a conversation message by message, newest first; or, with ref, one message whole " +
      "with those around it.",
    properties: {
      session: text("Such as s12; this one if left out"),
      role: text("Only user or assistant"),
      query: text("Only with all these words"),
      limit: number("Messages on a page"),
      ref: text("The message's reference, or one in it"),
      before: number("Messages before it"),
      after: number("Messages after it"),
      cursor: CURSOR,
    },
    required: [],
  },
};

type Registered = NonNullable<Hooks["tool"]>;

/** What the model is offered; the coordinator decides whether the aliases are. */
export class Tools {
  /** As the host registers them; what is added before its first request is registered as well. */
  readonly registered: Registered;
  readonly #host: Host;
  readonly #connection: Connection;
  readonly #options: Options;

  constructor(host: Host, connection: Connection, options: Options) {
    this.#host = host;
    this.#connection = connection;
    this.#options = options;
    this.registered = this.#made(DEFINITIONS);
  }

  /** Offer the names of other systems too, if the coordinator answers to them. */
  async learn(): Promise<void> {
    const health = await this.#connection.ask("/v1/health", undefined, this.#options.toolTimeoutMs);
    if (health.aliases) Object.assign(this.registered, this.#made(ALIAS_DEFINITIONS));
  }

  #made(definitions: Record<string, Definition>): Registered {
    const made = Object.entries(definitions).map(([name, { description, properties }]) => {
      const execute = (args: unknown, context: { sessionID: string; abort?: AbortSignal }) =>
        this.#answer(name as ToolName | AliasName, args, context);
      return [name, { description, args: properties, execute }];
    });
    return Object.fromEntries(made) as unknown as Registered;
  }

  async #answer(
    tool: ToolName | AliasName,
    args: unknown,
    { sessionID, abort }: { sessionID: string; abort?: AbortSignal },
  ) {
    try {
      const session = await rootOf(this.#host, sessionID);
      const children = asksForChildren(args) ? await this.#children(session) : [];
      const body = { tool, args_json: toJson(args), host: HOST, session, children };
      const found = await this.#connection.ask(
        "/v1/tool",
        body,
        this.#options.toolTimeoutMs,
        abort,
      );
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

  // Known to the host alone: a subagent that was cancelled has left no report.
  async #children(id: string): Promise<ChildInfo[]> {
    const found = (await this.#host.children(id))
      .sort((a, b) => b.time.created - a.time.created)
      .slice(0, CHILDREN);
    return await Promise.all(
      found.map(async ({ id, title, time }) => ({
        id,
        title: title.toWellFormed(),
        state: await this.#state(id),
        created_ms: time.created,
        updated_ms: time.updated,
      })),
    );
  }

  async #state(id: string): Promise<NonNullable<ChildInfo["state"]>> {
    if (await this.#host.busy(id)) return "running";
    const last = await this.#host.last(id);
    if (last?.info.role !== "assistant") return "unknown";
    const ended = terminal(last.info, last.parts, "unknown");
    if (ended === "interrupted") return "cancelled";
    return ended ?? "unknown";
  }
}

// A subagent asks in its parent's name, so that these are the same for both.
function asksForChildren(args: unknown): boolean {
  const { parent, parentID } = (args ?? {}) as { parent?: unknown; parentID?: unknown };
  return parent !== undefined || parentID !== undefined;
}

/**
 * State the schema of our tools exactly: made from plain properties, the host's requires them all.
 * The field is there in the host's hook and missing in its types.
 */
export function define(tool: string, output: object): void {
  const definitions: Record<string, Definition> = { ...DEFINITIONS, ...ALIAS_DEFINITIONS };
  const definition = OWN_TOOLS.has(tool) ? definitions[tool] : undefined;
  if (definition === undefined) return;
  const { properties, required } = definition;
  Object.assign(output, {
    jsonSchema: { type: "object", properties, required, additionalProperties: false },
  });
}
