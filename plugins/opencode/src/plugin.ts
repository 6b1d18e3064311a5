/** The host's hooks and events, each led to what it means for memory. */
import type { Hooks, PluginInput } from "@opencode-ai/plugin";
import type { HostRetry } from "./call.ts";
import { within } from "./connection.ts";
import { Stop } from "./failure.ts";
import { Host, type HostMessage, type HostSession } from "./host.ts";
import { sayFailure } from "./notices.ts";
import { readOptions } from "./options.ts";
import { Requests } from "./outgoing.ts";
import { Presence } from "./presence.ts";
import { connectionFor, sessionState, shared } from "./state.ts";
import { isOneShot, Summaries } from "./summaries.ts";
import { Sync } from "./sync.ts";
import { define, Tools } from "./tools.ts";

const DISPOSE_MS = 2_000;

export async function server(input: PluginInput, given?: Record<string, unknown>): Promise<Hooks> {
  const options = readOptions(given);
  const host = new Host(input);
  const connection = connectionFor(options.command);
  const sync = new Sync(host, connection, options);
  const presence = new Presence(host, connection, options);
  const requests = new Requests(host, connection, options, sync, presence);
  const summaries = new Summaries(host, connection);
  const tools = new Tools(host, connection, options);
  const { calls } = shared();

  /** Errors of ours never become the host's, except the one that stops a turn on purpose. */
  function guarded<Args extends unknown[]>(hook: (...args: Args) => Promise<void> | void) {
    return async (...args: Args): Promise<void> => {
      try {
        await hook(...args);
      } catch (thrown) {
        if (thrown instanceof Stop) throw thrown;
        sayFailure(host, thrown);
      }
    };
  }

  // In the background: the host waits for its plugins, and the first turn may find it done.
  const started = Date.now();
  const learnt = connection.ensure().then(() => tools.learn());
  learnt.then(() => presence.now()).catch(() => undefined);
  if (!isOneShot()) summaries.start();

  return {
    config: guarded((config) => summaries.configure(config)),

    tool: tools.registered,
    "tool.definition": guarded(({ toolID }, output) => define(toolID, output)),

    "chat.message": guarded(async ({ sessionID }, { message }) => {
      if (calls.has(sessionID)) return;
      host.lastModel = message.model;
      const state = sessionState(sessionID);
      state.active = true;
      state.admittedAt = Date.now();
      const busy = await host.busy(sessionID);
      // What arrives during a run is part of it, and needs no time to become one.
      if (busy) state.admittedAt = 0;
      state.opens.set(message.id, !busy);
      // The host asks for its tools next, and once only.
      const deadline = started + options.startTimeoutMs;
      await within(learnt, deadline, "the tools are not known").catch(() => undefined);
    }),

    "experimental.chat.messages.transform": guarded(async (_, output) => {
      const messages = output.messages as HostMessage[];
      const call = calls.get(messages[0]?.info.sessionID ?? "");
      if (call) call.replace(messages);
      else await requests.assemble(messages);
    }),

    "experimental.chat.system.transform": guarded(async ({ sessionID }, { system }) => {
      const call = calls.get(sessionID ?? "");
      if (call) call.instruct(system);
      else if (sessionID !== undefined) await requests.system(sessionID, system);
    }),

    "chat.params": guarded(({ sessionID, agent }, params) => {
      const call = calls.get(sessionID);
      if (call) call.limit(params);
      else requests.settle(sessionID, agent);
    }),

    "experimental.session.compacting": guarded(({ sessionID }) => {
      const state = sessionState(sessionID);
      state.compacting = true;
      state.outgoing = undefined;
    }),

    event: guarded(({ event }) => followEvent(event as HostEvent, host, sync, presence)),

    dispose: guarded(async () => {
      await Promise.all([sync.flush(DISPOSE_MS), summaries.stop(DISPOSE_MS)]);
    }),
  };
}

interface HostEvent {
  type: string;
  properties: {
    sessionID?: string;
    info?: { id: string; role?: string; sessionID?: string; time: { completed?: number } };
    status?: HostRetry;
  };
}

async function followEvent(
  { type, properties }: HostEvent,
  host: Host,
  sync: Sync,
  presence: Presence,
): Promise<void> {
  const { info, sessionID, status } = properties;
  switch (type) {
    case "session.status":
      if (status)
        shared()
          .calls.get(sessionID ?? "")
          ?.retried(status);
      return;
    case "session.created":
      if (info) host.remember(info as unknown as HostSession);
      return;
    case "session.updated":
      if (info && host.remember(info as unknown as HostSession)) {
        await sync.follow(info as unknown as HostSession);
      }
      return;
    case "session.deleted":
      // Only a reason to look: that it is gone from the host is found by comparing.
      if (info) {
        host.forget(info.id);
        shared().sessions.delete(info.id);
        void presence.deleted(info.id);
      }
      return;
    case "message.updated":
      if (info?.role !== "assistant" || info.sessionID === undefined) return;
      shared().sessions.get(info.sessionID)?.begun.add(info.id);
      if (info.time.completed !== undefined) sync.wake(info.sessionID);
      return;
    case "session.idle":
    case "session.compacted":
    case "message.removed":
      if (sessionID !== undefined) sync.wake(sessionID);
      return;
  }
}
