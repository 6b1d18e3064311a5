/** What the person is told: each cause once in a process, never on the console. */
import { describe } from "./failure.ts";
import type { Host } from "./host.ts";
import { shared } from "./state.ts";

/** Say something once for its cause. */
export function say(
  host: Host,
  level: "info" | "warn" | "error",
  cause: string,
  message: string,
): void {
  const { said } = shared();
  if (said.has(cause)) return;
  said.add(cause);
  void host.say(level, message);
}

/** Say that memory is off for now, and why; the host's own request goes out as it was. */
export function sayFailure(host: Host, thrown: unknown): void {
  const { code, message, hint } = describe(thrown);
  // Too late and not there are one cause to a person, whichever of the two is noticed first.
  const cause = code === "timeout" ? "unreachable" : code;
  say(host, "warn", cause, `Memory is off: ${message} (${code}). Next: ${hint}`);
}
