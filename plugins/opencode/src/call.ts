/** One call of the coordinator's while the host makes it: what goes out, and what ends it early. */
import type { HostMessage, HostUser } from "./host.ts";
import type { Work, WorkDone } from "./wire.gen.ts";

/** How the host says that it tries a failed request again. */
export interface HostRetry {
  type: string;
  message?: string;
  next?: number;
}

/** The host's own first pauses; only a longer one was asked for by the provider. */
const OWN_PAUSE_MS = 10_000;
const RATE = /rate.?limit|too.?many|quota|429/i;

export class Call {
  readonly work: Work;
  /** Settled when the call is given up before the host has answered. */
  readonly givenUp: Promise<WorkDone>;
  #giveUp!: (done: WorkDone) => void;

  constructor(work: Work) {
    this.work = work;
    this.givenUp = new Promise((resolve) => {
      this.#giveUp = resolve;
    });
  }

  giveUp(outcome: WorkDone["outcome"], detail: string, retry_after_ms: number | null = null): void {
    this.#giveUp({ id: this.work.id, outcome, detail, retry_after_ms });
  }

  /** The host would try for ever; the coordinator knows better when to ask again. */
  retried({ type, message = "", next = 0 }: HostRetry): void {
    if (type !== "retry") return;
    const pause = next - Date.now();
    const asked = pause > OWN_PAUSE_MS ? pause : null;
    if (RATE.test(message)) this.giveUp("rate_limited", "", asked);
    else this.giveUp("unavailable", "the provider failed", asked);
  }

  /**
   * Put the call in the place of the session's own messages.
   *
   * The session holds a placeholder only, so that no transcript's text is stored a second time.
   */
  replace(messages: HostMessage[]): void {
    const asked = messages.findLast(({ info }) => info.role === "user")?.info;
    if (asked?.role !== "user") return;
    const made = this.work.messages.map(({ role, text }, index) => {
      const id = `${asked.id}_${index}`;
      const info = role === "user" ? { ...asked, id } : answered(asked, id);
      return { info, parts: [{ id: `${id}_text`, type: "text" as const, text }] };
    });
    messages.splice(0, messages.length, ...made);
  }

  instruct(system: string[]): void {
    system.splice(0, system.length, this.work.system);
  }

  limit(params: { maxOutputTokens: number | undefined }): void {
    const { output_tokens_max } = this.work;
    // Absent where the provider does not take one.
    if (params.maxOutputTokens !== undefined)
      params.maxOutputTokens = Math.min(params.maxOutputTokens, output_tokens_max);
  }
}

function answered({ sessionID, model, time }: HostUser, id: string): HostMessage["info"] {
  const { providerID, modelID } = model;
  const tokens = { input: 0, output: 0, reasoning: 0, cache: { read: 0, write: 0 } };
  const ended = { created: time.created, completed: time.created };
  const said = { parentID: id, providerID, modelID, finish: "stop", tokens, time: ended };
  return { id, sessionID, role: "assistant", ...said };
}
