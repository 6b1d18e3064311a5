/**
 * Put the coordinator's text into the outgoing messages.
 *
 * The list is changed in place, which is all that the host looks at; the messages and parts in it
 * are its own and go on to other hooks, so that changed ones are replaced by copies.
 */
import { Failure } from "./failure.ts";
import type { HostMessage, HostPart, HostText, HostUser } from "./host.ts";
import type { AssembleResponse } from "./wire.gen.ts";

/** `whole` is what the answer is for: the list itself, or with messages restored to it. */
export function inject(
  messages: HostMessage[],
  whole: readonly HostMessage[],
  answer: AssembleResponse,
): void {
  const kept = withCheckpoints(whole.slice(position(whole, answer.keep_from)), answer);
  for (const { message_id, text } of answer.news) {
    const at = position(kept, message_id);
    kept[at] = leadBy(kept[at] as HostMessage, text, "news");
  }
  if (answer.base && answer.placement === "message") {
    const [first] = kept;
    if (first?.info.role === "user") kept[0] = leadBy(first, answer.base, "base");
    else kept.unshift(leadBy(blank(whole), answer.base, "base"));
  }
  messages.splice(0, messages.length, ...kept);
}

function withCheckpoints(
  messages: HostMessage[],
  { checkpoints }: AssembleResponse,
): HostMessage[] {
  const left = new Set<HostMessage>();
  const kept = [...messages];
  for (const [index, { after, until, text }] of checkpoints.entries()) {
    const at = position(messages, after);
    for (const message of messages.slice(at + 1, position(messages, until))) left.add(message);
    const { info, parts } = kept[at] as HostMessage;
    kept[at] = { info, parts: [...parts, textPart(info, text, `checkpoint_${index}`)] };
  }
  return kept.filter((message) => !left.has(message));
}

function position(messages: readonly HostMessage[], id: string | null): number {
  if (id === null) return 0;
  const found = messages.findIndex(({ info }) => info.id === id);
  if (found >= 0) return found;
  const message = `the coordinator named a message that is not in the request: ${id}`;
  throw new Failure({ code: "plugin", message, hint: "optchat status", retryable: false });
}

function leadBy({ info, parts }: HostMessage, text: string, name: string): HostMessage {
  return { info, parts: [textPart(info, text, name), ...parts] };
}

function textPart(info: HostMessage["info"], text: string, name: string): HostPart {
  const part: HostText & { messageID: string; sessionID: string } = {
    id: `prt_optchat_${name}`,
    messageID: info.id,
    sessionID: info.sessionID,
    type: "text",
    synthetic: true,
    text,
  };
  return part;
}

// The list may begin with an answer; what leads it must not read as the model's own words.
function blank(messages: readonly HostMessage[]): HostMessage {
  const user = messages.findLast(({ info }) => info.role === "user")?.info as HostUser;
  return { info: { ...user, id: "msg_optchat_base" }, parts: [] };
}
