/**
 * Tools of other systems, by their names and parameters, for prompts and habits that know them.
 *
 * Registered only where the coordinator says so; it maps them onto our own.
 */

import { type Definition, flag, list, number, text } from "./definition.ts";
import type { AliasName } from "./names.ts";

const SESSION = text("Session id, or s12; the current one if left out");
const MESSAGE = text("Message id or reference, as it is shown");

export const ALIAS_DEFINITIONS: Record<AliasName, Definition> = {
  recall: {
    description: "Search earlier conversations. The same as memory_search.",
    properties: {
      query: text("Words to find; quotes keep a phrase together"),
      scope: text("session, project or global"),
      match: text("literal, smart, fuzzy or regex"),
      group: text("part or session"),
      sessionID: text("Only this session"),
      sessions: list("Only these sessions"),
      excludeSessionID: text("Not this session"),
      excludeCurrentSession: flag("Leave out this session and its family"),
      type: text("text, tool, reasoning or all"),
      role: text("user or assistant"),
      authorship: text("human, delegated, injected, model, title or unknown"),
      title: text("Words of the session's title"),
      directory: text("Only below this directory"),
      project: text("Only this project"),
      before: text("Only before this time"),
      after: text("Only after this time"),
      since: text("As after"),
      until: text("As before"),
      last: text("As 2h or 7d"),
      from: text("As after"),
      to: text("As before"),
      toolName: text("Only this tool's calls and results"),
      results: number("The most hits, 1 to 50"),
      width: number("Characters around a hit"),
      expand: text("none, context or message"),
      window: number("Messages around a hit, with expand"),
      explain: flag("Say why a hit is one"),
      deep: flag("Tool outputs too, which are always searched"),
      deepCursor: text("Where to go on, from the answer before"),
    },
    required: ["query"],
  },
  recall_get: {
    description: "Read one message whole. The same as memory_messages with ref.",
    properties: { sessionID: SESSION, messageID: MESSAGE },
    required: ["messageID"],
  },
  recall_context: {
    description: "Read the messages around one. The same as memory_messages with ref.",
    properties: {
      sessionID: SESSION,
      messageID: MESSAGE,
      window: number("Messages on either side"),
      before: number("Messages before"),
      after: number("Messages after"),
    },
    required: ["messageID"],
  },
  recall_messages: {
    description: "Read a session's messages, newest first. The same as memory_messages.",
    properties: {
      sessionID: SESSION,
      limit: number("Messages on a page"),
      cursor: text("Where to go on, from the answer before"),
      role: text("user or assistant"),
      query: text("Words that a message must hold"),
    },
    required: [],
  },
  recall_sessions: {
    description: "List sessions. The same as memory_sessions.",
    properties: {
      scope: text("project or global"),
      parentID: text("Only the subagents of this session; current for this one"),
      search: text("Words of title or directory"),
      since: text("Only with activity after this time"),
      until: text("Only with activity before this time"),
      limit: number("The most sessions"),
    },
    required: [],
  },
  search_memory_tree: {
    description: "Open a node of the memory, or search it: memory_zoom and memory_search.",
    properties: {
      node_id: text("A reference as it stands at the start of a line"),
      query: text("Words to find"),
    },
    required: [],
  },
};
