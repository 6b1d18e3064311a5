/** The host's hooks and events, each led to what it means for memory. */
import type { Hooks, PluginInput } from "@opencode-ai/plugin";
import { Stop } from "./failure.ts";
import { Host, type HostMessage, type HostSession } from "./host.ts";
import { sayFailure } from "./notices.ts";
import { readOptions } from "./options.ts";
import { Requests } from "./outgoing.ts";
import { connectionFor, sessionState, shared } from "./state.ts";
import { Sync } from "./sync.ts";
import { define, tools } from "./tools.ts";

const DISPOSE_MS = 2_000;

export async function server(input: PluginInput, given?: Record<string, unknown>): Promise<Hooks> {
  const options = readOptions(given);
  const host = new Host(input);
  const connection = connectionFor(options.command);
  const sync = new Sync(host, connection, options);
  const requests = new Requests(host, connection, options, sync);

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
  connection.ensure().catch(() => undefined);

  return {
    tool: tools(host, connection, options) ?? {},
    "tool.definition": guarded(({ toolID }, output) => define(toolID, output)),

    "chat.message": guarded(async ({ sessionID }, { message }) => {
      const state = sessionState(sessionID);
      state.active = true;
      state.admittedAt = Date.now();
      const busy = await host.busy(sessionID);
      // What arrives during a run is part of it, and needs no time to become one.
      if (busy) state.admittedAt = 0;
      state.opens.set(message.id, !busy);
    }),

    "experimental.chat.messages.transform": guarded((_, { messages }) =>
      requests.assemble(messages as HostMessage[]),
    ),

    "experimental.chat.system.transform": guarded(async ({ sessionID }, { system }) => {
      if (sessionID !== undefined) await requests.system(sessionID, system);
    }),

    "chat.params": guarded(({ sessionID, agent }) => requests.settle(sessionID, agent)),

    "experimental.session.compacting": guarded(({ sessionID }) => {
      const state = sessionState(sessionID);
      state.compacting = true;
      state.outgoing = undefined;
    }),

    event: guarded(({ event }) => follow(event as HostEvent, host, sync)),

    dispose: guarded(() => sync.flush(DISPOSE_MS)),
  };
}

interface HostEvent {
  type: string;
  properties: {
    sessionID?: string;
    info?: { id: string; role?: string; sessionID?: string; time: { completed?: number } };
  };
}

function follow({ type, properties }: HostEvent, host: Host, sync: Sync): void {
  const { info, sessionID } = properties;
  switch (type) {
    case "session.created":
    case "session.updated":
      if (info) host.remember(info as unknown as HostSession);
      return;
    case "session.deleted":
      // Only forgotten here; that it is gone from the host is found by reconciliation.
      if (info) {
        host.forget(info.id);
        shared().sessions.delete(info.id);
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
