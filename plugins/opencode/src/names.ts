/** Names that more than one module must agree on. */
import { ALIASES, TOOLS } from "./wire.gen.ts";

export const HOST = "opencode";

export type ToolName = (typeof TOOLS)[number];
export type AliasName = (typeof ALIASES)[number];

/** What answers under these is ours, whether or not it is registered now. */
export const OWN_TOOLS: ReadonlySet<string> = new Set([...TOOLS, ...ALIASES]);
