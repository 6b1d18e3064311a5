/** What a person may set beside the plugin in the host's configuration. Unknown keys are ignored. */

export interface Options {
  /** The program that starts the coordinator; `ensure --json` is added. */
  command: string[];
  /** How long the first request of a process may wait for a coordinator to start. */
  startTimeoutMs: number;
  /** How long a model call may wait for its memory before it goes without. */
  assembleTimeoutMs: number;
  syncTimeoutMs: number;
  toolTimeoutMs: number;
}

export function readOptions(given: Record<string, unknown> | undefined): Options {
  const options = given ?? {};
  return {
    command: strings(options.command) ?? ["optchat"],
    startTimeoutMs: milliseconds(options.start_timeout_ms) ?? 4_000,
    assembleTimeoutMs: milliseconds(options.assemble_timeout_ms) ?? 2_000,
    syncTimeoutMs: milliseconds(options.sync_timeout_ms) ?? 10_000,
    toolTimeoutMs: milliseconds(options.tool_timeout_ms) ?? 20_000,
  };
}

function strings(value: unknown): string[] | undefined {
  if (!Array.isArray(value) || value.length === 0) return undefined;
  return value.every((item) => typeof item === "string") ? value : undefined;
}

function milliseconds(value: unknown): number | undefined {
  return typeof value === "number" && value > 0 ? value : undefined;
}
