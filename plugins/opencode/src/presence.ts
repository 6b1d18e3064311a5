/**
 * Sessions that the host no longer has, so that memory loses them too.
 *
 * The host lists the sessions of one directory, so that absence from a list says nothing by itself:
 * the coordinator names those that it misses, and the host is asked for each by its id. Only its own
 * word that there is no such session counts. Events are a reason to look, for they cross no process.
 */
import type { Connection } from "./connection.ts";
import type { Host } from "./host.ts";
import { HOST } from "./names.ts";
import type { Options } from "./options.ts";
import { projectOf } from "./session.ts";

/** How many sessions are asked about in one pass; the rest has its turn in the next ones. */
const ASKED = 20;

export class Presence {
  readonly #host: Host;
  readonly #connection: Connection;
  readonly #options: Options;
  /** Sessions of other directories, of which the host has said that it has them. */
  readonly #elsewhere = new Set<string>();
  #running: Promise<void> | undefined;

  constructor(host: Host, connection: Connection, options: Options) {
    this.#host = host;
    this.#connection = connection;
    this.#options = options;
  }

  /** Compare, or wait for a comparison that is under way. What fails is done at the next one. */
  now(): Promise<void> {
    this.#running ??= this.#pass()
      .catch(() => undefined)
      .finally(() => {
        this.#running = undefined;
      });
    return this.#running;
  }

  /** The host says that a session was deleted: look whether that is so. */
  async deleted(id: string): Promise<void> {
    this.#elsewhere.delete(id);
    await this.#running;
    await this.now();
  }

  async #pass(): Promise<void> {
    const store = this.#host.store();
    if (store === "") return;
    const listed = (await this.#host.sessions()).map(({ id }) => id);
    const ids = [...new Set([...listed, ...this.#elsewhere])];
    const { project_key } = projectOf(this.#host);
    const request = { host: HOST, store, project_key, ids, gone: [] };
    const bound = this.#options.assembleTimeoutMs;
    const { missing } = await this.#connection.ask("/v1/present", request, bound);
    const gone: string[] = [];
    for (const id of missing.slice(0, ASKED)) {
      if (await this.#host.isGone(id)) gone.push(id);
      else this.#elsewhere.add(id);
    }
    if (gone.length > 0) await this.#connection.ask("/v1/present", { ...request, gone }, bound);
  }
}
