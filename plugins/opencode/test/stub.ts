/** A coordinator of a few lines on a Unix socket, a host's client, and a plugin between the two. */
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Hooks, PluginInput } from "@opencode-ai/plugin";
import type { HostMessage, HostSession } from "../src/host.ts";
import { server } from "../src/plugin.ts";
import { shared } from "../src/state.ts";
import type * as wire from "../src/wire.gen.ts";
import { SESSION } from "./transcript.ts";

export const NATIVE: wire.AssembleResponse = {
  state: "native",
  base: "",
  placement: "system",
  keep_from: null,
  news: [],
  checkpoints: [],
  notice: null,
  error: null,
  turn: null,
  estimated_tokens: 0,
  limit_tokens: 0,
};

type Answers = { [Path in keyof wire.Routes]?: (body: wire.Routes[Path]["request"]) => unknown };

export class Coordinator {
  readonly folder = mkdtempSync(join(tmpdir(), "optchat-"));
  readonly socket = join(this.folder, "socket");
  readonly ensure = join(this.folder, "ensure");
  readonly requests: { path: string; body: unknown; protocol: unknown }[] = [];
  /** Digests that are held, by message: what a store would answer from. */
  readonly held = new Map<string, string>();
  answers: Answers = {};
  /** Whether it takes in what subagents say. */
  subagents = false;
  /** Whether it answers under the names of other systems' tools. */
  aliases = false;
  /** An answer that is not a success, for every request. */
  failure: { status: number; body: unknown } | undefined;
  #server: Server | undefined;

  constructor() {
    const line = JSON.stringify({ socket: this.socket, version: "0", protocol: 1, epoch: 1 });
    this.writeEnsure(`echo run >> ${this.folder}/runs\necho '${line}'`);
  }

  writeEnsure(script: string): void {
    writeFileSync(this.ensure, `#!/bin/sh\n${script}\n`);
    chmodSync(this.ensure, 0o755);
  }

  get runs(): number {
    try {
      return readFileSync(join(this.folder, "runs"), "utf8").split("\n").length - 1;
    } catch {
      return 0;
    }
  }

  async start(): Promise<this> {
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", async () => {
        const body: unknown = JSON.parse(Buffer.concat(chunks).toString());
        const path = request.url ?? "";
        if (path !== "/v1/work" || this.answers[path])
          this.requests.push({ path, body, protocol: request.headers["x-optchat-protocol"] });
        const given = this.failure ?? { status: 200, body: await this.#answer(path, body) };
        response.writeHead(given.status, { "content-type": "application/json" });
        response.end(JSON.stringify(given.body));
      });
    });
    await new Promise<void>((resolve) => this.#server?.listen(this.socket, resolve));
    return this;
  }

  async stop(): Promise<void> {
    const closing = new Promise((resolve) => this.#server?.close(resolve));
    this.#server?.closeAllConnections();
    await closing;
    rmSync(this.socket, { force: true });
  }

  of<Path extends keyof wire.Routes>(path: Path): wire.Routes[Path]["request"][] {
    const bodies = this.requests.filter((request) => request.path === path);
    return bodies.map(({ body }) => body as wire.Routes[Path]["request"]);
  }

  async #answer(path: string, body: unknown): Promise<unknown> {
    const scripted = this.answers[path as keyof wire.Routes];
    if (scripted) return await scripted(body as never);
    if (path === "/v1/assemble") return NATIVE;
    if (path === "/v1/work") return { wanted: false, work: null };
    if (path === "/v1/work-done") return { accepted: true };
    if (path === "/v1/present") return { missing: [], forgotten: 0 };
    if (path === "/v1/health") return { subagents: this.subagents, aliases: this.aliases };
    if (path === "/v1/follow") return { known: true };
    if (path === "/v1/check") return { error: null, estimated_tokens: 0, limit_tokens: 0 };
    const need: string[] = [];
    for (const { id, digest, final, parts } of (body as wire.SyncRequest).messages) {
      if (!final) continue;
      if (parts) this.held.set(id, digest);
      else if (this.held.get(id) !== digest) need.push(id);
    }
    return {
      session: "s1",
      generation: 0,
      need,
      records: 0,
      sealed: 0,
      turn: null,
      disabled: null,
      notice: null,
    };
  }
}

export class FakeHost {
  messages: HostMessage[] = [];
  busy = true;
  sessions: HostSession[] = [session(SESSION)];
  /** What a list shows, where that is not all there is. */
  listed: HostSession[] | undefined;
  /** How the host answers about a session that it has not. */
  missing: { status: number } = { status: 404 };
  others = new Map<string, HostMessage[]>();
  agents: object[] = [
    { name: "build", permission: [{ permission: "*", pattern: "*", action: "allow" }] },
    {
      name: "small",
      prompt: "Be brief.",
      permission: [{ permission: "*", pattern: "*", action: "deny" }],
    },
    { name: "title", prompt: "You are a title generator." },
  ];
  servers: Record<string, { status: string }> = {};
  said: { level: string; message: string }[] = [];
  /** What becomes of a prompt, by the test; and the sessions that were prompted, aborted, deleted. */
  onPrompt: (id: string, body: unknown) => unknown = () => ({ error: { name: "NotFoundError" } });
  prompted: { id: string; body: unknown }[] = [];
  aborted: string[] = [];
  deleted: string[] = [];
  #made = 0;

  readonly input = {
    directory: "/project",
    worktree: "/project",
    project: { id: "prj_1", worktree: "/project" },
    client: this.#client(),
  } as unknown as PluginInput;

  #client(): object {
    const ok = (data: unknown) => Promise.resolve({ data });
    const model = { limit: { context: 200_000, output: 8_192 } };
    return {
      session: {
        get: ({ path }: { path: { id: string } }) => {
          const found = this.sessions.find(({ id }) => id === path.id);
          if (found) return ok(found);
          return Promise.resolve({ error: { name: "NotFoundError" }, response: this.missing });
        },
        list: () => ok(this.listed ?? this.sessions),
        children: ({ path }: { path: { id: string } }) =>
          ok(this.sessions.filter(({ parentID }) => parentID === path.id)),
        create: ({ body }: { body: Partial<HostSession> }) => {
          const made = session(`ses_made_${this.#made++}`, body);
          this.sessions.push(made);
          return ok(made);
        },
        prompt: ({ path: { id }, body }: { path: { id: string }; body: unknown }) => {
          this.prompted.push({ id, body });
          return Promise.resolve(this.onPrompt(id, body));
        },
        abort: ({ path: { id } }: { path: { id: string } }) => {
          this.aborted.push(id);
          return ok(true);
        },
        delete: ({ path: { id } }: { path: { id: string } }) => {
          this.deleted.push(id);
          this.sessions = this.sessions.filter((s) => s.id !== id);
          return ok(true);
        },
        status: () => ok(this.busy ? { [SESSION]: { type: "busy" } } : {}),
        messages: ({ path }: { path: { id: string } }) =>
          ok(structuredClone(this.others.get(path.id) ?? this.messages)),
      },
      config: {
        providers: () => {
          const p = { chosen: model, "with/slash": model, big: model };
          return ok({
            providers: [
              { id: "fake", models: { "big-200k": model } },
              { id: "p", models: p },
            ],
          });
        },
      },
      app: {
        agents: () => ok(this.agents),
        log: ({ body }: { body: { level: string; message: string } }) => {
          this.said.push(body);
          return ok(true);
        },
      },
      tool: { list: () => ok([{ id: "bash", description: "Run it", parameters: {} }]) },
      mcp: { status: () => ok(this.servers) },
      tui: { showToast: () => ok(true) },
    };
  }
}

export function session(id: string, fields: Partial<HostSession> = {}): HostSession {
  const time = { created: 1_700_000_000_000, updated: 1_800_000_000_000 };
  return { id, projectID: "prj_1", directory: "/project", title: "A title", time, ...fields };
}

export interface Stage {
  coordinator: Coordinator;
  host: FakeHost;
  hooks: Required<Pick<Hooks, "config" | "event" | "tool" | "dispose" | "chat.message">> & Hooks;
  /** Run the hooks of one model call over these messages; returns what would be sent. */
  call(
    messages: HostMessage[],
    agent?: string,
  ): Promise<{ system: string[]; messages: HostMessage[] }>;
}

export const ENVIRONMENT = "Instructions.\nYou are powered by a model.\n<env>\n  …\n</env>";

/** A plugin in a process of its own, as far as it can tell. */
export async function stage(
  options: Record<string, unknown> = {},
  prepare?: (coordinator: Coordinator, host: FakeHost) => void,
): Promise<Stage> {
  const { connections, sessions, said, systems, calls } = shared();
  for (const kept of [connections, sessions, said, systems, calls]) kept.clear();
  const coordinator = await new Coordinator().start();
  // No host's store is found there unless a test makes one, so that nothing is compared with it.
  process.env.XDG_DATA_HOME = coordinator.folder;
  delete process.env.OPENCODE_DB;
  const host = new FakeHost();
  prepare?.(coordinator, host);
  const given = { command: [coordinator.ensure], ...options };
  const hooks = (await server(host.input, given)) as Stage["hooks"];
  const model = { id: "big-200k", providerID: "fake" };
  return {
    coordinator,
    host,
    hooks,
    async call(messages, agent = "build") {
      const system = [ENVIRONMENT];
      const id = messages[0]?.info.sessionID ?? SESSION;
      await hooks["experimental.chat.messages.transform"]?.({}, { messages } as never);
      await hooks["experimental.chat.system.transform"]?.({ sessionID: id, model } as never, {
        system,
      });
      await hooks["chat.params"]?.({ sessionID: id, agent, model } as never, {} as never);
      return { system, messages };
    },
  };
}

/** Wait for something that happens in the background. */
export async function until(condition: () => boolean): Promise<void> {
  for (let waited = 0; !condition(); waited += 5) {
    if (waited > 5_000) throw new Error("it did not happen in five seconds");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
