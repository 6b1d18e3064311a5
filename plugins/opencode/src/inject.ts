/**
 * Put the coordinator's text into the outgoing messages.
 *
 * The list is changed in place, which is all that the host looks at; the messages and parts in it
 * are its own and go on to other hooks, so that changed ones are replaced by copies.
 */
import { Failure } from "./failure.ts";
import type { HostMessage, HostText, HostUser } from "./host.ts";
import type { AssembleResponse } from "./wire.gen.ts";

export function inject(messages: HostMessage[], answer: AssembleResponse): void {
  const kept = messages.slice(position(messages, answer.keep_from));
  for (const { message_id, text } of answer.news) {
    const at = position(kept, message_id);
    kept[at] = leadBy(kept[at] as HostMessage, text, "news");
  }
  if (answer.base && answer.placement === "message") {
    const [first] = kept;
    if (first?.info.role === "user") kept[0] = leadBy(first, answer.base, "base");
    else kept.unshift(leadBy(blank(messages), answer.base, "base"));
  }
  messages.splice(0, messages.length, ...kept);
}

function position(messages: readonly HostMessage[], id: string | null): number {
  if (id === null) return 0;
  const found = messages.findIndex(({ info }) => info.id === id);
  if (found >= 0) return found;
  const message = `the coordinator named a message that is not in the request: ${id}`;
  throw new Failure({ code: "plugin", message, hint: "optchat status", retryable: false });
}

function leadBy({ info, parts }: HostMessage, text: string, name: string): HostMessage {
  const part: HostText & { messageID: string; sessionID: string } = {
    id: `prt_optchat_${name}`,
    messageID: info.id,
    sessionID: info.sessionID,
    type: "text",
    synthetic: true,
    text,
  };
  return { info, parts: [part, ...parts] };
}

// The list may begin with an answer; what leads it must not read as the model's own words.
function blank(messages: readonly HostMessage[]): HostMessage {
  const user = messages.findLast(({ info }) => info.role === "user")?.info as HostUser;
  return { info: { ...user, id: "msg_optchat_base" }, parts: [] };
}
