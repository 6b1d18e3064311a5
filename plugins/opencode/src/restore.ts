/**
 * A request's messages with those back that the host's compaction has taken out of it.
 *
 * The host keeps every message and filters them before its hooks. What a request holds of them is
 * memory's to decide, by a view that leads back to the originals; the host's summary stays what a
 * person sees, and what is sent while memory is off.
 */
import type { HostMessage } from "./host.ts";
import { rolesOf } from "./map.ts";

export interface Restored {
  /** The conversation without the host's machinery, up to the last message of the request. */
  whole: HostMessage[];
  /** The same stretch of the host's store, as it is. */
  history: readonly HostMessage[];
}

/** Whether the host has compacted what comes before. */
export function isCompacted(messages: readonly HostMessage[]): boolean {
  return messages.some(({ parts }) => parts.some(({ type }) => type === "compaction"));
}

export function restore(given: readonly HostMessage[], stored: readonly HostMessage[]): Restored {
  const sent = new Map(given.map((message) => [message.info.id, message]));
  const history = stored.slice(0, stored.findLastIndex(({ info }) => sent.has(info.id)) + 1);
  const roles = rolesOf(history);
  const whole: HostMessage[] = [];
  history.forEach((message, index) => {
    if (roles[index] !== "other" || (isContinue(message) && isAnswer(whole.at(-1)))) {
      whole.push(sent.get(message.info.id) ?? message);
    } else moveUnsaved(sent.get(message.info.id), message, whole);
  });
  return { whole, history };
}

// The host asks to go on where it has stopped. Within a turn that would be a message in between.
function isContinue({ parts }: HostMessage): boolean {
  return parts.some((part) => part.type === "text" && part.metadata?.compaction_continue === true);
}

function isAnswer(message: HostMessage | undefined): boolean {
  if (message?.info.role !== "assistant") return false;
  const { finish } = message.info;
  return finish !== undefined && finish !== "tool-calls" && finish !== "unknown";
}

// A reminder of the agent's mode is only in memory, on the last user message, whichever that is.
function moveUnsaved(sent: HostMessage | undefined, stored: HostMessage, whole: HostMessage[]) {
  const saved = new Set(stored.parts.map(({ id }) => id));
  const unsaved = sent?.parts.filter(({ id }) => !saved.has(id)) ?? [];
  const last = whole.findLastIndex(({ info }) => info.role === "user");
  const user = whole[last];
  if (user && unsaved.length > 0) {
    whole[last] = { info: user.info, parts: [...user.parts, ...unsaved] };
  }
}
