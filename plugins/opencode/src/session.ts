/** A session as the coordinator identifies it, and the origin of a fork. */
import type { Host, HostMessage, HostSession } from "./host.ts";
import { HOST } from "./names.ts";
import type { SessionState } from "./state.ts";
import type { SessionInfo } from "./wire.gen.ts";

/** The host gives one id to every directory outside version control. */
const GLOBAL = "global";
const CANDIDATES = 20;

export function sessionInfo(host: Host, session: HostSession, state: SessionState): SessionInfo {
  return {
    host: HOST,
    id: session.id,
    ...projectOf(host, session),
    directory: session.directory,
    title: session.title,
    created_ms: session.time.created,
    updated_ms: session.time.updated,
    parent_id: session.parentID ?? null,
    fork_of: state.forkOf ?? null,
    archived: session.time.archived !== undefined,
    worktree: session.projectID === GLOBAL ? null : host.worktree,
    store: host.store(),
  };
}

/** The project of a session, or of the whole instance. */
export function projectOf(
  host: Host,
  { projectID, directory } = { projectID: host.project.id, directory: host.directory },
): Pick<SessionInfo, "project_key" | "project_directory"> {
  if (projectID !== GLOBAL)
    return { project_key: projectID, project_directory: host.project.worktree };
  return { project_key: `dir:${directory}`, project_directory: directory };
}

/** The conversation a person has; a subagent asks in the name of the one that sent it. */
export async function rootOf(host: Host, id: string): Promise<string> {
  const { parentID } = await host.session(id);
  return parentID === undefined ? id : rootOf(host, parentID);
}

/**
 * The session that this one was copied from, or null; undefined while there is nothing to tell by.
 *
 * The host keeps no link, but a copy keeps the times of its messages, which are then older than the
 * session itself, and the original still has messages of exactly these times: all of them, unless
 * it was rewound since; then the one that shares most is taken.
 */
export async function findOrigin(
  host: Host,
  session: HostSession,
  messages: readonly HostMessage[],
): Promise<string | null | undefined> {
  if (messages.length === 0) return undefined;
  const copied = messages.filter(({ info }) => info.time.created < session.time.created);
  const [first] = copied;
  if (!first) return null;
  const title = session.title.replace(/ \(fork #1\)$/, "");
  const previous = title.replace(/ \(fork #(\d+)\)$/, (_, n) => ` (fork #${Number(n) - 1})`);
  const candidates = (await host.sessions())
    .filter(({ id, parentID }) => id !== session.id && parentID === undefined)
    .filter(({ time }) => time.created < session.time.created)
    .filter(({ time }) => time.updated >= first.info.time.created)
    .sort((a, b) => Number(b.title === previous) - Number(a.title === previous));
  let best: { id: string; shared: number } | undefined;
  for (const { id } of candidates.slice(0, CANDIDATES)) {
    const theirs = await host.messages(id);
    const differs = copied.findIndex((message, index) => !isCopy(message, theirs[index]));
    if (differs < 0) return id;
    if (differs > (best?.shared ?? 0)) best = { id, shared: differs };
  }
  return best?.id ?? null;
}

function isCopy({ info }: HostMessage, original: HostMessage | undefined): boolean {
  return original?.info.time.created === info.time.created && original.info.role === info.role;
}
