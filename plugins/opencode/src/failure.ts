/** Everything that can go wrong on the way to the coordinator, in the protocol's own terms. */
import type { ErrorInfo } from "./wire.gen.ts";

export class Failure extends Error {
  readonly info: ErrorInfo;

  constructor(info: ErrorInfo) {
    super(info.message);
    this.name = "OptChatFailure";
    this.info = info;
  }
}

export function unreachable(message: string): Failure {
  return new Failure({ code: "unreachable", message, hint: "optchat serve", retryable: true });
}

export function late(message: string): Failure {
  return new Failure({ code: "timeout", message, hint: "optchat status", retryable: true });
}

/** Any thrown value as an error that can be shown. */
export function describe(thrown: unknown): ErrorInfo {
  if (thrown instanceof Failure) return thrown.info;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return { code: "plugin", message, hint: "optchat status", retryable: false };
}

/**
 * The error that ends a turn on purpose.
 *
 * Thrown while the host prepares a request, it becomes the error of the assistant's message. The
 * host repeats a request whose error reads like a passing failure of a provider ("503" anywhere,
 * "unavailable"), so an invisible word joiner breaks up such words.
 */
export class Stop extends Error {
  constructor({ code, message, hint }: ErrorInfo) {
    super(inert(`optchat: ${message} (${code})${hint ? `\nNext: ${hint}` : ""}`));
    this.name = "OptChatStop";
  }
}

const TRANSIENT = new RegExp(
  [
    "429|50[0-4]|524",
    "rate.?limit|rate increased|too.many.requests|exhausted|overloaded|unavailable|at capacity",
    "internal.error|server.error|returned.error|terminated|fetch failed|failed to fetch",
    "network|upstream|connection|socket|getaddrinfo|reset before|enotfound|eai_again|econn|etimedout",
    "time(?:d )?.?out|(?:try|retry) (?:your|again)",
  ].join("|"),
  "gi",
);

export function inert(text: string): string {
  return text.replace(TRANSIENT, (word) => `${word[0]}\u2060${word.slice(1)}`);
}
