/**
 * The way to the coordinator: one Unix socket, found by asking `optchat ensure`, started if need be.
 *
 * All instances of the plugin in a process share one connection for a command, because the host
 * makes an instance for each directory and starting is worth doing once.
 */
import { spawn } from "node:child_process";
import { Agent, request as httpRequest } from "node:http";
import { Failure, late, unreachable } from "./failure.ts";
import type { ErrorBody, Routes } from "./wire.gen.ts";
import { PROTOCOL, PROTOCOL_HEADER } from "./wire.gen.ts";

const STARTING = "the coordinator is still starting";
const ENSURE_TIMEOUT_MS = 20_000;
const BACKOFF_MS = { first: 500, most: 30_000 };
// A kept connection may be closed under us, which says nothing about the socket's owner.
const DROPPED = new Set(["ECONNRESET", "EPIPE"]);
const ATTEMPTS = 3;

export class Connection {
  readonly #command: string[];
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 8 });
  #socket: string | undefined;
  #starting: Promise<string> | undefined;
  #everStarted = false;
  #failures = 0;
  #notBefore = 0;
  #lastFailure: Failure | undefined;

  constructor(command: string[]) {
    this.#command = command;
  }

  /** Find or start the coordinator. Callers share one attempt, and none is made while backing off. */
  ensure(): Promise<string> {
    if (this.#socket !== undefined) return Promise.resolve(this.#socket);
    if (this.#starting) return this.#starting;
    if (this.#lastFailure && Date.now() < this.#notBefore) return Promise.reject(this.#lastFailure);
    const starting = this.#start();
    this.#starting = starting;
    starting.then(
      (socket) => {
        this.#starting = undefined;
        this.#socket = socket;
        this.#everStarted = true;
        this.#failures = 0;
        this.#lastFailure = undefined;
      },
      (failure: Failure) => {
        this.#starting = undefined;
        this.#lastFailure = failure;
        const wait = BACKOFF_MS.first * 2 ** this.#failures++;
        this.#notBefore = Date.now() + Math.min(wait, BACKOFF_MS.most);
      },
    );
    return starting;
  }

  /** Wait until there is a coordinator, longer for the first one of the process. */
  async ready(firstMs: number, laterMs: number): Promise<void> {
    const deadline = Date.now() + (this.#everStarted ? laterMs : firstMs);
    await within(this.ensure(), deadline, STARTING);
  }

  /** Send one request and return its answer, within a bound. Raises a `Failure`, nothing else. */
  async ask<Path extends keyof Routes>(
    path: Path,
    body: Routes[Path]["request"],
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<Routes[Path]["answer"]> {
    const deadline = Date.now() + timeoutMs;
    for (let attempt = 1; ; attempt++) {
      const socket = await within(this.ensure(), deadline, STARTING);
      try {
        return await this.#askAt(socket, path, body, deadline, signal);
      } catch (thrown) {
        // What was asked is safe to ask again, of whoever owns the socket by now.
        if (thrown instanceof Failure) throw thrown;
        if (attempt === ATTEMPTS) throw unreachable(`nothing answers on ${socket}`);
      }
    }
  }

  /** The same of a coordinator that is there; undefined when none is known, and none is started. */
  async askIfRunning<Path extends keyof Routes>(
    path: Path,
    body: Routes[Path]["request"],
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<Routes[Path]["answer"] | undefined> {
    const socket = this.#socket;
    if (socket === undefined) return undefined;
    // On a connection of its own: it may be held for long, and the kept ones are few.
    return await this.#askAt(socket, path, body, Date.now() + timeoutMs, signal, false);
  }

  async #askAt<Path extends keyof Routes>(
    socket: string,
    path: Path,
    body: Routes[Path]["request"],
    deadline: number,
    signal: AbortSignal | undefined,
    agent: Agent | false = this.#agent,
  ): Promise<Routes[Path]["answer"]> {
    const text = JSON.stringify(body ?? {});
    try {
      const { status, answer } = await this.#post(socket, path, text, deadline, signal, agent);
      if (status === 200) return JSON.parse(answer) as Routes[Path]["answer"];
      throw refused(status, answer);
    } catch (thrown) {
      const { code = "" } = thrown as NodeJS.ErrnoException;
      if (!(thrown instanceof Failure || DROPPED.has(code))) this.#forget(socket);
      throw thrown;
    }
  }

  #forget(socket: string): void {
    if (this.#socket === socket) this.#socket = undefined;
  }

  // Not waited for to its end: what it started may have kept its output open.
  #start(): Promise<string> {
    const [program = "optchat", ...rest] = this.#command;
    const words = [...rest, "ensure", "--json"];
    return new Promise((resolve, reject) => {
      const child = spawn(program, words, { stdio: ["ignore", "pipe", "pipe"] });
      let out = "";
      let said = "";
      const fail = (why: string) => {
        clearTimeout(timer);
        reject(unreachable(`\`${[program, ...words].join(" ")}\` failed: ${why}`));
      };
      const timer = setTimeout(() => {
        child.kill();
        fail("it took too long");
      }, ENSURE_TIMEOUT_MS);
      timer.unref();
      child.stderr.on("data", (chunk) => {
        said = (said + chunk).slice(-2_000);
      });
      child.stdout.on("data", (chunk) => {
        out += chunk;
        const socket = readSocket(out);
        if (socket === undefined) return;
        clearTimeout(timer);
        child.unref();
        resolve(socket);
      });
      child.on("error", (error) => fail(error.message));
      child.on("close", () => fail(said.trim().split("\n").at(-1) || "it named no socket"));
    });
  }

  #post(
    socketPath: string,
    path: string,
    text: string,
    deadline: number,
    signal: AbortSignal | undefined,
    agent: Agent | false,
  ): Promise<{ status: number; answer: string }> {
    return new Promise((resolve, reject) => {
      const payload = Buffer.from(text);
      const headers = {
        "content-type": "application/json",
        "content-length": payload.length,
        [PROTOCOL_HEADER]: String(PROTOCOL),
      };
      const options = { socketPath, path, method: "POST", headers, agent };
      const call = httpRequest(options, (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", fail);
        response.on("end", () => {
          done();
          const answer = Buffer.concat(chunks).toString("utf8");
          resolve({ status: response.statusCode ?? 0, answer });
        });
      });
      const leave = (message: string) => {
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
      function fail(error: Error): void {
        done();
        reject(error);
      }
      signal?.addEventListener("abort", aborted);
      call.on("error", fail);
      call.end(payload);
    });
  }
}

function readSocket(output: string): string | undefined {
  for (const line of output.split("\n").slice(0, -1)) {
    try {
      const { socket } = JSON.parse(line) as { socket?: unknown };
      if (typeof socket === "string") return socket;
    } catch {
      // Something else was printed before it.
    }
  }
  return undefined;
}

function refused(status: number, answer: string): Failure {
  try {
    return new Failure((JSON.parse(answer) as ErrorBody).error);
  } catch {
    return unreachable(`the coordinator answered with status ${status}`);
  }
}

/** Wait for a promise no longer than until `deadline`. */
export async function within<T>(promise: Promise<T>, deadline: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const bound = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late(what)), Math.max(1, deadline - Date.now()));
  });
  try {
    return await Promise.race([promise, bound]);
  } finally {
    clearTimeout(timer);
  }
}
