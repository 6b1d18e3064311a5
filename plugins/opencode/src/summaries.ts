/**
 * The host's own model makes summaries: the coordinator is asked for a call, again and again, and
 * each is made in a session of its own that no list of a person's shows and no plugin takes in.
 *
 * Nothing waits for it: it runs beside the hooks, one call at a time, and ends with its plugin.
 */
import { Call } from "./call.ts";
import type { Connection } from "./connection.ts";
import type { Host, HostSession, ModelName } from "./host.ts";
import { HOST } from "./names.ts";
import { outcomeOf } from "./outcome.ts";
import { projectOf } from "./session.ts";
import { isInternal, shared } from "./state.ts";
import type { Work, WorkDone } from "./wire.gen.ts";

export const AGENT = "optchat-summary";
const TITLE = "optchat summary";
/** No such session: a child of a real one would show in that one's list of subagents. */
const PARENT = "ses_optchat";
const PLACEHOLDER = "A summary for optchat; its text is in the request only.";

const WAIT_MS = 10_000;
const ANSWER_MS = 15_000;
const PAUSE_MS = 2_000;
/** The coordinator's own bound comes after ours, so that it hears why. */
const EARLY_MS = 1_000;
const SETTLE_MS = 500;
/** No call is allowed to take an hour, whatever lives under its process's number by now. */
const LEFT_OVER_MS = 7_200_000;

interface AgentConfig {
  agent?: Record<string, object | undefined>;
  small_model?: string;
}

export class Summaries {
  readonly #host: Host;
  readonly #connection: Connection;
  readonly #stop = new AbortController();
  #small: string | undefined;
  #running: Promise<void> | undefined;
  #current: Call | undefined;

  constructor(host: Host, connection: Connection) {
    this.#host = host;
    this.#connection = connection;
  }

  /**
   * Add the agent that the calls are made with, and learn which small model the person has named.
   *
   * A hidden primary one: subagents are listed to the model in the definition of a tool.
   */
  configure(config: AgentConfig): void {
    this.#small = config.small_model;
    const agent = { mode: "primary", hidden: true, prompt: TITLE, permission: { "*": "deny" } };
    config.agent = { ...config.agent, [AGENT]: agent };
  }

  start(): void {
    this.#running = this.#run();
  }

  /** Give up what is under way and take its session away, within a bound. */
  async stop(timeoutMs: number): Promise<void> {
    this.#stop.abort();
    this.#current?.giveUp("unavailable", "the host was closed");
    await Promise.race([this.#running, pause(timeoutMs)]);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    await this.#connection.ensure().catch(() => undefined);
    await this.#sweep().catch(() => undefined);
    while (!signal.aborted) {
      const asked = Date.now();
      const next = await this.#next().catch(() => undefined);
      if (next?.wanted === false) return;
      if (next?.work) await this.#serve(next.work);
      // An answer that was not held back would be asked for in vain again at once.
      else if (Date.now() - asked < PAUSE_MS) await pause(PAUSE_MS, signal);
    }
  }

  #next() {
    const body = { host: HOST, instance: String(process.pid), ...projectOf(this.#host) };
    const asked = { ...body, directory: this.#host.directory, wait_ms: WAIT_MS };
    return this.#connection.askIfRunning("/v1/work", asked, ANSWER_MS, this.#stop.signal);
  }

  async #serve(work: Work): Promise<void> {
    const done = await this.#make(work);
    // An answer that cannot be brought is asked for again, once its lease has run out.
    await this.#connection.askIfRunning("/v1/work-done", done, ANSWER_MS).catch(() => undefined);
  }

  async #make(work: Work): Promise<WorkDone> {
    const host = this.#host;
    const { calls } = shared();
    let id: string | undefined;
    try {
      const model = nameOf(work.model ?? this.#small) ?? host.lastModel;
      if (model && !(await host.has(model))) {
        const { providerID, modelID } = model;
        return unsent(work, "gone", `the host has no model ${providerID}/${modelID}`);
      }
      id = await host.open({
        title: TITLE,
        parentID: PARENT,
        metadata: { optchat: { internal: true, pid: process.pid } },
        permission: [{ permission: "*", pattern: "*", action: "deny" }],
      });
      const call = new Call(work);
      this.#current = call;
      calls.set(id, call);
      return await this.#ask(id, call, model);
    } catch {
      return unsent(work, "unavailable", "the host could not make a session for it");
    } finally {
      this.#current = undefined;
      if (id !== undefined) {
        calls.delete(id);
        await host.remove(id).catch(() => undefined);
      }
    }
  }

  async #ask(id: string, call: Call, model: ModelName | undefined): Promise<WorkDone> {
    const { work } = call;
    const late = setTimeout(
      () => call.giveUp("timed_out", "the host's model did not answer in time"),
      Math.max(1, work.timeout_ms - EARLY_MS),
    );
    late.unref();
    if (this.#stop.signal.aborted) call.giveUp("unavailable", "the host was closed");
    let ended = false;
    const answer = this.#host
      .prompt(id, { agent: AGENT, model, text: PLACEHOLDER })
      .then(
        (message) => outcomeOf(work, message),
        () => unsent(work, "unavailable", "the host refused the call"),
      )
      .finally(() => {
        ended = true;
      });
    const done = await Promise.race([answer, call.givenUp]);
    clearTimeout(late);
    if (!ended) {
      await this.#host.abort(id).catch(() => undefined);
      await Promise.race([answer, pause(SETTLE_MS)]);
    }
    return done;
  }

  /** Delete what a process left that is no more. */
  async #sweep(): Promise<void> {
    for (const session of await this.#host.titled(TITLE))
      if (isInternal(session) && isLeftOver(session)) await this.#host.remove(session.id);
  }
}

/** Whether this process ends with its turn, and would be kept from it by a summary. */
export function isOneShot(words: readonly string[] = process.argv): boolean {
  return words.slice(1).includes("run");
}

function nameOf(model: string | undefined): ModelName | undefined {
  const [, providerID, modelID] = model?.match(/^([^/]+)\/(.+)$/) ?? [];
  return providerID && modelID ? { providerID, modelID } : undefined;
}

function unsent({ id }: Work, outcome: WorkDone["outcome"], detail: string): WorkDone {
  return { id, outcome, sent: false, detail };
}

function isLeftOver({ metadata, time }: HostSession): boolean {
  const now = Date.now();
  if (now - time.created > LEFT_OVER_MS) return true;
  const { pid = 0 } = (metadata?.optchat ?? {}) as { pid?: number };
  // In a container the next process has the number of the one before.
  if (pid === process.pid) return time.created < now - process.uptime() * 1_000;
  try {
    process.kill(pid, 0);
    return false;
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === "ESRCH";
  }
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    timer.unref();
    signal?.addEventListener("abort", () => resolve(), { once: true });
  });
}
