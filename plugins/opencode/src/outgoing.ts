/** One model request on its way out: assembled, given its memory, checked, or stopped. */
import { type Connection, within } from "./connection.ts";
import { describe, Stop } from "./failure.ts";
import type { Host, HostMessage, HostUser } from "./host.ts";
import { inject } from "./inject.ts";
import { rolesOf } from "./map.ts";
import { say, sayFailure } from "./notices.ts";
import type { Options } from "./options.ts";
import { learnSystem, overheadOf } from "./overhead.ts";
import type { Presence } from "./presence.ts";
import { isCompacted, restore } from "./restore.ts";
import { rootOf, sessionInfo } from "./session.ts";
import { add, exceeds, measure, measureMessages, NOTHING } from "./sizes.ts";
import { isInternal, type Outgoing, type SessionState, sessionState } from "./state.ts";
import type { Sync } from "./sync.ts";
import type { AssembleRequest, AssembleResponse, ErrorInfo, UsageInfo } from "./wire.gen.ts";

/** A failure this slow is not asked for again at every step of a turn. */
const SLOW_MS = 1_000;
const QUIET_MS = 5_000;

const UNEXPLAINED: ErrorInfo = {
  code: "stopped",
  message: "memory is not ready",
  hint: "optchat status",
  retryable: true,
};

export class Requests {
  readonly #host: Host;
  readonly #connection: Connection;
  readonly #options: Options;
  readonly #sync: Sync;
  readonly #presence: Presence;

  constructor(
    host: Host,
    connection: Connection,
    options: Options,
    sync: Sync,
    presence: Presence,
  ) {
    this.#host = host;
    this.#connection = connection;
    this.#options = options;
    this.#sync = sync;
    this.#presence = presence;
  }

  /** Give the messages about to be sent their memory, in place. */
  async assemble(messages: HostMessage[]): Promise<void> {
    const id = messages[0]?.info.sessionID;
    if (id === undefined) return;
    const state = sessionState(id);
    state.admittedAt = 0;
    state.outgoing = undefined;
    const { compacting } = state;
    state.compacting = false;
    const session = await this.#host.session(id);
    const user = messages.findLast(({ info }) => info.role === "user")?.info as
      | HostUser
      | undefined;
    if (user === undefined) return;
    if (isInternal(session) || session.parentID !== undefined) {
      if (!compacting) await this.#subagent(state, session, user, messages);
      return;
    }
    if (compacting) {
      await this.#compaction(state, session, user, messages);
      return;
    }
    state.active = true;
    for (const { info } of messages) if (info.role === "user") state.loaded.add(info.id);
    if (Date.now() < state.quietUntil) return;
    const begun = Date.now();
    try {
      await this.#connection.ready(this.#options.startTimeoutMs, this.#options.assembleTimeoutMs);
      if (!state.sealed.has(user.id)) await this.#admit(id);
      const { whole, history } = isCompacted(messages)
        ? restore(messages, await this.#host.messages(id))
        : { whole: messages, history: messages };
      const { request, outgoing } = await this.#describe(state, session, user, whole);
      request.usage = usageOf(history, user, request.model.context_tokens);
      const answer = await this.#connection.ask(
        "/v1/assemble",
        request,
        this.#options.assembleTimeoutMs,
      );
      state.outgoing = this.#apply(answer, outgoing, messages, whole);
    } catch (thrown) {
      const now = Date.now();
      if (now - begun > SLOW_MS) state.quietUntil = now + QUIET_MS;
      sayFailure(this.#host, thrown);
      this.#sync.again(id);
    }
  }

  // A subagent has its parent's view, if that is configured; its own transcript is never told.
  async #subagent(
    state: SessionState,
    session: Awaited<ReturnType<Host["session"]>>,
    user: HostUser,
    messages: HostMessage[],
  ): Promise<void> {
    if (session.parentID === undefined || state.plain) return;
    try {
      const { request, outgoing } = await this.#describe(state, session, user, messages);
      request.session.parent_id = await rootOf(this.#host, session.id);
      const bound = this.#options.assembleTimeoutMs;
      const answer = await this.#connection.ask("/v1/assemble", request, bound);
      state.plain = answer.state === "native";
      state.outgoing = this.#apply(answer, outgoing, messages, messages);
    } catch (thrown) {
      state.plain = true;
      sayFailure(this.#host, thrown);
    }
  }

  // The host summarises all that it holds, which may be many windows. Given what memory would send
  // of this session instead, it fits; the summary itself is never read by us.
  async #compaction(
    state: SessionState,
    session: Awaited<ReturnType<Host["session"]>>,
    user: HostUser,
    messages: HostMessage[],
  ): Promise<void> {
    try {
      // All of it, with what the host will keep beside its summary: a checkpoint may reach into that.
      const stored = await this.#host.messages(session.id);
      const { whole } = restore(stored, stored);
      const { request } = await this.#describe(state, session, user, whole);
      request.purpose = "compaction";
      const bound = this.#options.assembleTimeoutMs;
      const answer = await this.#connection.ask("/v1/assemble", request, bound);
      if (answer.state === "ready") inject(messages, whole, answer);
    } catch (thrown) {
      sayFailure(this.#host, thrown);
    }
  }

  /** Put the base behind the host's instructions, once these show that it is a main request. */
  async system(id: string, system: string[]): Promise<void> {
    const outgoing = sessionState(id).outgoing;
    if (!outgoing || !(await this.#isMain(system))) return;
    const seen = measure(system.join("\n"));
    learnSystem(this.#host, outgoing.user, seen);
    // Second, so that it has a cache mark of its own and nothing that changes stands before it.
    if (outgoing.base) system.splice(1, 0, outgoing.base);
    outgoing.delivered = true;
    const overhead = add(seen, outgoing.tools);
    if (outgoing.stop || !exceeds(overhead, outgoing.overhead)) return;
    outgoing.overhead = overhead;
    await this.#check(outgoing);
  }

  /** End the turn if its request must not be sent. The last hook that knows what it is for. */
  settle(id: string, agent: string): void {
    const outgoing = sessionState(id).outgoing;
    if (!outgoing || agent === "title" || agent === "compaction") return;
    if (outgoing.stop) throw new Stop(outgoing.stop);
    if (!outgoing.base || outgoing.delivered) return;
    // Messages were left out for a base that did not go in: the model would miss its own past.
    const message = "the host's instructions were not recognised, so that memory found no place";
    throw new Stop({ code: "plugin", message, hint: "optchat status", retryable: false });
  }

  // A pass that is under way is waited for as well, and the bound is for both.
  async #admit(id: string): Promise<void> {
    const deadline = Date.now() + this.#options.syncTimeoutMs;
    // What the host has deleted meanwhile, in whatever process, is not to be in this turn's memory.
    const compared = this.#presence.now();
    await within(this.#sync.now(id), deadline, "the coordinator did not take the message in time");
    await compared;
  }

  async #describe(
    state: SessionState,
    session: Awaited<ReturnType<Host["session"]>>,
    user: HostUser,
    messages: readonly HostMessage[],
  ): Promise<{ request: AssembleRequest; outgoing: Outgoing }> {
    const { providerID, modelID } = user.model;
    const [limit, overhead] = await Promise.all([
      this.#host.limit(providerID, modelID),
      overheadOf(this.#host, session, user),
    ]);
    const roles = rolesOf(messages);
    const sizes = measureMessages(messages, state.measured);
    const request: AssembleRequest = {
      session: sessionInfo(this.#host, session, state),
      model: {
        provider: providerID,
        id: modelID,
        context_tokens: limit.context,
        output_tokens: limit.output,
        input_tokens: limit.input ?? null,
      },
      agent: user.agent,
      shape: messages.map((message, index) => ({
        id: message.info.id,
        role: roles[index] ?? "other",
        sizes: sizes[index] ?? NOTHING,
      })),
      overhead: overhead.sizes,
      overhead_known: overhead.known,
    };
    const outgoing: Outgoing = {
      session: request.session,
      model: request.model,
      user,
      base: "",
      delivered: false,
      overhead: overhead.sizes,
      tools: overhead.tools,
    };
    return { request, outgoing };
  }

  #apply(
    answer: AssembleResponse,
    outgoing: Outgoing,
    messages: HostMessage[],
    whole: readonly HostMessage[],
  ): Outgoing | undefined {
    if (answer.notice) say(this.#host, "info", answer.notice, answer.notice);
    if (answer.state === "native") return undefined;
    if (answer.state === "stop") return { ...outgoing, stop: answer.error ?? UNEXPLAINED };
    inject(messages, whole, answer);
    return { ...outgoing, base: answer.placement === "system" ? answer.base : "" };
  }

  // The title's request passes the same hook, at any time, and nothing but its text tells. A main
  // request describes the environment, unless another plugin has taken that out.
  async #isMain([first = ""]: readonly string[]): Promise<boolean> {
    if (first.includes("\n<env>\n")) return true;
    const title = await this.#host.agent("title");
    return !title?.prompt || !first.startsWith(title.prompt);
  }

  async #check(outgoing: Outgoing): Promise<void> {
    const { session, model, user, overhead } = outgoing;
    const body = { session, model, agent: user.agent, overhead };
    try {
      const bound = this.#options.assembleTimeoutMs;
      const { error } = await this.#connection.ask("/v1/check", body, bound);
      if (error) outgoing.stop = error;
    } catch (thrown) {
      const { code, message, hint } = describe(thrown);
      const text = `A request went out unchecked: ${message} (${code}). Next: ${hint}`;
      say(this.#host, "warn", `check ${code}`, text);
    }
  }
}

// What another model reported says nothing about this one's way of counting. One that refused a
// request as too long has reported the whole window.
function usageOf(
  messages: readonly HostMessage[],
  { model }: HostUser,
  context: number,
): UsageInfo | null {
  for (const { info, parts } of messages.toReversed()) {
    const refused = parts.some((part) => part.type === "compaction" && part.overflow);
    if (refused && context > 0) return { message_id: info.id, input_tokens: context };
    if (info.role !== "assistant" || info.summary) continue;
    const { input, cache } = info.tokens;
    const input_tokens = input + cache.read + cache.write;
    if (input_tokens === 0) continue;
    const same = info.providerID === model.providerID && info.modelID === model.modelID;
    return same ? { message_id: info.id, input_tokens } : null;
  }
  return null;
}
