/**
 * Reconciliation: the coordinator is told a session's whole membership, and asks for what it lacks.
 *
 * The host's store is the truth and events are only a reason to look at it, since they repeat, come
 * before what they announce, and do not cross processes. One pass runs for a session at a time, and
 * at most one waits: it sees everything that any caller in between has caused.
 */
import type { Connection } from "./connection.ts";
import type { Host, HostMessage, HostSession } from "./host.ts";
import { mapMessages } from "./map.ts";
import { say, sayFailure } from "./notices.ts";
import type { Options } from "./options.ts";
import { findOrigin, sessionInfo } from "./session.ts";
import { isInternal, type SessionState, sessionState, shared } from "./state.ts";
import type { MessageInfo, SyncRequest } from "./wire.gen.ts";

const CONTENT_CHARS = 8_000_000;
const SETTLE_MS = 150;
const ADMISSION_MS = 10_000;
const RETRY_MS = { first: 1_000, most: 30_000 };

interface Observed {
  observed_ms: number;
  messages: HostMessage[];
  idle: boolean;
}

export class Sync {
  readonly #host: Host;
  readonly #connection: Connection;
  readonly #options: Options;

  constructor(host: Host, connection: Connection, options: Options) {
    this.#host = host;
    this.#connection = connection;
    this.#options = options;
  }

  /** Return when a pass that began after this call is done. */
  now(id: string): Promise<void> {
    const state = sessionState(id);
    if (state.waiting) return state.waiting;
    if (!state.running) return this.#begin(id, state);
    state.waiting = state.running
      .catch(() => undefined)
      .then(() => {
        state.waiting = undefined;
        return this.#begin(id, state);
      });
    return state.waiting;
  }

  /** Have a pass made in the background, for a session that this process follows. */
  wake(id: string): void {
    const state = shared().sessions.get(id);
    if (!state?.active) return;
    this.now(id).then(
      () => {
        state.failures = 0;
      },
      (thrown) => {
        sayFailure(this.#host, thrown);
        this.again(id);
      },
    );
  }

  /** Tell what the host says of a session besides its messages, if the coordinator knows it. */
  async follow(session: HostSession): Promise<void> {
    const info = sessionInfo(this.#host, session, sessionState(session.id));
    await this.#connection.ask("/v1/follow", { session: info }, this.#options.syncTimeoutMs);
  }

  /** Try later what failed: without it a session's last turn would wait for a next one to be told. */
  again(id: string): void {
    const state = sessionState(id);
    if (state.retry !== undefined) return;
    const wait = Math.min(RETRY_MS.first * 2 ** state.failures++, RETRY_MS.most);
    state.retry = setTimeout(() => {
      state.retry = undefined;
      this.wake(id);
    }, wait);
    state.retry.unref();
  }

  /** Wait for what is under way, within a bound. */
  async flush(timeoutMs: number): Promise<void> {
    const pending = [...shared().sessions.values()].flatMap((s) => [s.running, s.waiting]);
    await Promise.race([Promise.allSettled(pending), delay(timeoutMs)]);
  }

  #begin(id: string, state: SessionState): Promise<void> {
    const running = this.#pass(id, state).finally(() => {
      state.running = undefined;
    });
    state.running = running;
    return running;
  }

  async #pass(id: string, state: SessionState): Promise<void> {
    const host = this.#host;
    const session = await host.session(id);
    if (await this.#isPrivate(session)) return;
    const { observed_ms, messages, idle } = await this.#look(id, state);
    if (state.forkOf === undefined) {
      state.forkOf = await findOrigin(host, session, messages);
      // What the origin said last must be known there, or it would be taken for the copy's own.
      if (state.forkOf) await this.now(state.forkOf).catch(() => undefined);
    }
    const mapped = mapMessages(messages, {
      opens: state.opens,
      loaded: state.loaded,
      begun: state.begun,
      settled: idle,
    });
    const info = sessionInfo(host, session, state);
    await this.#send({ session: info, messages: mapped, idle, observed_ms }, state);
  }

  // A subagent's content is its parent's business, unless the coordinator takes it in.
  async #isPrivate(session: HostSession): Promise<boolean> {
    if (isInternal(session)) return true;
    if (session.parentID === undefined) return false;
    const health = await this.#connection.ask("/v1/health", undefined, this.#options.syncTimeoutMs);
    return !health.subagents;
  }

  // The end of a failed or aborted turn is written after the session has been called idle.
  async #look(id: string, state: SessionState): Promise<Observed> {
    const first = await this.#read(id, state);
    if (!first.idle || ended(first.messages)) return first;
    await delay(SETTLE_MS);
    return this.#read(id, state);
  }

  async #read(id: string, state: SessionState): Promise<Observed> {
    const observed_ms = Date.now();
    const [messages, idle] = await Promise.all([this.#host.messages(id), this.#idle(id, state)]);
    return { observed_ms, messages: living(messages, await this.#revert(id)), idle };
  }

  // What was told of going back may be undone by now, in another process too.
  async #revert(id: string): Promise<HostSession["revert"]> {
    if (!(await this.#host.session(id)).revert) return undefined;
    this.#host.forget(id);
    return (await this.#host.session(id)).revert;
  }

  // Between a message's arrival and its turn's beginning the host still calls the session idle.
  // One that this process does not run may be at work in another.
  async #idle(id: string, state: SessionState): Promise<boolean> {
    if (!state.active) return false;
    if (Date.now() - state.admittedAt < ADMISSION_MS) return false;
    return !(await this.#host.busy(id));
  }

  async #send(request: SyncRequest, state: SessionState): Promise<void> {
    const telling = fingerprint(request);
    if (telling === state.told) return;
    state.told = "";
    const { messages } = request;
    let wanted = new Set(
      messages.filter((m) => m.final && state.sealed.get(m.id) !== m.digest).map((m) => m.id),
    );
    for (let before = Number.POSITIVE_INFINITY; ; before = wanted.size) {
      const body = { ...request, messages: withContent(messages, wanted) };
      const answer = await this.#connection.ask("/v1/sync", body, this.#options.syncTimeoutMs);
      const need = new Set(answer.need);
      for (const message of messages)
        if (message.final && !need.has(message.id)) state.sealed.set(message.id, message.digest);
        else state.sealed.delete(message.id);
      if (answer.disabled) {
        say(this.#host, "warn", `disabled ${request.session.id}`, answer.disabled);
      }
      if (answer.notice) {
        // The words before the figures name the cause; those change from one request to the next.
        const [cause = ""] = answer.notice.split(":");
        say(this.#host, "warn", cause, answer.notice);
      }
      if (need.size === 0) state.told = telling;
      if (need.size === 0 || need.size >= before) break;
      wanted = need;
    }
    const members = new Set(messages.map((message) => message.id));
    for (const id of state.sealed.keys()) if (!members.has(id)) state.sealed.delete(id);
  }
}

// The host announces the end of a message more than once, and touches the session for each step.
function fingerprint({ session, messages, idle }: SyncRequest): string {
  const members = messages.map(({ parts, ...member }) => member);
  return JSON.stringify([{ ...session, updated_ms: 0 }, members, idle]);
}

// Content is sent only once it is final, and in portions: the answer asks for the next one.
function withContent(messages: readonly MessageInfo[], wanted: Set<string>): MessageInfo[] {
  let left = CONTENT_CHARS;
  return messages.map((message) => {
    if (left <= 0 || !message.final || !wanted.has(message.id)) return { ...message, parts: null };
    left -= JSON.stringify(message.parts).length;
    return message;
  });
}

/** The messages up to where a person has gone back to. */
export function living(messages: HostMessage[], revert: HostSession["revert"]): HostMessage[] {
  const at = messages.findIndex(({ info }) => info.id === revert?.messageID);
  const message = messages[at];
  if (!message || !revert) return messages;
  const kept = messages.slice(0, at);
  if (revert.partID === undefined) return kept;
  const part = message.parts.findIndex(({ id }) => id === revert.partID);
  return [...kept, { ...message, parts: part < 0 ? message.parts : message.parts.slice(0, part) }];
}

function ended(messages: readonly HostMessage[]): boolean {
  const info = messages.at(-1)?.info;
  return info?.role === "assistant" && info.time.completed !== undefined;
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms).unref();
  });
}
