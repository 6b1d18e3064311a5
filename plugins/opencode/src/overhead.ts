/**
 * What a request carries besides its messages: instructions and tool definitions.
 *
 * The host shows its instructions only after the messages have been assembled, so that the first
 * request for an agent is measured by guess and checked when they are seen.
 */
import type { Host, HostSession, HostUser, Rule } from "./host.ts";
import { add, measure, NOTHING, type Sizes } from "./sizes.ts";
import { shared } from "./state.ts";

/** The host's own prompts are about ten thousand characters; more comes from the project's files. */
const PROMPT: Sizes = { ...NOTHING, letters: 9_000, spaces: 2_000, symbols: 1_200 };
/** What the host adds to an agent's prompt: the environment, skills, references. */
const ENVIRONMENT: Sizes = { ...NOTHING, letters: 1_200, spaces: 300, symbols: 300 };

export interface Overhead {
  sizes: Sizes;
  tools: Sizes;
  known: boolean;
}

export async function overheadOf(
  host: Host,
  session: HostSession,
  user: HostUser,
): Promise<Overhead> {
  const { providerID, modelID } = user.model;
  const [agent, offered, servers] = await Promise.all([
    host.agent(user.agent),
    host.tools(providerID, modelID),
    host.servers(),
  ]);
  const rules = [...(agent?.permission ?? []), ...(session.permission ?? [])];
  const tools = offered
    .filter(({ id }) => id !== "invalid" && user.tools?.[id] !== false && !denied(id, rules))
    .map(({ id: name, description, parameters }) => ({ name, description, parameters }))
    .map((tool) => measure(JSON.stringify({ type: "function", function: tool })))
    .reduce(add, NOTHING);
  const seen = shared().systems.get(systemKey(host, user));
  const guess = agent?.prompt ? add(measure(agent.prompt), ENVIRONMENT) : PROMPT;
  const known = seen !== undefined && !servers;
  return { sizes: add(seen ?? guess, tools), tools, known };
}

/** Keep what the instructions of an agent measure, for its next request. */
export function learnSystem(host: Host, user: HostUser, sizes: Sizes): void {
  shared().systems.set(systemKey(host, user), sizes);
}

function systemKey(host: Host, { agent, model }: HostUser): string {
  return [host.directory, agent, model.providerID, model.modelID].join("\0");
}

// The host's rule for leaving a tool out: the last rule that names it denies it altogether.
function denied(tool: string, rules: readonly Rule[]): boolean {
  const edits = tool === "edit" || tool === "write" || tool === "apply_patch";
  const last = rules.findLast(({ permission }) => matches(edits ? "edit" : tool, permission));
  return last?.pattern === "*" && last.action === "deny";
}

function matches(name: string, pattern: string): boolean {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&");
  const expression = escaped.replaceAll("*", ".*").replaceAll("?", ".");
  return new RegExp(`^${expression}$`, "s").test(name);
}
