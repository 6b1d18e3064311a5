/**
 * What the process remembers, in one place for all instances of the plugin in it.
 *
 * Nothing here is needed to be right: it says what was sent already and what was seen, so that less
 * is sent again. The coordinator holds what must last.
 */
import type { Call } from "./call.ts";
import { Connection } from "./connection.ts";
import type { HostSession, HostUser } from "./host.ts";
import type { Measured, Sizes } from "./sizes.ts";
import type { ErrorInfo, ModelInfo, SessionInfo } from "./wire.gen.ts";

/** A request between its assembly and its dispatch. */
export interface Outgoing {
  session: SessionInfo;
  model: ModelInfo;
  /** The message that asks for it: it names the agent and the model. */
  user: HostUser;
  /** What a system message of ours holds, until the next assembly: a retry asks for it again. */
  base: string;
  /** The base has been put into this request's system messages. */
  delivered: boolean;
  overhead: Sizes;
  /** The tools' part of the overhead. */
  tools: Sizes;
  stop?: ErrorInfo;
}

/** One session of the host. */
export class SessionState {
  /** Digest of every message that the coordinator holds, by message. */
  readonly sealed = new Map<string, string>();
  readonly opens = new Map<string, boolean>();
  readonly loaded = new Set<string>();
  readonly begun = new Set<string>();
  readonly measured = new Map<string, Measured>();
  /** The session has had a turn in this process, so that following it is our task. */
  active = false;
  /** When a message came in whose turn has not begun yet. */
  admittedAt = 0;
  /** The next pass through the transform is the host's compaction. */
  compacting = false;
  /** Where it was forked from; undefined until that was looked for. */
  forkOf: string | null | undefined;
  outgoing: Outgoing | undefined;
  /** A subagent whose requests go out as they are; asked for once. */
  plain = false;
  /** What the coordinator was told last; saying the same again would change nothing. */
  told = "";
  /** Until when this session's requests go out as they are, after a failure that took its time. */
  quietUntil = 0;
  /** How many passes have failed in a row, and the timer of the next try. */
  failures = 0;
  retry: NodeJS.Timeout | undefined;
  /** The synchronisation that runs, and the one that waits for it. */
  running: Promise<void> | undefined;
  waiting: Promise<void> | undefined;
}

interface Shared {
  connections: Map<string, Connection>;
  sessions: Map<string, SessionState>;
  said: Set<string>;
  systems: Map<string, Sizes>;
  /** The summaries that are being made, by the session that each has to itself. */
  calls: Map<string, Call>;
}

const KEY = Symbol.for("optchat.opencode.1");

/** The process-wide state; each copy of the bundle finds the same. */
export function shared(): Shared {
  const holder = globalThis as typeof globalThis & { [KEY]?: Shared };
  holder[KEY] ??= {
    connections: new Map(),
    sessions: new Map(),
    said: new Set(),
    systems: new Map(),
    calls: new Map(),
  };
  return holder[KEY];
}

export function connectionFor(command: string[]): Connection {
  const { connections } = shared();
  const key = command.join("\0");
  const known = connections.get(key) ?? new Connection(command);
  connections.set(key, known);
  return known;
}

export function sessionState(id: string): SessionState {
  const { sessions } = shared();
  const known = sessions.get(id) ?? new SessionState();
  sessions.set(id, known);
  return known;
}

/** Sessions that a plugin of ours has made, in whatever process. */
export function isInternal({ metadata }: HostSession): boolean {
  return (metadata?.optchat as { internal?: boolean } | undefined)?.internal === true;
}
