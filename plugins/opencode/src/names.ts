/** Names that more than one module must agree on. */

export const HOST = "opencode";

export type ToolName = "memory_zoom" | "memory_search" | "memory_date" | "memory_sessions";

export const TOOL_NAMES: ReadonlySet<string> = new Set<ToolName>([
  "memory_zoom",
  "memory_search",
  "memory_date",
  "memory_sessions",
]);
