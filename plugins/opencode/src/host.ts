/**
 * What is read of the host's data, and the host's client with errors instead of result pairs.
 *
 * The SDK's own types lag behind the release that this was made against and name far more than is
 * needed, so the shapes here are the ones that were seen on the running host.
 */
import { statSync } from "node:fs";
import { homedir } from "node:os";
import { resolve } from "node:path";
import type { PluginInput } from "@opencode-ai/plugin";

export interface Rule {
  permission: string;
  pattern: string;
  action: "allow" | "ask" | "deny";
}

export interface HostSession {
  id: string;
  projectID: string;
  directory: string;
  parentID?: string;
  title: string;
  metadata?: Record<string, unknown>;
  permission?: Rule[];
  /** Where the person has gone back to: what follows is dead, and removed with the next prompt. */
  revert?: { messageID: string; partID?: string };
  time: { created: number; updated: number; archived?: number };
}

export interface ModelName {
  providerID: string;
  modelID: string;
}

export interface HostUser {
  id: string;
  sessionID: string;
  role: "user";
  agent: string;
  model: ModelName;
  tools?: Record<string, boolean>;
  time: { created: number };
}

export interface HostAssistant {
  id: string;
  sessionID: string;
  role: "assistant";
  parentID: string;
  providerID: string;
  modelID: string;
  summary?: boolean;
  finish?: string;
  error?: { name: string; data?: { statusCode?: number } };
  tokens: {
    input: number;
    output: number;
    reasoning: number;
    cache: { read: number; write: number };
  };
  time: { created: number; completed?: number };
}

export interface HostFile {
  id: string;
  type: "file";
  mime: string;
  filename?: string;
  url: string;
}

export interface HostTool {
  id: string;
  type: "tool";
  tool: string;
  state: {
    status: "pending" | "running" | "completed" | "error";
    input: unknown;
    output?: string;
    error?: string;
    title?: string;
    metadata?: Record<string, unknown>;
    time?: { start?: number; end?: number; compacted?: number };
    attachments?: HostFile[];
  };
}

export interface HostText {
  id: string;
  type: "text";
  text: string;
  synthetic?: boolean;
  ignored?: boolean;
  metadata?: Record<string, unknown>;
}

export type HostPart =
  | HostText
  | HostFile
  | HostTool
  | { id: string; type: "reasoning"; text: string }
  | { id: string; type: "compaction"; overflow?: boolean }
  | { id: string; type: "subtask"; prompt: string }
  | { id: string; type: "agent" | "step-start" | "step-finish" | "snapshot" | "patch" | "retry" };

export interface HostMessage {
  info: HostUser | HostAssistant;
  parts: HostPart[];
}

export interface Limit {
  context: number;
  output: number;
  input?: number;
}

export interface HostAgent {
  name: string;
  prompt?: string;
  permission?: Rule[];
}

export interface HostToolDefinition {
  id: string;
  description: string;
  parameters: unknown;
}

interface Provider {
  id: string;
  models: Record<string, { limit: Limit }>;
}

/** The host as one instance of the plugin sees it. */
export class Host {
  readonly directory: string;
  readonly worktree: string;
  readonly project: { id: string; worktree: string };
  /** What a person's message asked last. */
  lastModel: ModelName | undefined;
  readonly #client: PluginInput["client"];
  readonly #sessions = new Map<string, HostSession>();
  #agents: Promise<HostAgent[]> | undefined;
  readonly #tools = new Map<string, Promise<HostToolDefinition[]>>();
  readonly #limits = new Map<string, Limit>();

  constructor(input: Pick<PluginInput, "client" | "directory" | "worktree" | "project">) {
    this.#client = input.client;
    this.directory = input.directory;
    this.worktree = input.worktree;
    this.project = input.project;
  }

  /** The session as last told; events keep it fresh, so that a turn costs no request for it. */
  async session(id: string): Promise<HostSession> {
    const known = this.#sessions.get(id);
    if (known) return known;
    const session = await data<HostSession>(this.#client.session.get({ path: { id } }));
    this.#sessions.set(id, session);
    return session;
  }

  /** Keep what was told of a session; whether it may have been archived or shown again. */
  remember(session: HostSession): boolean {
    const known = this.#sessions.get(session.id);
    this.#sessions.set(session.id, session);
    return !known || (known.time.archived ?? null) !== (session.time.archived ?? null);
  }

  forget(id: string): void {
    this.#sessions.delete(id);
  }

  /** Every message of the session as it is in the host's store, oldest first. */
  messages(id: string): Promise<HostMessage[]> {
    return data<HostMessage[]>(this.#client.session.messages({ path: { id } }));
  }

  /** The newest message of a session. */
  async last(id: string): Promise<HostMessage | undefined> {
    const query: object = { limit: 1 };
    const path = { id };
    return (await data<HostMessage[]>(this.#client.session.messages({ path, query }))).at(-1);
  }

  /** The sessions that a session has sent out. */
  children(id: string): Promise<HostSession[]> {
    return data<HostSession[]>(this.#client.session.children({ path: { id } }));
  }

  async busy(id: string): Promise<boolean> {
    const all = await data<Record<string, { type: string }>>(this.#client.session.status());
    return (all[id]?.type ?? "idle") !== "idle";
  }

  /** The directory's sessions, newest first. The host stops at a hundred unless told otherwise. */
  sessions(): Promise<HostSession[]> {
    const query: object = { limit: 500 };
    return data<HostSession[]>(this.#client.session.list({ query }));
  }

  /** Those of the project whose title has these words. */
  titled(search: string): Promise<HostSession[]> {
    const query: object = { search, limit: 500 };
    return data<HostSession[]>(this.#client.session.list({ query }));
  }

  /** Make a session; its id. */
  async open(fields: Pick<HostSession, "parentID" | "title" | "metadata" | "permission">) {
    const body: object = fields;
    return (await data<HostSession>(this.#client.session.create({ body }))).id;
  }

  /** Ask in a session, and return the answer when the session is idle. */
  prompt(
    id: string,
    { agent, model, text }: { agent: string; model: ModelName | undefined; text: string },
  ): Promise<HostMessage> {
    const body = { agent, ...(model && { model }), parts: [{ type: "text" as const, text }] };
    return data<HostMessage>(this.#client.session.prompt({ path: { id }, body }));
  }

  abort(id: string): Promise<boolean> {
    return data<boolean>(this.#client.session.abort({ path: { id } }));
  }

  remove(id: string): Promise<boolean> {
    return data<boolean>(this.#client.session.delete({ path: { id } }));
  }

  /** Whether the host says that it has no such session, of whatever directory; no answer is no. */
  async isGone(id: string): Promise<boolean> {
    const { error, response } = await this.#client.session.get({ path: { id } });
    return response?.status === 404 && (error as { name?: string })?.name === "NotFoundError";
  }

  /**
   * The file that the host keeps its sessions in, as it is now: one that was made anew in its place
   * is another store, and what it lacks was never deleted from it. "" when it is not found. An
   * import names it in the same way (`place.py`).
   */
  store(): string {
    const { OPENCODE_DB: named = "opencode.db", XDG_DATA_HOME: data } = process.env;
    const path = resolve(data || `${homedir()}/.local/share`, "opencode", named);
    try {
      const { ino, birthtimeMs } = statSync(path, { bigint: true });
      return `${path}:${ino}:${birthtimeMs}`;
    } catch {
      return "";
    }
  }

  /** The limits of a model; zero where the host does not know one. */
  async limit(provider: string, model: string): Promise<Limit> {
    const key = `${provider}/${model}`;
    if (!this.#limits.has(key)) {
      const answer = await data<{ providers: Provider[] }>(this.#client.config.providers());
      for (const { id, models } of answer.providers)
        for (const [name, { limit }] of Object.entries(models))
          this.#limits.set(`${id}/${name}`, limit);
    }
    return this.#limits.get(key) ?? { context: 0, output: 0 };
  }

  /** Whether the host has a model; asking for another one is refused without a reason. */
  async has({ providerID, modelID }: ModelName): Promise<boolean> {
    await this.limit(providerID, modelID);
    return this.#limits.has(`${providerID}/${modelID}`);
  }

  async agent(name: string): Promise<HostAgent | undefined> {
    this.#agents ??= data<HostAgent[]>(this.#client.app.agents());
    this.#agents.catch(() => {
      this.#agents = undefined;
    });
    return (await this.#agents).find((agent) => agent.name === name);
  }

  /** The tools that the host's registry offers to a model, before an agent's permissions. */
  tools(provider: string, model: string): Promise<HostToolDefinition[]> {
    const key = `${provider}/${model}`;
    const known = this.#tools.get(key);
    if (known) return known;
    const query = { provider, model };
    const asked = data<HostToolDefinition[]>(this.#client.tool.list({ query }));
    asked.catch(() => this.#tools.delete(key));
    this.#tools.set(key, asked);
    return asked;
  }

  /** Whether tools are offered that the registry does not list. */
  async servers(): Promise<boolean> {
    const all = await data<Record<string, { status: string }>>(this.#client.mcp.status());
    return Object.values(all).some((server) => server.status === "connected");
  }

  /** Tell the person: in the host's log, and on the screen where there is one. */
  async say(level: "info" | "warn" | "error", message: string): Promise<void> {
    const variant = level === "warn" ? "warning" : level;
    await Promise.allSettled([
      this.#client.app.log({ body: { service: "optchat", level, message } }),
      this.#client.tui.showToast({ body: { title: "optchat", message, variant } }),
    ]);
  }
}

async function data<T>(answer: Promise<{ data?: unknown; error?: unknown }>): Promise<T> {
  const { data: value, error } = await answer;
  if (value === undefined) throw new Error(`the host did not answer: ${JSON.stringify(error)}`);
  return value as T;
}
