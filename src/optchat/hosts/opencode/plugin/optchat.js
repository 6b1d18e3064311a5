// Generated from plugins/opencode by `make plugin`. Do not edit.

// plugins/opencode/src/connection.ts
import { spawn } from "node:child_process";
import { Agent, request as httpRequest } from "node:http";

// plugins/opencode/src/failure.ts
var Failure = class extends Error {
  info;
  constructor(info) {
    super(info.message);
    this.name = "OptChatFailure";
    this.info = info;
  }
};
function unreachable(message) {
  return new Failure({ code: "unreachable", message, hint: "optchat serve", retryable: true });
}
function late(message) {
  return new Failure({ code: "timeout", message, hint: "optchat status", retryable: true });
}
function describe(thrown) {
  if (thrown instanceof Failure) return thrown.info;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return { code: "plugin", message, hint: "optchat status", retryable: false };
}
var Stop = class extends Error {
  constructor({ code, message, hint }) {
    super(inert(`optchat: ${message} (${code})${hint ? `
Next: ${hint}` : ""}`));
    this.name = "OptChatStop";
  }
};
var TRANSIENT = new RegExp(
  [
    "429|50[0-4]|524",
    "rate.?limit|rate increased|too.many.requests|exhausted|overloaded|unavailable|at capacity",
    "internal.error|server.error|returned.error|terminated|fetch failed|failed to fetch",
    "network|upstream|connection|socket|getaddrinfo|reset before|enotfound|eai_again|econn|etimedout",
    "time(?:d )?.?out|(?:try|retry) (?:your|again)"
  ].join("|"),
  "gi"
);
function inert(text2) {
  return text2.replace(TRANSIENT, (word) => `${word[0]}⁠${word.slice(1)}`);
}

// plugins/opencode/src/wire.gen.ts
var PROTOCOL = 1;
var PROTOCOL_HEADER = "x-optchat-protocol";
var TOOLS = [
  "memory_zoom",
  "memory_search",
  "memory_date",
  "memory_sessions",
  "memory_messages"
];
var ALIASES = [
  "recall",
  "recall_get",
  "recall_context",
  "recall_messages",
  "recall_sessions",
  "search_memory_tree"
];

// plugins/opencode/src/connection.ts
var STARTING = "the coordinator is still starting";
var ENSURE_TIMEOUT_MS = 2e4;
var BACKOFF_MS = { first: 500, most: 3e4 };
var DROPPED = /* @__PURE__ */ new Set(["ECONNRESET", "EPIPE"]);
var ATTEMPTS = 3;
var Connection = class {
  #command;
  #agent = new Agent({ keepAlive: true, maxSockets: 8 });
  #socket;
  #starting;
  #everStarted = false;
  #failures = 0;
  #notBefore = 0;
  #lastFailure;
  constructor(command) {
    this.#command = command;
  }
  /** Find or start the coordinator. Callers share one attempt, and none is made while backing off. */
  ensure() {
    if (this.#socket !== void 0) return Promise.resolve(this.#socket);
    if (this.#starting) return this.#starting;
    if (this.#lastFailure && Date.now() < this.#notBefore) return Promise.reject(this.#lastFailure);
    const starting = this.#start();
    this.#starting = starting;
    starting.then(
      (socket) => {
        this.#starting = void 0;
        this.#socket = socket;
        this.#everStarted = true;
        this.#failures = 0;
        this.#lastFailure = void 0;
      },
      (failure) => {
        this.#starting = void 0;
        this.#lastFailure = failure;
        const wait = BACKOFF_MS.first * 2 ** this.#failures++;
        this.#notBefore = Date.now() + Math.min(wait, BACKOFF_MS.most);
      }
    );
    return starting;
  }
  /** Wait until there is a coordinator, longer for the first one of the process. */
  async ready(firstMs, laterMs) {
    const deadline = Date.now() + (this.#everStarted ? laterMs : firstMs);
    await within(this.ensure(), deadline, STARTING);
  }
  /** Send one request and return its answer, within a bound. Raises a `Failure`, nothing else. */
  async ask(path, body, timeoutMs, signal) {
    const deadline = Date.now() + timeoutMs;
    for (let attempt = 1; ; attempt++) {
      const socket = await within(this.ensure(), deadline, STARTING);
      try {
        return await this.#askAt(socket, path, body, deadline, signal);
      } catch (thrown) {
        if (thrown instanceof Failure) throw thrown;
        if (attempt === ATTEMPTS) throw unreachable(`nothing answers on ${socket}`);
      }
    }
  }
  /** The same of a coordinator that is there; undefined when none is known, and none is started. */
  async askIfRunning(path, body, timeoutMs, signal) {
    const socket = this.#socket;
    if (socket === void 0) return void 0;
    return await this.#askAt(socket, path, body, Date.now() + timeoutMs, signal, false);
  }
  async #askAt(socket, path, body, deadline, signal, agent = this.#agent) {
    const text2 = JSON.stringify(body ?? {});
    try {
      const { status, answer } = await this.#post(socket, path, text2, deadline, signal, agent);
      if (status === 200) return JSON.parse(answer);
      throw refused(status, answer);
    } catch (thrown) {
      const { code = "" } = thrown;
      if (!(thrown instanceof Failure || DROPPED.has(code))) this.#forget(socket);
      throw thrown;
    }
  }
  #forget(socket) {
    if (this.#socket === socket) this.#socket = void 0;
  }
  // Not waited for to its end: what it started may have kept its output open.
  #start() {
    const [program = "optchat", ...rest] = this.#command;
    const words = [...rest, "ensure", "--json"];
    return new Promise((resolve2, reject) => {
      const child = spawn(program, words, { stdio: ["ignore", "pipe", "pipe"] });
      let out = "";
      let said = "";
      const fail = (why) => {
        clearTimeout(timer);
        reject(unreachable(`\`${[program, ...words].join(" ")}\` failed: ${why}`));
      };
      const timer = setTimeout(() => {
        child.kill();
        fail("it took too long");
      }, ENSURE_TIMEOUT_MS);
      timer.unref();
      child.stderr.on("data", (chunk) => {
        said = (said + chunk).slice(-2e3);
      });
      child.stdout.on("data", (chunk) => {
        out += chunk;
        const socket = readSocket(out);
        if (socket === void 0) return;
        clearTimeout(timer);
        child.unref();
        resolve2(socket);
      });
      child.on("error", (error) => fail(error.message));
      child.on("close", () => fail(said.trim().split("\n").at(-1) || "it named no socket"));
    });
  }
  #post(socketPath, path, text2, deadline, signal, agent) {
    return new Promise((resolve2, reject) => {
      const payload = Buffer.from(text2);
      const headers = {
        "content-type": "application/json",
        "content-length": payload.length,
        [PROTOCOL_HEADER]: String(PROTOCOL)
      };
      const options = { socketPath, path, method: "POST", headers, agent };
      const call = httpRequest(options, (response) => {
        const chunks = [];
        response.on("data", (chunk) => chunks.push(chunk));
        response.on("error", fail);
        response.on("end", () => {
          done();
          const answer = Buffer.concat(chunks).toString("utf8");
          resolve2({ status: response.statusCode ?? 0, answer });
        });
      });
      const leave = (message) => {
        fail(late(message));
        call.destroy();
      };
      const aborted = () => leave("the call was aborted");
      const bound = Math.max(1, deadline - Date.now());
      const timer = setTimeout(() => leave(`no answer to ${path} in time`), bound);
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", aborted);
      };
      function fail(error) {
        done();
        reject(error);
      }
      signal?.addEventListener("abort", aborted);
      call.on("error", fail);
      call.end(payload);
    });
  }
};
function readSocket(output) {
  for (const line of output.split("\n").slice(0, -1)) {
    try {
      const { socket } = JSON.parse(line);
      if (typeof socket === "string") return socket;
    } catch {
    }
  }
  return void 0;
}
function refused(status, answer) {
  try {
    return new Failure(JSON.parse(answer).error);
  } catch {
    return unreachable(`the coordinator answered with status ${status}`);
  }
}
async function within(promise, deadline, what) {
  let timer;
  const bound = new Promise((_, reject) => {
    timer = setTimeout(() => reject(late(what)), Math.max(1, deadline - Date.now()));
  });
  try {
    return await Promise.race([promise, bound]);
  } finally {
    clearTimeout(timer);
  }
}

// plugins/opencode/src/host.ts
import { statSync } from "node:fs";
import { homedir } from "node:os";
import { resolve } from "node:path";
var Host = class {
  directory;
  worktree;
  project;
  /** What a person's message asked last. */
  lastModel;
  #client;
  #sessions = /* @__PURE__ */ new Map();
  #agents;
  #tools = /* @__PURE__ */ new Map();
  #limits = /* @__PURE__ */ new Map();
  constructor(input) {
    this.#client = input.client;
    this.directory = input.directory;
    this.worktree = input.worktree;
    this.project = input.project;
  }
  /** The session as last told; events keep it fresh, so that a turn costs no request for it. */
  async session(id) {
    const known = this.#sessions.get(id);
    if (known) return known;
    const session = await data(this.#client.session.get({ path: { id } }));
    this.#sessions.set(id, session);
    return session;
  }
  /** Keep what was told of a session; whether it may have been archived or shown again. */
  remember(session) {
    const known = this.#sessions.get(session.id);
    this.#sessions.set(session.id, session);
    return !known || (known.time.archived ?? null) !== (session.time.archived ?? null);
  }
  forget(id) {
    this.#sessions.delete(id);
  }
  /** Every message of the session as it is in the host's store, oldest first. */
  messages(id) {
    return data(this.#client.session.messages({ path: { id } }));
  }
  /** The newest message of a session. */
  async last(id) {
    const query = { limit: 1 };
    const path = { id };
    return (await data(this.#client.session.messages({ path, query }))).at(-1);
  }
  /** The sessions that a session has sent out. */
  children(id) {
    return data(this.#client.session.children({ path: { id } }));
  }
  async busy(id) {
    const all = await data(this.#client.session.status());
    return (all[id]?.type ?? "idle") !== "idle";
  }
  /** The directory's sessions, newest first. The host stops at a hundred unless told otherwise. */
  sessions() {
    const query = { limit: 500 };
    return data(this.#client.session.list({ query }));
  }
  /** Those of the project whose title has these words. */
  titled(search) {
    const query = { search, limit: 500 };
    return data(this.#client.session.list({ query }));
  }
  /** Make a session; its id. */
  async open(fields) {
    const body = fields;
    return (await data(this.#client.session.create({ body }))).id;
  }
  /** Ask in a session, and return the answer when the session is idle. */
  prompt(id, { agent, model, text: text2 }) {
    const body = { agent, ...model && { model }, parts: [{ type: "text", text: text2 }] };
    return data(this.#client.session.prompt({ path: { id }, body }));
  }
  abort(id) {
    return data(this.#client.session.abort({ path: { id } }));
  }
  remove(id) {
    return data(this.#client.session.delete({ path: { id } }));
  }
  /** Whether the host says that it has no such session, of whatever directory; no answer is no. */
  async isGone(id) {
    const { error, response } = await this.#client.session.get({ path: { id } });
    return response?.status === 404 && error?.name === "NotFoundError";
  }
  /**
   * The file that the host keeps its sessions in, as it is now: one that was made anew in its place
   * is another store, and what it lacks was never deleted from it. "" when it is not found. An
   * import names it in the same way (`place.py`).
   */
  store() {
    const { OPENCODE_DB: named = "opencode.db", XDG_DATA_HOME: data2 } = process.env;
    const path = resolve(data2 || `${homedir()}/.local/share`, "opencode", named);
    try {
      const { ino, birthtimeMs } = statSync(path, { bigint: true });
      return `${path}:${ino}:${birthtimeMs}`;
    } catch {
      return "";
    }
  }
  /** The limits of a model; zero where the host does not know one. */
  async limit(provider, model) {
    const key = `${provider}/${model}`;
    if (!this.#limits.has(key)) {
      const answer = await data(this.#client.config.providers());
      for (const { id, models } of answer.providers)
        for (const [name, { limit }] of Object.entries(models))
          this.#limits.set(`${id}/${name}`, limit);
    }
    return this.#limits.get(key) ?? { context: 0, output: 0 };
  }
  /** Whether the host has a model; asking for another one is refused without a reason. */
  async has({ providerID, modelID }) {
    await this.limit(providerID, modelID);
    return this.#limits.has(`${providerID}/${modelID}`);
  }
  async agent(name) {
    this.#agents ??= data(this.#client.app.agents());
    this.#agents.catch(() => {
      this.#agents = void 0;
    });
    return (await this.#agents).find((agent) => agent.name === name);
  }
  /** The tools that the host's registry offers to a model, before an agent's permissions. */
  tools(provider, model) {
    const key = `${provider}/${model}`;
    const known = this.#tools.get(key);
    if (known) return known;
    const query = { provider, model };
    const asked = data(this.#client.tool.list({ query }));
    asked.catch(() => this.#tools.delete(key));
    this.#tools.set(key, asked);
    return asked;
  }
  /** Whether tools are offered that the registry does not list. */
  async servers() {
    const all = await data(this.#client.mcp.status());
    return Object.values(all).some((server2) => server2.status === "connected");
  }
  /** Tell the person: in the host's log, and on the screen where there is one. */
  async say(level, message) {
    const variant = level === "warn" ? "warning" : level;
    await Promise.allSettled([
      this.#client.app.log({ body: { service: "optchat", level, message } }),
      this.#client.tui.showToast({ body: { title: "optchat", message, variant } })
    ]);
  }
};
async function data(answer) {
  const { data: value, error } = await answer;
  if (value === void 0) throw new Error(`the host did not answer: ${JSON.stringify(error)}`);
  return value;
}

// plugins/opencode/src/state.ts
var SessionState = class {
  /** Digest of every message that the coordinator holds, by message. */
  sealed = /* @__PURE__ */ new Map();
  opens = /* @__PURE__ */ new Map();
  loaded = /* @__PURE__ */ new Set();
  begun = /* @__PURE__ */ new Set();
  measured = /* @__PURE__ */ new Map();
  /** The session has had a turn in this process, so that following it is our task. */
  active = false;
  /** When a message came in whose turn has not begun yet. */
  admittedAt = 0;
  /** The next pass through the transform is the host's compaction. */
  compacting = false;
  /** Where it was forked from; undefined until that was looked for. */
  forkOf;
  outgoing;
  /** A subagent whose requests go out as they are; asked for once. */
  plain = false;
  /** What the coordinator was told last; saying the same again would change nothing. */
  told = "";
  /** Until when this session's requests go out as they are, after a failure that took its time. */
  quietUntil = 0;
  /** How many passes have failed in a row, and the timer of the next try. */
  failures = 0;
  retry;
  /** The synchronisation that runs, and the one that waits for it. */
  running;
  waiting;
};
var KEY = /* @__PURE__ */ Symbol.for("optchat.opencode.1");
function shared() {
  const holder = globalThis;
  holder[KEY] ??= {
    connections: /* @__PURE__ */ new Map(),
    sessions: /* @__PURE__ */ new Map(),
    said: /* @__PURE__ */ new Set(),
    systems: /* @__PURE__ */ new Map(),
    calls: /* @__PURE__ */ new Map()
  };
  return holder[KEY];
}
function connectionFor(command) {
  const { connections } = shared();
  const key = command.join("\0");
  const known = connections.get(key) ?? new Connection(command);
  connections.set(key, known);
  return known;
}
function sessionState(id) {
  const { sessions } = shared();
  const known = sessions.get(id) ?? new SessionState();
  sessions.set(id, known);
  return known;
}
function isInternal({ metadata }) {
  return metadata?.optchat?.internal === true;
}

// plugins/opencode/src/notices.ts
function say(host, level, cause, message) {
  const { said } = shared();
  if (said.has(cause)) return;
  said.add(cause);
  void host.say(level, message);
}
function sayFailure(host, thrown) {
  const { code, message, hint } = describe(thrown);
  const cause = code === "timeout" ? "unreachable" : code;
  say(host, "warn", cause, `Memory is off: ${message} (${code}). Next: ${hint}`);
}

// plugins/opencode/src/options.ts
function readOptions(given) {
  const options = given ?? {};
  return {
    command: strings(options.command) ?? ["optchat"],
    startTimeoutMs: milliseconds(options.start_timeout_ms) ?? 4e3,
    assembleTimeoutMs: milliseconds(options.assemble_timeout_ms) ?? 2e3,
    syncTimeoutMs: milliseconds(options.sync_timeout_ms) ?? 1e4,
    toolTimeoutMs: milliseconds(options.tool_timeout_ms) ?? 2e4
  };
}
function strings(value) {
  if (!Array.isArray(value) || value.length === 0) return void 0;
  return value.every((item) => typeof item === "string") ? value : void 0;
}
function milliseconds(value) {
  return typeof value === "number" && value > 0 ? value : void 0;
}

// plugins/opencode/src/inject.ts
function inject(messages, whole, answer) {
  const kept = withCheckpoints(whole.slice(position(whole, answer.keep_from)), answer);
  for (const { message_id, text: text2 } of answer.news) {
    const at = position(kept, message_id);
    kept[at] = leadBy(kept[at], text2, "news");
  }
  if (answer.base && answer.placement === "message") {
    const [first] = kept;
    if (first?.info.role === "user") kept[0] = leadBy(first, answer.base, "base");
    else kept.unshift(leadBy(blank(whole), answer.base, "base"));
  }
  messages.splice(0, messages.length, ...kept);
}
function withCheckpoints(messages, { checkpoints }) {
  const left = /* @__PURE__ */ new Set();
  const kept = [...messages];
  for (const [index, { after, until, text: text2 }] of checkpoints.entries()) {
    const at = position(messages, after);
    for (const message of messages.slice(at + 1, position(messages, until))) left.add(message);
    const { info, parts } = kept[at];
    kept[at] = { info, parts: [...parts, textPart(info, text2, `checkpoint_${index}`)] };
  }
  return kept.filter((message) => !left.has(message));
}
function position(messages, id) {
  if (id === null) return 0;
  const found = messages.findIndex(({ info }) => info.id === id);
  if (found >= 0) return found;
  const message = `the coordinator named a message that is not in the request: ${id}`;
  throw new Failure({ code: "plugin", message, hint: "optchat status", retryable: false });
}
function leadBy({ info, parts }, text2, name) {
  return { info, parts: [textPart(info, text2, name), ...parts] };
}
function textPart(info, text2, name) {
  const part = {
    id: `prt_optchat_${name}`,
    messageID: info.id,
    sessionID: info.sessionID,
    type: "text",
    synthetic: true,
    text: text2
  };
  return part;
}
function blank(messages) {
  const user = messages.findLast(({ info }) => info.role === "user")?.info;
  return { info: { ...user, id: "msg_optchat_base" }, parts: [] };
}

// plugins/opencode/src/map.ts
import { createHash } from "node:crypto";

// plugins/opencode/src/names.ts
var HOST = "opencode";
var OWN_TOOLS = /* @__PURE__ */ new Set([...TOOLS, ...ALIASES]);

// plugins/opencode/src/map.ts
function mapMessages(messages, watched) {
  const roles = rolesOf(messages);
  const lastAssistant = messages.findLastIndex(({ info }) => info.role === "assistant");
  return messages.map((message, index) => {
    const { info } = message;
    const role = roles[index] ?? "other";
    const parts = role === "other" ? [] : message.parts.flatMap((part) => mapPart(part));
    const superseded = index < lastAssistant;
    const mapped = {
      id: info.id,
      role,
      digest: digest(role, parts),
      final: isFinal(message, superseded, index === messages.length - 1, watched),
      created_ms: info.time.created,
      parts
    };
    if (info.role === "user") mapped.opens = watched.opens.get(info.id) ?? null;
    else if (role === "assistant" && mapped.final)
      mapped.terminal = terminal(info, message.parts, follower(messages, index, watched));
    return mapped;
  });
}
function rolesOf(messages) {
  let person;
  let overflowed = false;
  return messages.map(({ info, parts }) => {
    if (info.role === "assistant") return info.summary ? "other" : "assistant";
    const compaction = parts.find((part) => part.type === "compaction");
    if (compaction) {
      overflowed = compaction.overflow === true;
      return "other";
    }
    if (parts.some((part) => part.type === "text" && part.metadata?.compaction_continue)) {
      return "other";
    }
    const text2 = spoken(parts);
    const replayed = overflowed && text2 === person;
    overflowed = false;
    person = text2;
    return replayed ? "other" : "user";
  });
}
function spoken(parts) {
  const texts = parts.flatMap((part) => part.type === "text" ? [part.text] : []);
  return texts.filter((text2) => !/^\[Attached \S+: .*\]$/.test(text2)).join("\n");
}
function isFinal({ info, parts }, superseded, last, watched) {
  if (info.role === "user") return !last || watched.loaded.has(info.id) || watched.settled;
  if (superseded) return true;
  const open = parts.some((part) => part.type === "tool" && isOpen(part));
  if (info.time.completed !== void 0 && !open) return true;
  return watched.settled && watched.begun.has(info.id);
}
function isOpen({ state }) {
  return state.status === "pending" || state.status === "running";
}
function follower(messages, index, watched) {
  const next = messages[index + 1];
  if (!next) return watched.settled ? "none" : "unknown";
  const compaction = next.parts.find((part) => part.type === "compaction");
  return compaction?.overflow ? "compaction" : "other";
}
function terminal(info, parts, follower2) {
  if (info.error) return info.error.name === "MessageAbortedError" ? "interrupted" : "failed";
  if (info.finish === "tool-calls" || info.finish === "unknown") return null;
  if (info.finish !== void 0) return "completed";
  if (parts.length > 0 && parts.every((part) => part.type === "tool")) return "completed";
  return follower2 === "compaction" || follower2 === "unknown" ? null : "interrupted";
}
function mapPart(part) {
  switch (part.type) {
    case "text":
      if (part.ignored) return [];
      return [textPart2(part.id, part.text, part.synthetic === true)];
    case "subtask":
      return [textPart2(part.id, part.prompt, false)];
    case "file":
      return [mapFile(part)];
    case "tool":
      return [mapTool(part)];
    default:
      return [];
  }
}
function textPart2(id, text2, synthetic) {
  return { type: "text", id, text: text2.toWellFormed(), synthetic };
}
function mapFile({ id, mime, filename, url }) {
  const file = { type: "file", id, mime, filename: filename?.toWellFormed() ?? "", url };
  if (!url.startsWith("data:")) return file;
  const comma = url.indexOf(",");
  const payload = url.slice(comma + 1);
  const base64 = url.slice(0, comma).endsWith(";base64");
  const content_bytes = base64 ? Buffer.byteLength(payload, "base64") : Buffer.byteLength(decode(payload));
  return { ...file, url: "data:", content_bytes };
}
function decode(text2) {
  try {
    return decodeURIComponent(text2);
  } catch {
    return text2;
  }
}
function mapTool({ id, tool, state }) {
  const { metadata, time } = state;
  const part = {
    type: "tool",
    id,
    tool,
    input_json: toJson(state.input),
    status: state.status,
    title: state.title?.toWellFormed() ?? "",
    started_ms: time?.start ?? null,
    ended_ms: time?.end ?? null,
    report: tool === "task",
    attachments: (state.attachments ?? []).map(mapFile)
  };
  if (OWN_TOOLS.has(tool)) return { ...part, own: ownResult(metadata?.optchat) };
  part.output = state.output?.toWellFormed() ?? null;
  part.error = state.error?.toWellFormed() ?? null;
  if (metadata?.truncated === true) {
    part.truncated = "the host truncated this output";
    if (typeof metadata.outputPath === "string") part.full_output_path = metadata.outputPath;
  }
  return part;
}
function toJson(value) {
  const whole = (_, item) => typeof item === "string" ? item.toWellFormed() : item;
  return JSON.stringify(value ?? {}, whole);
}
function ownResult(found) {
  const { refs, snapshot, sha256 } = found ?? {};
  return { refs: refs ?? [], snapshot: snapshot ?? "", sha256: sha256 ?? "" };
}
function digest(role, parts) {
  const content = parts.map((part) => {
    const { id, ...rest } = part;
    if (rest.type !== "tool") return rest;
    return { ...rest, attachments: rest.attachments?.map(({ id: own, ...file }) => file) };
  });
  return createHash("sha256").update(JSON.stringify([role, content])).digest("hex");
}

// plugins/opencode/src/sizes.ts
var NOTHING = { letters: 0, spaces: 0, symbols: 0, other_bytes: 0, media: 0 };
function add(a, b) {
  return {
    letters: a.letters + b.letters,
    spaces: a.spaces + b.spaces,
    symbols: a.symbols + b.symbols,
    other_bytes: a.other_bytes + b.other_bytes,
    media: a.media + b.media
  };
}
function exceeds(a, b) {
  return a.letters > b.letters || a.spaces > b.spaces || a.symbols > b.symbols || a.other_bytes > b.other_bytes || a.media > b.media;
}
function measure(text2) {
  let letters = 0;
  let spaces = 0;
  let symbols = 0;
  let other_bytes = 0;
  for (let i = 0; i < text2.length; i++) {
    const code = text2.charCodeAt(i);
    if (code > 127) {
      other_bytes += code < 2048 || code >= 55296 && code <= 57343 ? 2 : 3;
    } else if ((code | 32) >= 97 && (code | 32) <= 122) letters++;
    else if (code === 32 || code >= 9 && code <= 13 && code !== 11 && code !== 12)
      spaces++;
    else symbols++;
  }
  return { letters, spaces, symbols, other_bytes, media: 0 };
}
function measureMessages(messages, known) {
  return messages.map((message) => {
    const length = message.parts.reduce((sum, part) => sum + lengthOf(part), 0);
    const before = known.get(message.info.id);
    if (before?.length === length) return before.sizes;
    const sizes = measureMessage(message);
    known.set(message.info.id, { length, sizes });
    return sizes;
  });
}
function lengthOf(part) {
  if (part.type === "text" || part.type === "reasoning") return 1 + part.text.length;
  if (part.type !== "tool" || part.state.time?.compacted) return 1;
  return 1 + part.state.status.length + (part.state.output ?? part.state.error ?? "").length;
}
function measureMessage({ info, parts }) {
  if (info.role === "assistant" && info.error && !survives(info.error.name, parts)) return NOTHING;
  return parts.map((part) => measurePart(part, info.role)).reduce(add, NOTHING);
}
function survives(error, parts) {
  const content = parts.some((part) => part.type !== "step-start" && part.type !== "reasoning");
  return error === "MessageAbortedError" && content;
}
function measurePart(part, role) {
  switch (part.type) {
    case "text":
      return role === "user" && part.ignored ? NOTHING : measure(part.text);
    case "reasoning":
      return measure(part.text);
    case "tool":
      return measureTool(part);
    case "file":
      return inlined(part.mime) ? NOTHING : { ...NOTHING, media: 1 };
    case "compaction":
      return measure("What did we do so far?");
    case "subtask":
      return measure("The following tool was executed by the user");
    default:
      return NOTHING;
  }
}
function measureTool({ tool, state }) {
  const call = measure(tool + JSON.stringify(state.input ?? {}));
  if (state.status === "error") return add(call, measure(state.error ?? ""));
  if (state.status !== "completed") return add(call, measure("[Tool execution was interrupted]"));
  if (state.time?.compacted) return add(call, measure("[Old tool result content cleared]"));
  const media = (state.attachments ?? []).filter((file) => !inlined(file.mime)).length;
  return add(add(call, measure(state.output ?? "")), { ...NOTHING, media });
}
function inlined(mime) {
  return mime === "text/plain" || mime === "application/x-directory";
}

// plugins/opencode/src/overhead.ts
var PROMPT = { ...NOTHING, letters: 9e3, spaces: 2e3, symbols: 1200 };
var ENVIRONMENT = { ...NOTHING, letters: 1200, spaces: 300, symbols: 300 };
async function overheadOf(host, session, user) {
  const { providerID, modelID } = user.model;
  const [agent, offered, servers] = await Promise.all([
    host.agent(user.agent),
    host.tools(providerID, modelID),
    host.servers()
  ]);
  const rules = [...agent?.permission ?? [], ...session.permission ?? []];
  const tools = offered.filter(({ id }) => id !== "invalid" && user.tools?.[id] !== false && !denied(id, rules)).map(({ id: name, description, parameters }) => ({ name, description, parameters })).map((tool) => measure(JSON.stringify({ type: "function", function: tool }))).reduce(add, NOTHING);
  const seen = shared().systems.get(systemKey(host, user));
  const guess = agent?.prompt ? add(measure(agent.prompt), ENVIRONMENT) : PROMPT;
  const known = seen !== void 0 && !servers;
  return { sizes: add(seen ?? guess, tools), tools, known };
}
function learnSystem(host, user, sizes) {
  shared().systems.set(systemKey(host, user), sizes);
}
function systemKey(host, { agent, model }) {
  return [host.directory, agent, model.providerID, model.modelID].join("\0");
}
function denied(tool, rules) {
  const edits = tool === "edit" || tool === "write" || tool === "apply_patch";
  const last = rules.findLast(({ permission }) => matches(edits ? "edit" : tool, permission));
  return last?.pattern === "*" && last.action === "deny";
}
function matches(name, pattern) {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&");
  const expression = escaped.replaceAll("*", ".*").replaceAll("?", ".");
  return new RegExp(`^${expression}$`, "s").test(name);
}

// plugins/opencode/src/restore.ts
function isCompacted(messages) {
  return messages.some(({ parts }) => parts.some(({ type }) => type === "compaction"));
}
function restore(given, stored) {
  const sent = new Map(given.map((message) => [message.info.id, message]));
  const history = stored.slice(0, stored.findLastIndex(({ info }) => sent.has(info.id)) + 1);
  const roles = rolesOf(history);
  const whole = [];
  history.forEach((message, index) => {
    if (roles[index] !== "other" || isContinue(message) && isAnswer(whole.at(-1))) {
      whole.push(sent.get(message.info.id) ?? message);
    } else moveUnsaved(sent.get(message.info.id), message, whole);
  });
  return { whole, history };
}
function isContinue({ parts }) {
  return parts.some((part) => part.type === "text" && part.metadata?.compaction_continue === true);
}
function isAnswer(message) {
  if (message?.info.role !== "assistant") return false;
  const { finish } = message.info;
  return finish !== void 0 && finish !== "tool-calls" && finish !== "unknown";
}
function moveUnsaved(sent, stored, whole) {
  const saved = new Set(stored.parts.map(({ id }) => id));
  const unsaved = sent?.parts.filter(({ id }) => !saved.has(id)) ?? [];
  const last = whole.findLastIndex(({ info }) => info.role === "user");
  const user = whole[last];
  if (user && unsaved.length > 0) {
    whole[last] = { info: user.info, parts: [...user.parts, ...unsaved] };
  }
}

// plugins/opencode/src/session.ts
var GLOBAL = "global";
var CANDIDATES = 20;
function sessionInfo(host, session, state) {
  return {
    host: HOST,
    id: session.id,
    ...projectOf(host, session),
    directory: session.directory,
    title: session.title,
    created_ms: session.time.created,
    updated_ms: session.time.updated,
    parent_id: session.parentID ?? null,
    fork_of: state.forkOf ?? null,
    archived: session.time.archived !== void 0,
    worktree: session.projectID === GLOBAL ? null : host.worktree,
    store: host.store()
  };
}
function projectOf(host, { projectID, directory } = { projectID: host.project.id, directory: host.directory }) {
  if (projectID !== GLOBAL)
    return { project_key: projectID, project_directory: host.project.worktree };
  return { project_key: `dir:${directory}`, project_directory: directory };
}
async function rootOf(host, id) {
  const { parentID } = await host.session(id);
  return parentID === void 0 ? id : rootOf(host, parentID);
}
async function findOrigin(host, session, messages) {
  if (messages.length === 0) return void 0;
  const copied = messages.filter(({ info }) => info.time.created < session.time.created);
  const [first] = copied;
  if (!first) return null;
  const title = session.title.replace(/ \(fork #1\)$/, "");
  const previous = title.replace(/ \(fork #(\d+)\)$/, (_, n) => ` (fork #${Number(n) - 1})`);
  const candidates = (await host.sessions()).filter(({ id, parentID }) => id !== session.id && parentID === void 0).filter(({ time }) => time.created < session.time.created).filter(({ time }) => time.updated >= first.info.time.created).sort((a, b) => Number(b.title === previous) - Number(a.title === previous));
  let best;
  for (const { id } of candidates.slice(0, CANDIDATES)) {
    const theirs = await host.messages(id);
    const differs = copied.findIndex((message, index) => !isCopy(message, theirs[index]));
    if (differs < 0) return id;
    if (differs > (best?.shared ?? 0)) best = { id, shared: differs };
  }
  return best?.id ?? null;
}
function isCopy({ info }, original) {
  return original?.info.time.created === info.time.created && original.info.role === info.role;
}

// plugins/opencode/src/outgoing.ts
var SLOW_MS = 1e3;
var QUIET_MS = 5e3;
var UNEXPLAINED = {
  code: "stopped",
  message: "memory is not ready",
  hint: "optchat status",
  retryable: true
};
var Requests = class {
  #host;
  #connection;
  #options;
  #sync;
  #presence;
  constructor(host, connection, options, sync, presence) {
    this.#host = host;
    this.#connection = connection;
    this.#options = options;
    this.#sync = sync;
    this.#presence = presence;
  }
  /** Give the messages about to be sent their memory, in place. */
  async assemble(messages) {
    const id = messages[0]?.info.sessionID;
    if (id === void 0) return;
    const state = sessionState(id);
    state.admittedAt = 0;
    state.outgoing = void 0;
    const { compacting } = state;
    state.compacting = false;
    const session = await this.#host.session(id);
    const user = messages.findLast(({ info }) => info.role === "user")?.info;
    if (user === void 0) return;
    if (isInternal(session) || session.parentID !== void 0) {
      if (!compacting) await this.#subagent(state, session, user, messages);
      return;
    }
    if (compacting) {
      await this.#compaction(state, session, user, messages);
      return;
    }
    state.active = true;
    for (const { info } of messages) if (info.role === "user") state.loaded.add(info.id);
    if (Date.now() < state.quietUntil) return;
    const begun = Date.now();
    try {
      await this.#connection.ready(this.#options.startTimeoutMs, this.#options.assembleTimeoutMs);
      if (!state.sealed.has(user.id)) await this.#admit(id);
      const { whole, history } = isCompacted(messages) ? restore(messages, await this.#host.messages(id)) : { whole: messages, history: messages };
      const { request, outgoing } = await this.#describe(state, session, user, whole);
      request.usage = usageOf(history, user, request.model.context_tokens);
      const answer = await this.#connection.ask(
        "/v1/assemble",
        request,
        this.#options.assembleTimeoutMs
      );
      state.outgoing = this.#apply(answer, outgoing, messages, whole);
    } catch (thrown) {
      const now = Date.now();
      if (now - begun > SLOW_MS) state.quietUntil = now + QUIET_MS;
      sayFailure(this.#host, thrown);
      this.#sync.again(id);
    }
  }
  // A subagent has its parent's view, if that is configured; its own transcript is never told.
  async #subagent(state, session, user, messages) {
    if (session.parentID === void 0 || state.plain) return;
    try {
      const { request, outgoing } = await this.#describe(state, session, user, messages);
      request.session.parent_id = await rootOf(this.#host, session.id);
      const bound = this.#options.assembleTimeoutMs;
      const answer = await this.#connection.ask("/v1/assemble", request, bound);
      state.plain = answer.state === "native";
      state.outgoing = this.#apply(answer, outgoing, messages, messages);
    } catch (thrown) {
      state.plain = true;
      sayFailure(this.#host, thrown);
    }
  }
  // The host summarises all that it holds, which may be many windows. Given what memory would send
  // of this session instead, it fits; the summary itself is never read by us.
  async #compaction(state, session, user, messages) {
    try {
      const stored = await this.#host.messages(session.id);
      const { whole } = restore(stored, stored);
      const { request } = await this.#describe(state, session, user, whole);
      request.purpose = "compaction";
      const bound = this.#options.assembleTimeoutMs;
      const answer = await this.#connection.ask("/v1/assemble", request, bound);
      if (answer.state === "ready") inject(messages, whole, answer);
    } catch (thrown) {
      sayFailure(this.#host, thrown);
    }
  }
  /** Put the base behind the host's instructions, once these show that it is a main request. */
  async system(id, system) {
    const outgoing = sessionState(id).outgoing;
    if (!outgoing || !await this.#isMain(system)) return;
    const seen = measure(system.join("\n"));
    learnSystem(this.#host, outgoing.user, seen);
    if (outgoing.base) system.splice(1, 0, outgoing.base);
    outgoing.delivered = true;
    const overhead = add(seen, outgoing.tools);
    if (outgoing.stop || !exceeds(overhead, outgoing.overhead)) return;
    outgoing.overhead = overhead;
    await this.#check(outgoing);
  }
  /** End the turn if its request must not be sent. The last hook that knows what it is for. */
  settle(id, agent) {
    const outgoing = sessionState(id).outgoing;
    if (!outgoing || agent === "title" || agent === "compaction") return;
    if (outgoing.stop) throw new Stop(outgoing.stop);
    if (!outgoing.base || outgoing.delivered) return;
    const message = "the host's instructions were not recognised, so that memory found no place";
    throw new Stop({ code: "plugin", message, hint: "optchat status", retryable: false });
  }
  // A pass that is under way is waited for as well, and the bound is for both.
  async #admit(id) {
    const deadline = Date.now() + this.#options.syncTimeoutMs;
    const compared = this.#presence.now();
    await within(this.#sync.now(id), deadline, "the coordinator did not take the message in time");
    await compared;
  }
  async #describe(state, session, user, messages) {
    const { providerID, modelID } = user.model;
    const [limit, overhead] = await Promise.all([
      this.#host.limit(providerID, modelID),
      overheadOf(this.#host, session, user)
    ]);
    const roles = rolesOf(messages);
    const sizes = measureMessages(messages, state.measured);
    const request = {
      session: sessionInfo(this.#host, session, state),
      model: {
        provider: providerID,
        id: modelID,
        context_tokens: limit.context,
        output_tokens: limit.output,
        input_tokens: limit.input ?? null
      },
      agent: user.agent,
      shape: messages.map((message, index) => ({
        id: message.info.id,
        role: roles[index] ?? "other",
        sizes: sizes[index] ?? NOTHING
      })),
      overhead: overhead.sizes,
      overhead_known: overhead.known
    };
    const outgoing = {
      session: request.session,
      model: request.model,
      user,
      base: "",
      delivered: false,
      overhead: overhead.sizes,
      tools: overhead.tools
    };
    return { request, outgoing };
  }
  #apply(answer, outgoing, messages, whole) {
    if (answer.notice) say(this.#host, "info", answer.notice, answer.notice);
    if (answer.state === "native") return void 0;
    if (answer.state === "stop") return { ...outgoing, stop: answer.error ?? UNEXPLAINED };
    inject(messages, whole, answer);
    return { ...outgoing, base: answer.placement === "system" ? answer.base : "" };
  }
  // The title's request passes the same hook, at any time, and nothing but its text tells. A main
  // request describes the environment, unless another plugin has taken that out.
  async #isMain([first = ""]) {
    if (first.includes("\n<env>\n")) return true;
    const title = await this.#host.agent("title");
    return !title?.prompt || !first.startsWith(title.prompt);
  }
  async #check(outgoing) {
    const { session, model, user, overhead } = outgoing;
    const body = { session, model, agent: user.agent, overhead };
    try {
      const bound = this.#options.assembleTimeoutMs;
      const { error } = await this.#connection.ask("/v1/check", body, bound);
      if (error) outgoing.stop = error;
    } catch (thrown) {
      const { code, message, hint } = describe(thrown);
      const text2 = `A request went out unchecked: ${message} (${code}). Next: ${hint}`;
      say(this.#host, "warn", `check ${code}`, text2);
    }
  }
};
function usageOf(messages, { model }, context) {
  for (const { info, parts } of messages.toReversed()) {
    const refused2 = parts.some((part) => part.type === "compaction" && part.overflow);
    if (refused2 && context > 0) return { message_id: info.id, input_tokens: context };
    if (info.role !== "assistant" || info.summary) continue;
    const { input, cache } = info.tokens;
    const input_tokens = input + cache.read + cache.write;
    if (input_tokens === 0) continue;
    const same = info.providerID === model.providerID && info.modelID === model.modelID;
    return same ? { message_id: info.id, input_tokens } : null;
  }
  return null;
}

// plugins/opencode/src/presence.ts
var ASKED = 20;
var Presence = class {
  #host;
  #connection;
  #options;
  /** Sessions of other directories, of which the host has said that it has them. */
  #elsewhere = /* @__PURE__ */ new Set();
  #running;
  constructor(host, connection, options) {
    this.#host = host;
    this.#connection = connection;
    this.#options = options;
  }
  /** Compare, or wait for a comparison that is under way. What fails is done at the next one. */
  now() {
    this.#running ??= this.#pass().catch(() => void 0).finally(() => {
      this.#running = void 0;
    });
    return this.#running;
  }
  /** The host says that a session was deleted: look whether that is so. */
  async deleted(id) {
    this.#elsewhere.delete(id);
    await this.#running;
    await this.now();
  }
  async #pass() {
    const store = this.#host.store();
    if (store === "") return;
    const listed = (await this.#host.sessions()).map(({ id }) => id);
    const ids = [.../* @__PURE__ */ new Set([...listed, ...this.#elsewhere])];
    const { project_key } = projectOf(this.#host);
    const request = { host: HOST, store, project_key, ids, gone: [] };
    const bound = this.#options.assembleTimeoutMs;
    const { missing } = await this.#connection.ask("/v1/present", request, bound);
    const gone = [];
    for (const id of missing.slice(0, ASKED)) {
      if (await this.#host.isGone(id)) gone.push(id);
      else this.#elsewhere.add(id);
    }
    if (gone.length > 0) await this.#connection.ask("/v1/present", { ...request, gone }, bound);
  }
};

// plugins/opencode/src/call.ts
var OWN_PAUSE_MS = 1e4;
var RATE = /rate.?limit|too.?many|quota|429/i;
var Call = class {
  work;
  /** Settled when the call is given up before the host has answered. */
  givenUp;
  #giveUp;
  constructor(work) {
    this.work = work;
    this.givenUp = new Promise((resolve2) => {
      this.#giveUp = resolve2;
    });
  }
  giveUp(outcome, detail, retry_after_ms = null) {
    this.#giveUp({ id: this.work.id, outcome, detail, retry_after_ms });
  }
  /** The host would try for ever; the coordinator knows better when to ask again. */
  retried({ type, message = "", next = 0 }) {
    if (type !== "retry") return;
    const pause2 = next - Date.now();
    const asked = pause2 > OWN_PAUSE_MS ? pause2 : null;
    if (RATE.test(message)) this.giveUp("rate_limited", "", asked);
    else this.giveUp("unavailable", "the provider failed", asked);
  }
  /**
   * Put the call in the place of the session's own messages.
   *
   * The session holds a placeholder only, so that no transcript's text is stored a second time.
   */
  replace(messages) {
    const asked = messages.findLast(({ info }) => info.role === "user")?.info;
    if (asked?.role !== "user") return;
    const made = this.work.messages.map(({ role, text: text2 }, index) => {
      const id = `${asked.id}_${index}`;
      const info = role === "user" ? { ...asked, id } : answered(asked, id);
      return { info, parts: [{ id: `${id}_text`, type: "text", text: text2 }] };
    });
    messages.splice(0, messages.length, ...made);
  }
  instruct(system) {
    system.splice(0, system.length, this.work.system);
  }
  limit(params) {
    const { output_tokens_max } = this.work;
    if (params.maxOutputTokens !== void 0)
      params.maxOutputTokens = Math.min(params.maxOutputTokens, output_tokens_max);
  }
};
function answered({ sessionID, model, time }, id) {
  const { providerID, modelID } = model;
  const tokens = { input: 0, output: 0, reasoning: 0, cache: { read: 0, write: 0 } };
  const ended2 = { created: time.created, completed: time.created };
  const said = { parentID: id, providerID, modelID, finish: "stop", tokens, time: ended2 };
  return { id, sessionID, role: "assistant", ...said };
}

// plugins/opencode/src/outcome.ts
var BY_NAME = {
  ProviderAuthError: "denied",
  ContextOverflowError: "rejected",
  MessageOutputLengthError: "cut",
  ContentFilterError: "filtered",
  MessageAbortedError: "unavailable"
};
function outcomeOf({ id }, { info, parts }) {
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
  const text2 = parts.map((part) => part.type === "text" ? part.text : "").join("");
  if (text2.trim()) return { ...base, outcome: "answer", text: text2 };
  const thought = parts.some((part) => part.type === "reasoning");
  return { ...base, outcome: thought ? "reasoning_only" : "empty" };
}
function failed({ name, data: data2 }) {
  const status = data2?.statusCode;
  const detail = status === void 0 ? name : `${name} ${status}`;
  return { outcome: BY_NAME[name] ?? byStatus(status), detail };
}
function byStatus(status) {
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
  return status !== void 0 && status < 500 ? "rejected" : "unavailable";
}

// plugins/opencode/src/summaries.ts
var AGENT = "optchat-summary";
var TITLE = "optchat summary";
var PARENT = "ses_optchat";
var PLACEHOLDER = "A summary for optchat; its text is in the request only.";
var WAIT_MS = 1e4;
var ANSWER_MS = 15e3;
var PAUSE_MS = 2e3;
var EARLY_MS = 1e3;
var SETTLE_MS = 500;
var LEFT_OVER_MS = 72e5;
var Summaries = class {
  #host;
  #connection;
  #stop = new AbortController();
  #small;
  #running;
  #current;
  constructor(host, connection) {
    this.#host = host;
    this.#connection = connection;
  }
  /**
   * Add the agent that the calls are made with, and learn which small model the person has named.
   *
   * A hidden primary one: subagents are listed to the model in the definition of a tool.
   */
  configure(config) {
    this.#small = config.small_model;
    const agent = { mode: "primary", hidden: true, prompt: TITLE, permission: { "*": "deny" } };
    config.agent = { ...config.agent, [AGENT]: agent };
  }
  start() {
    this.#running = this.#run();
  }
  /** Give up what is under way and take its session away, within a bound. */
  async stop(timeoutMs) {
    this.#stop.abort();
    this.#current?.giveUp("unavailable", "the host was closed");
    await Promise.race([this.#running, pause(timeoutMs)]);
  }
  async #run() {
    const { signal } = this.#stop;
    await this.#connection.ensure().catch(() => void 0);
    await this.#sweep().catch(() => void 0);
    while (!signal.aborted) {
      const asked = Date.now();
      const next = await this.#next().catch(() => void 0);
      if (next?.wanted === false) return;
      if (next?.work) await this.#serve(next.work);
      else if (Date.now() - asked < PAUSE_MS) await pause(PAUSE_MS, signal);
    }
  }
  #next() {
    const body = { host: HOST, instance: String(process.pid), ...projectOf(this.#host) };
    const asked = { ...body, directory: this.#host.directory, wait_ms: WAIT_MS };
    return this.#connection.askIfRunning("/v1/work", asked, ANSWER_MS, this.#stop.signal);
  }
  async #serve(work) {
    const done = await this.#make(work);
    await this.#connection.askIfRunning("/v1/work-done", done, ANSWER_MS).catch(() => void 0);
  }
  async #make(work) {
    const host = this.#host;
    const { calls } = shared();
    let id;
    try {
      const model = nameOf(work.model ?? this.#small) ?? host.lastModel;
      if (model && !await host.has(model)) {
        const { providerID, modelID } = model;
        return unsent(work, "gone", `the host has no model ${providerID}/${modelID}`);
      }
      id = await host.open({
        title: TITLE,
        parentID: PARENT,
        metadata: { optchat: { internal: true, pid: process.pid } },
        permission: [{ permission: "*", pattern: "*", action: "deny" }]
      });
      const call = new Call(work);
      this.#current = call;
      calls.set(id, call);
      return await this.#ask(id, call, model);
    } catch {
      return unsent(work, "unavailable", "the host could not make a session for it");
    } finally {
      this.#current = void 0;
      if (id !== void 0) {
        calls.delete(id);
        await host.remove(id).catch(() => void 0);
      }
    }
  }
  async #ask(id, call, model) {
    const { work } = call;
    const late2 = setTimeout(
      () => call.giveUp("timed_out", "the host's model did not answer in time"),
      Math.max(1, work.timeout_ms - EARLY_MS)
    );
    late2.unref();
    if (this.#stop.signal.aborted) call.giveUp("unavailable", "the host was closed");
    let ended2 = false;
    const answer = this.#host.prompt(id, { agent: AGENT, model, text: PLACEHOLDER }).then(
      (message) => outcomeOf(work, message),
      () => unsent(work, "unavailable", "the host refused the call")
    ).finally(() => {
      ended2 = true;
    });
    const done = await Promise.race([answer, call.givenUp]);
    clearTimeout(late2);
    if (!ended2) {
      await this.#host.abort(id).catch(() => void 0);
      await Promise.race([answer, pause(SETTLE_MS)]);
    }
    return done;
  }
  /** Delete what a process left that is no more. */
  async #sweep() {
    for (const session of await this.#host.titled(TITLE))
      if (isInternal(session) && isLeftOver(session)) await this.#host.remove(session.id);
  }
};
function isOneShot(words = process.argv) {
  return words.slice(1).includes("run");
}
function nameOf(model) {
  const [, providerID, modelID] = model?.match(/^([^/]+)\/(.+)$/) ?? [];
  return providerID && modelID ? { providerID, modelID } : void 0;
}
function unsent({ id }, outcome, detail) {
  return { id, outcome, sent: false, detail };
}
function isLeftOver({ metadata, time }) {
  const now = Date.now();
  if (now - time.created > LEFT_OVER_MS) return true;
  const { pid = 0 } = metadata?.optchat ?? {};
  if (pid === process.pid) return time.created < now - process.uptime() * 1e3;
  try {
    process.kill(pid, 0);
    return false;
  } catch (thrown) {
    return thrown.code === "ESRCH";
  }
}
function pause(ms, signal) {
  return new Promise((resolve2) => {
    const timer = setTimeout(resolve2, ms);
    timer.unref();
    signal?.addEventListener("abort", () => resolve2(), { once: true });
  });
}

// plugins/opencode/src/sync.ts
var CONTENT_CHARS = 8e6;
var SETTLE_MS2 = 150;
var ADMISSION_MS = 1e4;
var RETRY_MS = { first: 1e3, most: 3e4 };
var Sync = class {
  #host;
  #connection;
  #options;
  constructor(host, connection, options) {
    this.#host = host;
    this.#connection = connection;
    this.#options = options;
  }
  /** Return when a pass that began after this call is done. */
  now(id) {
    const state = sessionState(id);
    if (state.waiting) return state.waiting;
    if (!state.running) return this.#begin(id, state);
    state.waiting = state.running.catch(() => void 0).then(() => {
      state.waiting = void 0;
      return this.#begin(id, state);
    });
    return state.waiting;
  }
  /** Have a pass made in the background, for a session that this process follows. */
  wake(id) {
    const state = shared().sessions.get(id);
    if (!state?.active) return;
    this.now(id).then(
      () => {
        state.failures = 0;
      },
      (thrown) => {
        sayFailure(this.#host, thrown);
        this.again(id);
      }
    );
  }
  /** Tell what the host says of a session besides its messages, if the coordinator knows it. */
  async follow(session) {
    const info = sessionInfo(this.#host, session, sessionState(session.id));
    await this.#connection.ask("/v1/follow", { session: info }, this.#options.syncTimeoutMs);
  }
  /** Try later what failed: without it a session's last turn would wait for a next one to be told. */
  again(id) {
    const state = sessionState(id);
    if (state.retry !== void 0) return;
    const wait = Math.min(RETRY_MS.first * 2 ** state.failures++, RETRY_MS.most);
    state.retry = setTimeout(() => {
      state.retry = void 0;
      this.wake(id);
    }, wait);
    state.retry.unref();
  }
  /** Wait for what is under way, within a bound. */
  async flush(timeoutMs) {
    const pending = [...shared().sessions.values()].flatMap((s) => [s.running, s.waiting]);
    await Promise.race([Promise.allSettled(pending), delay(timeoutMs)]);
  }
  #begin(id, state) {
    const running = this.#pass(id, state).finally(() => {
      state.running = void 0;
    });
    state.running = running;
    return running;
  }
  async #pass(id, state) {
    const host = this.#host;
    const session = await host.session(id);
    if (await this.#isPrivate(session)) return;
    const { observed_ms, messages, idle } = await this.#look(id, state);
    if (state.forkOf === void 0) {
      state.forkOf = await findOrigin(host, session, messages);
      if (state.forkOf) await this.now(state.forkOf).catch(() => void 0);
    }
    const mapped = mapMessages(messages, {
      opens: state.opens,
      loaded: state.loaded,
      begun: state.begun,
      settled: idle
    });
    const info = sessionInfo(host, session, state);
    await this.#send({ session: info, messages: mapped, idle, observed_ms }, state);
  }
  // A subagent's content is its parent's business, unless the coordinator takes it in.
  async #isPrivate(session) {
    if (isInternal(session)) return true;
    if (session.parentID === void 0) return false;
    const health = await this.#connection.ask("/v1/health", void 0, this.#options.syncTimeoutMs);
    return !health.subagents;
  }
  // The end of a failed or aborted turn is written after the session has been called idle.
  async #look(id, state) {
    const first = await this.#read(id, state);
    if (!first.idle || ended(first.messages)) return first;
    await delay(SETTLE_MS2);
    return this.#read(id, state);
  }
  async #read(id, state) {
    const observed_ms = Date.now();
    const [messages, idle] = await Promise.all([this.#host.messages(id), this.#idle(id, state)]);
    return { observed_ms, messages: living(messages, await this.#revert(id)), idle };
  }
  // What was told of going back may be undone by now, in another process too.
  async #revert(id) {
    if (!(await this.#host.session(id)).revert) return void 0;
    this.#host.forget(id);
    return (await this.#host.session(id)).revert;
  }
  // Between a message's arrival and its turn's beginning the host still calls the session idle.
  // One that this process does not run may be at work in another.
  async #idle(id, state) {
    if (!state.active) return false;
    if (Date.now() - state.admittedAt < ADMISSION_MS) return false;
    return !await this.#host.busy(id);
  }
  async #send(request, state) {
    const telling = fingerprint(request);
    if (telling === state.told) return;
    state.told = "";
    const { messages } = request;
    let wanted = new Set(
      messages.filter((m) => m.final && state.sealed.get(m.id) !== m.digest).map((m) => m.id)
    );
    for (let before = Number.POSITIVE_INFINITY; ; before = wanted.size) {
      const body = { ...request, messages: withContent(messages, wanted) };
      const answer = await this.#connection.ask("/v1/sync", body, this.#options.syncTimeoutMs);
      const need = new Set(answer.need);
      for (const message of messages)
        if (message.final && !need.has(message.id)) state.sealed.set(message.id, message.digest);
        else state.sealed.delete(message.id);
      if (answer.disabled) {
        say(this.#host, "warn", `disabled ${request.session.id}`, answer.disabled);
      }
      if (answer.notice) {
        const [cause = ""] = answer.notice.split(":");
        say(this.#host, "warn", cause, answer.notice);
      }
      if (need.size === 0) state.told = telling;
      if (need.size === 0 || need.size >= before) break;
      wanted = need;
    }
    const members = new Set(messages.map((message) => message.id));
    for (const id of state.sealed.keys()) if (!members.has(id)) state.sealed.delete(id);
  }
};
function fingerprint({ session, messages, idle }) {
  const members = messages.map(({ parts, ...member }) => member);
  return JSON.stringify([{ ...session, updated_ms: 0 }, members, idle]);
}
function withContent(messages, wanted) {
  let left = CONTENT_CHARS;
  return messages.map((message) => {
    if (left <= 0 || !message.final || !wanted.has(message.id)) return { ...message, parts: null };
    left -= JSON.stringify(message.parts).length;
    return message;
  });
}
function living(messages, revert) {
  const at = messages.findIndex(({ info }) => info.id === revert?.messageID);
  const message = messages[at];
  if (!message || !revert) return messages;
  const kept = messages.slice(0, at);
  if (revert.partID === void 0) return kept;
  const part = message.parts.findIndex(({ id }) => id === revert.partID);
  return [...kept, { ...message, parts: part < 0 ? message.parts : message.parts.slice(0, part) }];
}
function ended(messages) {
  const info = messages.at(-1)?.info;
  return info?.role === "assistant" && info.time.completed !== void 0;
}
function delay(ms) {
  return new Promise((resolve2) => {
    setTimeout(resolve2, ms).unref();
  });
}

// plugins/opencode/src/definition.ts
var text = (description) => ({ type: "string", description });
var number = (description) => ({ type: "integer", description });
var flag = (description) => ({ type: "boolean", description });
var list = (description) => ({
  type: "array",
  description,
  items: { type: "string" }
});

// plugins/opencode/src/aliases.ts
var SESSION = text("Session id, or s12; the current one if left out");
var MESSAGE = text("Message id or reference, as it is shown");
var ALIAS_DEFINITIONS = {
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
      deepCursor: text("Where to go on, from the answer before")
    },
    required: ["query"]
  },
  recall_get: {
    description: "Read one message whole. The same as memory_messages with ref.",
    properties: { sessionID: SESSION, messageID: MESSAGE },
    required: ["messageID"]
  },
  recall_context: {
    description: "Read the messages around one. The same as memory_messages with ref.",
    properties: {
      sessionID: SESSION,
      messageID: MESSAGE,
      window: number("Messages on either side"),
      before: number("Messages before"),
      after: number("Messages after")
    },
    required: ["messageID"]
  },
  recall_messages: {
    description: "Read a session's messages, newest first. The same as memory_messages.",
    properties: {
      sessionID: SESSION,
      limit: number("Messages on a page"),
      cursor: text("Where to go on, from the answer before"),
      role: text("user or assistant"),
      query: text("Words that a message must hold")
    },
    required: []
  },
  recall_sessions: {
    description: "List sessions. The same as memory_sessions.",
    properties: {
      scope: text("project or global"),
      parentID: text("Only the subagents of this session; current for this one"),
      search: text("Words of title or directory"),
      since: text("Only with activity after this time"),
      until: text("Only with activity before this time"),
      limit: number("The most sessions")
    },
    required: []
  },
  search_memory_tree: {
    description: "Open a node of the memory, or search it: memory_zoom and memory_search.",
    properties: {
      node_id: text("A reference as it stands at the start of a line"),
      query: text("Words to find")
    },
    required: []
  }
};

// plugins/opencode/src/tools.ts
var CURSOR = text("Where to go on, from the answer before");
var REF = text("A reference as it stands at the start of a line");
var DAY = "a date or time, such as 2026-03-01 or 2026-03-01T14:00";
var CHILDREN = 20;
var DEFINITIONS = {
  memory_zoom: {
    description: "Open a reference from memory. A range opens into its two halves, a publication into the turn it came from, a single record into its exact original, page by page.",
    properties: { ref: REF, cursor: CURSOR, max_tokens: number("The most to return at once") },
    required: ["ref"]
  },
  memory_search: {
    description: 'Search the originals and summaries of earlier conversations for words, identifiers or "exact phrases". Finds details that no summary mentions. Hits are excerpts with their references: open one before relying on it.',
    properties: {
      query: text(
        "Words to find; quotes keep a phrase together, -word leaves out. Filters may stand in it: role:user tool:bash file:src/x.py outcome:error evidence:human last:7d group:session"
      ),
      session: text("Only this conversation, such as s12, or current; else all but this one"),
      before: text(`Only before ${DAY}`),
      after: text(`Only after ${DAY}`),
      cursor: CURSOR
    },
    required: ["query"]
  },
  memory_date: {
    description: "Tell when what a reference stands for was said or done.",
    properties: { ref: REF },
    required: ["ref"]
  },
  memory_sessions: {
    description: "List the conversations that share this memory, the most recent first, with their families.",
    properties: {
      search: text("Words of title or directory"),
      parent: text("Only subagents of this one, such as s12, or current"),
      since: text("Only if active after a date or time"),
      until: text("Only if active before it"),
      archived: flag("Archived ones too"),
      files: flag("Name files touched"),
      tools: flag("Name tools used"),
      cursor: CURSOR
    },
    required: []
  },
  memory_messages: {
    description: "Read a conversation message by message, newest first; or, with ref, one message whole with those around it.",
    properties: {
      session: text("Such as s12; this one if left out"),
      role: text("Only user or assistant"),
      query: text("Only with all these words"),
      limit: number("Messages on a page"),
      ref: text("The message's reference, or one in it"),
      before: number("Messages before it"),
      after: number("Messages after it"),
      cursor: CURSOR
    },
    required: []
  }
};
var Tools = class {
  /** As the host registers them; what is added before its first request is registered as well. */
  registered;
  #host;
  #connection;
  #options;
  constructor(host, connection, options) {
    this.#host = host;
    this.#connection = connection;
    this.#options = options;
    this.registered = this.#made(DEFINITIONS);
  }
  /** Offer the names of other systems too, if the coordinator answers to them. */
  async learn() {
    const health = await this.#connection.ask("/v1/health", void 0, this.#options.toolTimeoutMs);
    if (health.aliases) Object.assign(this.registered, this.#made(ALIAS_DEFINITIONS));
  }
  #made(definitions) {
    const made = Object.entries(definitions).map(([name, { description, properties }]) => {
      const execute = (args, context) => this.#answer(name, args, context);
      return [name, { description, args: properties, execute }];
    });
    return Object.fromEntries(made);
  }
  async #answer(tool, args, { sessionID, abort }) {
    try {
      const session = await rootOf(this.#host, sessionID);
      const children = asksForChildren(args) ? await this.#children(session) : [];
      const body = { tool, args_json: toJson(args), host: HOST, session, children };
      const found = await this.#connection.ask(
        "/v1/tool",
        body,
        this.#options.toolTimeoutMs,
        abort
      );
      const { output, title, refs, snapshot, sha256 } = found;
      return { title, output, metadata: { optchat: { refs, snapshot, sha256 } } };
    } catch (thrown) {
      const { code, message, hint } = describe(thrown);
      const none = { refs: [], snapshot: "", sha256: "" };
      const output = `${code}: ${message}
${hint}`;
      return { title: code, output, metadata: { optchat: none } };
    }
  }
  // Known to the host alone: a subagent that was cancelled has left no report.
  async #children(id) {
    const found = (await this.#host.children(id)).sort((a, b) => b.time.created - a.time.created).slice(0, CHILDREN);
    return await Promise.all(
      found.map(async ({ id: id2, title, time }) => ({
        id: id2,
        title: title.toWellFormed(),
        state: await this.#state(id2),
        created_ms: time.created,
        updated_ms: time.updated
      }))
    );
  }
  async #state(id) {
    if (await this.#host.busy(id)) return "running";
    const last = await this.#host.last(id);
    if (last?.info.role !== "assistant") return "unknown";
    const ended2 = terminal(last.info, last.parts, "unknown");
    if (ended2 === "interrupted") return "cancelled";
    return ended2 ?? "unknown";
  }
};
function asksForChildren(args) {
  const { parent, parentID } = args ?? {};
  return parent !== void 0 || parentID !== void 0;
}
function define(tool, output) {
  const definitions = { ...DEFINITIONS, ...ALIAS_DEFINITIONS };
  const definition = OWN_TOOLS.has(tool) ? definitions[tool] : void 0;
  if (definition === void 0) return;
  const { properties, required } = definition;
  Object.assign(output, {
    jsonSchema: { type: "object", properties, required, additionalProperties: false }
  });
}

// plugins/opencode/src/plugin.ts
var DISPOSE_MS = 2e3;
async function server(input, given) {
  const options = readOptions(given);
  const host = new Host(input);
  const connection = connectionFor(options.command);
  const sync = new Sync(host, connection, options);
  const presence = new Presence(host, connection, options);
  const requests = new Requests(host, connection, options, sync, presence);
  const summaries = new Summaries(host, connection);
  const tools = new Tools(host, connection, options);
  const { calls } = shared();
  function guarded(hook) {
    return async (...args) => {
      try {
        await hook(...args);
      } catch (thrown) {
        if (thrown instanceof Stop) throw thrown;
        sayFailure(host, thrown);
      }
    };
  }
  const started = Date.now();
  const learnt = connection.ensure().then(() => tools.learn());
  learnt.then(() => presence.now()).catch(() => void 0);
  if (!isOneShot()) summaries.start();
  return {
    config: guarded((config) => summaries.configure(config)),
    tool: tools.registered,
    "tool.definition": guarded(({ toolID }, output) => define(toolID, output)),
    "chat.message": guarded(async ({ sessionID }, { message }) => {
      if (calls.has(sessionID)) return;
      host.lastModel = message.model;
      const state = sessionState(sessionID);
      state.active = true;
      state.admittedAt = Date.now();
      const busy = await host.busy(sessionID);
      if (busy) state.admittedAt = 0;
      state.opens.set(message.id, !busy);
      const deadline = started + options.startTimeoutMs;
      await within(learnt, deadline, "the tools are not known").catch(() => void 0);
    }),
    "experimental.chat.messages.transform": guarded(async (_, output) => {
      const messages = output.messages;
      const call = calls.get(messages[0]?.info.sessionID ?? "");
      if (call) call.replace(messages);
      else await requests.assemble(messages);
    }),
    "experimental.chat.system.transform": guarded(async ({ sessionID }, { system }) => {
      const call = calls.get(sessionID ?? "");
      if (call) call.instruct(system);
      else if (sessionID !== void 0) await requests.system(sessionID, system);
    }),
    "chat.params": guarded(({ sessionID, agent }, params) => {
      const call = calls.get(sessionID);
      if (call) call.limit(params);
      else requests.settle(sessionID, agent);
    }),
    "experimental.session.compacting": guarded(({ sessionID }) => {
      const state = sessionState(sessionID);
      state.compacting = true;
      state.outgoing = void 0;
    }),
    event: guarded(({ event }) => followEvent(event, host, sync, presence)),
    dispose: guarded(async () => {
      await Promise.all([sync.flush(DISPOSE_MS), summaries.stop(DISPOSE_MS)]);
    })
  };
}
async function followEvent({ type, properties }, host, sync, presence) {
  const { info, sessionID, status } = properties;
  switch (type) {
    case "session.status":
      if (status)
        shared().calls.get(sessionID ?? "")?.retried(status);
      return;
    case "session.created":
      if (info) host.remember(info);
      return;
    case "session.updated":
      if (info && host.remember(info)) {
        await sync.follow(info);
      }
      return;
    case "session.deleted":
      if (info) {
        host.forget(info.id);
        shared().sessions.delete(info.id);
        void presence.deleted(info.id);
      }
      return;
    case "message.updated":
      if (info?.role !== "assistant" || info.sessionID === void 0) return;
      shared().sessions.get(info.sessionID)?.begun.add(info.id);
      if (info.time.completed !== void 0) sync.wake(info.sessionID);
      return;
    case "session.idle":
    case "session.compacted":
    case "message.removed":
      if (sessionID !== void 0) sync.wake(sessionID);
      return;
  }
}

// plugins/opencode/src/index.ts
var index_default = { id: "optchat", server };
export {
  index_default as default
};
