/** What came of a call, in the protocol's names. */
import type { HostAssistant, HostMessage } from "./host.ts";
import type { Work, WorkDone } from "./wire.gen.ts";

type Outcome = WorkDone["outcome"];
type HostError = NonNullable<HostAssistant["error"]>;

const BY_NAME: Record<string, Outcome> = {
  ProviderAuthError: "denied",
  ContextOverflowError: "rejected",
  MessageOutputLengthError: "cut",
  ContentFilterError: "filtered",
  MessageAbortedError: "unavailable",
};

/** The answer of the host's model, or why there is none. */
export function outcomeOf({ id }: Work, { info, parts }: HostMessage): WorkDone {
  if (info.role !== "assistant") return { id, outcome: "unavailable", detail: "no answer came" };
  const { providerID, modelID, finish, error, tokens } = info;
  const input_tokens = tokens.input + tokens.cache.read + tokens.cache.write;
  const output_tokens = tokens.output + tokens.reasoning;
  const told = input_tokens + output_tokens > 0;
  const usage = told ? { input_tokens, cached_tokens: tokens.cache.read, output_tokens } : null;
  const base = { id, model: `${providerID}/${modelID}`, usage };
  if (error) return { ...base, ...failed(error) };
  if (finish === "length") return { ...base, outcome: "cut" };
  if (finish === "content-filter") return { ...base, outcome: "filtered" };
  const text = parts.map((part) => (part.type === "text" ? part.text : "")).join("");
  if (text.trim()) return { ...base, outcome: "answer", text };
  const thought = parts.some((part) => part.type === "reasoning");
  return { ...base, outcome: thought ? "reasoning_only" : "empty" };
}

// The provider's own words are left out: they may quote what it was sent.
function failed({ name, data }: HostError): Pick<WorkDone, "outcome" | "detail"> {
  const status = data?.statusCode;
  const detail = status === undefined ? name : `${name} ${status}`;
  return { outcome: BY_NAME[name] ?? byStatus(status), detail };
}

function byStatus(status: number | undefined): Outcome {
  switch (status) {
    case 401:
    case 402:
    case 403:
      return "denied";
    case 404:
    case 410:
      return "gone";
    case 408:
      return "timed_out";
    case 429:
      return "rate_limited";
  }
  return status !== undefined && status < 500 ? "rejected" : "unavailable";
}
