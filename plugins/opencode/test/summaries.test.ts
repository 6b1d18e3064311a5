import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { type TestContext, test } from "node:test";
import type { HostAssistant, HostMessage } from "../src/host.ts";
import { outcomeOf } from "../src/outcome.ts";
import { isOneShot } from "../src/summaries.ts";
import type { Work, WorkDone } from "../src/wire.gen.ts";
import { type FakeHost, type Stage, session, stage, until } from "./stub.ts";
import { answer, assistant, SESSION, user } from "./transcript.ts";

const WORK: Work = {
  id: "w1",
  purpose: "turn",
  system: "Write lines.",
  messages: [
    { role: "user", text: "[abcd user]\nthe task\n[/abcd]\nWrite: abcd" },
    { role: "assistant", text: "no line" },
    { role: "user", text: "Write again, only: abcd" },
  ],
  output_tokens_max: 700,
  timeout_ms: 60_000,
};

/** A plugin whose coordinator has these calls to make, one after the other. */
async function working(
  t: TestContext,
  works: Work[],
  onPrompt: FakeHost["onPrompt"],
  prepare?: (host: FakeHost) => void,
): Promise<Stage> {
  const waiting = [...works];
  const on = await stage({}, (coordinator, host) => {
    coordinator.answers["/v1/work"] = () => ({
      wanted: waiting.length > 0,
      work: waiting.shift() ?? null,
    });
    host.onPrompt = onPrompt;
    prepare?.(host);
  });
  t.after(() => on.coordinator.stop());
  return on;
}

async function outcome(on: Stage): Promise<WorkDone> {
  await until(() => on.coordinator.of("/v1/work-done").length > 0);
  const [done] = on.coordinator.of("/v1/work-done");
  assert.ok(done);
  return done;
}

const models = (on: Stage) =>
  on.host.prompted.map(({ body }) => (body as { model?: object }).model);
const madeBy = (on: Stage) => on.host.prompted[0]?.id ?? "";

test("a call is made in a marked session below none, which is deleted (§10)", async (t) => {
  let during: unknown;
  const on = await working(t, [WORK], () => {
    during = structuredClone(on.host.sessions.at(-1));
    return { data: answer("abcd: the line") };
  });
  const done = await outcome(on);
  assert.equal(done.outcome, "answer");
  assert.equal(done.text, "abcd: the line");
  const made = during as { parentID: string; metadata: unknown; permission: unknown };
  assert.equal(made.parentID, "ses_optchat");
  assert.deepEqual(made.metadata, { optchat: { internal: true, pid: process.pid } });
  assert.deepEqual(made.permission, [{ permission: "*", pattern: "*", action: "deny" }]);
  assert.deepEqual(on.host.deleted, [madeBy(on)]);
  assert.equal(JSON.stringify(on.host.prompted).includes("the task"), false);
});

test("its request is what the coordinator made, and its hooks tell nobody", async (t) => {
  let sent: { system: string[]; messages: HostMessage[] } | undefined;
  const params = { maxOutputTokens: 32_000 };
  const on = await working(t, [WORK], async (id) => {
    const asked = user("placeholder");
    asked.info.sessionID = id;
    await on.hooks["chat.message"]({ sessionID: id }, { message: asked.info } as never);
    const messages = [asked];
    await on.hooks["experimental.chat.messages.transform"]?.({}, { messages } as never);
    const system = ["The host's instructions"];
    const input = { sessionID: id } as never;
    await on.hooks["experimental.chat.system.transform"]?.(input, { system });
    await on.hooks["chat.params"]?.({ sessionID: id, agent: "x" } as never, params as never);
    sent = { system, messages };
    return { data: answer("abcd: the line") };
  });
  await outcome(on);
  assert.deepEqual(sent?.system, [WORK.system]);
  const told = sent?.messages.map(({ info, parts: [part] }) => ({
    role: info.role,
    text: part?.type === "text" ? part.text : "",
  }));
  assert.deepEqual(told, WORK.messages);
  assert.equal(params.maxOutputTokens, 700);
  const paths = on.coordinator.requests.map(({ path }) => path);
  assert.deepEqual([...new Set(paths)].sort(), ["/v1/health", "/v1/work", "/v1/work-done"]);
});

test("the agent is hidden, primary and may use no tool", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const config: { agent?: Record<string, object> } = { agent: { mine: { mode: "primary" } } };
  await on.hooks.config(config as never);
  assert.deepEqual(Object.keys(config.agent ?? {}), ["mine", "optchat-summary"]);
  const agent: { prompt?: string } = config.agent?.["optchat-summary"] ?? {};
  delete agent.prompt;
  assert.deepEqual(agent, { mode: "primary", hidden: true, permission: { "*": "deny" } });
});

test("the coordinator's choice of a model comes before the host's small one", async (t) => {
  let second = false;
  const on = await working(t, [{ ...WORK, model: "p/chosen" }, WORK], async () => {
    if (!second) await on.hooks.config({ small_model: "p/with/slash" } as never);
    second = true;
    return { data: answer("abcd: the line") };
  });
  await until(() => on.coordinator.of("/v1/work-done").length === 2);
  assert.deepEqual(models(on), [
    { providerID: "p", modelID: "chosen" },
    { providerID: "p", modelID: "with/slash" },
  ]);
});

test("without a small one it is the model of the person's last message", async (t) => {
  let spoken = () => undefined as unknown;
  const speaking = new Promise((resolve) => {
    spoken = () => resolve(undefined);
  });
  const on = await stage({}, (coordinator, host) => {
    const works = [WORK];
    coordinator.answers["/v1/work"] = () =>
      speaking.then(() => ({ wanted: works.length > 0, work: works.shift() ?? null }));
    host.onPrompt = () => ({ data: answer("abcd: the line") });
  });
  t.after(() => on.coordinator.stop());
  const model = { providerID: "p", modelID: "big" };
  const message = { ...user("x").info, model };
  await on.hooks["chat.message"]({ sessionID: SESSION }, { message } as never);
  spoken();
  await outcome(on);
  assert.deepEqual(models(on), [model]);
});

test("a host that would try again is stopped, and the pause is passed on", async (t) => {
  for (const [message, pause, wanted, told] of [
    ["Rate limited", 2_000, "rate_limited", null],
    ["Too Many Requests", 90_000, "rate_limited", 90_000],
    ["Overloaded", 2_000, "unavailable", null],
  ] as const) {
    const on = await working(t, [WORK], async (id) => {
      const status = { type: "retry", attempt: 1, message, next: Date.now() + pause };
      await on.hooks.event({
        event: { type: "session.status", properties: { sessionID: id, status } } as never,
      });
      return new Promise(() => undefined);
    });
    const done = await outcome(on);
    assert.equal(done.outcome, wanted);
    const after = done.retry_after_ms ?? null;
    assert.ok(told === null ? after === null : Math.abs((after ?? 0) - told) < 5_000, `${after}`);
    assert.deepEqual(on.host.aborted, [madeBy(on)]);
    assert.deepEqual(on.host.deleted, [madeBy(on)]);
  }
});

test("a call that takes too long is given up before the coordinator does", async (t) => {
  const late = { ...WORK, timeout_ms: 1_050 };
  const on = await working(t, [late], () => new Promise(() => undefined));
  assert.equal((await outcome(on)).outcome, "timed_out");
  assert.deepEqual(on.host.aborted, [madeBy(on)]);
  assert.deepEqual(on.host.deleted, [madeBy(on)]);
});

test("the end of the plugin ends the call at once and deletes its session", async (t) => {
  const on = await working(t, [WORK, WORK], () => new Promise(() => undefined));
  await until(() => on.host.prompted.length === 1);
  const begun = Date.now();
  await on.hooks.dispose();
  assert.ok(Date.now() - begun < 3_000);
  assert.deepEqual(on.host.deleted, [madeBy(on)]);
  const done = await outcome(on);
  assert.deepEqual([done.outcome, done.detail], ["unavailable", "the host was closed"]);
  assert.equal(on.host.prompted.length, 1);
});

test("what the host refuses has not been sent", async (t) => {
  const on = await working(t, [WORK], () => ({ error: { name: "UnknownError" } }));
  const done = await outcome(on);
  assert.deepEqual([done.outcome, done.sent], ["unavailable", false]);
  assert.deepEqual(on.host.deleted, [madeBy(on)]);
});

test("a model that the host does not have is gone, and not asked for", async (t) => {
  const on = await working(t, [{ ...WORK, model: "p/none" }], () => ({ data: answer("x") }));
  const done = await outcome(on);
  assert.deepEqual([done.outcome, done.sent], ["gone", false]);
  assert.equal(done.detail, "the host has no model p/none");
  assert.equal(on.host.prompted.length, 0);
});

test("an answer has its model and its tokens, and no thoughts", () => {
  const info = { finish: "stop", providerID: "p", modelID: "small" } as const;
  const given = assistant(info, { id: "r", type: "reasoning", text: "hm" }, "abcd: a", " line");
  (given.info as HostAssistant).tokens = {
    input: 100,
    output: 7,
    reasoning: 5,
    cache: { read: 40, write: 3 },
  };
  assert.deepEqual(outcomeOf(WORK, given), {
    id: "w1",
    outcome: "answer",
    text: "abcd: a line",
    model: "p/small",
    usage: { input_tokens: 143, cached_tokens: 40, output_tokens: 12 },
  });
});

test("every other end has its name, and quotes nothing", () => {
  const failed = (name: string, statusCode?: number) =>
    assistant({
      error: { name, data: { statusCode, message: "secret" } as { statusCode?: number } },
    });
  const ends: [string, HostMessage][] = [
    ["empty", assistant({ finish: "stop" }, " ")],
    ["reasoning_only", assistant({ finish: "stop" }, { id: "r", type: "reasoning", text: "hm" })],
    ["cut", assistant({ finish: "length" }, "abcd: a li")],
    ["filtered", assistant({ finish: "content-filter" }, "")],
    ["filtered", failed("ContentFilterError")],
    ["cut", failed("MessageOutputLengthError")],
    ["denied", failed("ProviderAuthError")],
    ["denied", failed("APIError", 401)],
    ["gone", failed("APIError", 404)],
    ["rate_limited", failed("APIError", 429)],
    ["rejected", failed("APIError", 400)],
    ["rejected", failed("ContextOverflowError")],
    ["unavailable", failed("APIError", 503)],
    ["unavailable", failed("UnknownError")],
  ];
  for (const [wanted, message] of ends) {
    const done = outcomeOf(WORK, message);
    assert.equal(done.outcome, wanted);
    assert.equal(JSON.stringify(done).includes("secret"), false);
  }
});

test("what a dead process left is deleted, and nothing of a living one", async (t) => {
  const dead = spawnSync(process.execPath, ["-e", ""]).pid;
  const now = Date.now();
  const made = (id: string, pid: number | undefined, created: number) => {
    const metadata = { optchat: { internal: true, pid } };
    return session(id, { metadata, time: { created, updated: created } });
  };
  const on = await working(
    t,
    [],
    () => undefined,
    (host) => {
      host.sessions = [
        session("ses_person", { title: "optchat summary" }),
        made("ses_dead", dead, now),
        made("ses_parent", process.ppid, now),
        made("ses_own_number", process.pid, now - process.uptime() * 1_000 - 60_000),
        made("ses_mine", process.pid, now),
        made("ses_old", process.ppid, now - 3 * 3_600_000),
      ];
    },
  );
  await until(() => on.coordinator.of("/v1/work").length > 0);
  assert.deepEqual(on.host.deleted, ["ses_dead", "ses_own_number", "ses_old"]);
});

test("a one-shot run asks for nothing", () => {
  assert.equal(isOneShot(["bun", "opencode", "run", "do it"]), true);
  assert.equal(isOneShot(["bun", "opencode", "serve"]), false);
});

test("an answer that is not held back does not make a busy loop", async (t) => {
  const on = await stage({}, (coordinator) => {
    coordinator.answers["/v1/work"] = () => ({ wanted: true, work: null });
  });
  t.after(async () => {
    await on.hooks.dispose();
    await on.coordinator.stop();
  });
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(on.coordinator.of("/v1/work").length, 1);
});

test("no coordinator is started for asking, and asking goes on when one is there", async (t) => {
  const on = await stage({}, (coordinator) => {
    coordinator.answers["/v1/work"] = () => ({ wanted: true, work: null });
    coordinator.writeEnsure(`echo run >> ${coordinator.folder}/runs; exit 1`);
  });
  t.after(async () => {
    await on.hooks.dispose();
    await on.coordinator.stop();
  });
  await new Promise((resolve) => setTimeout(resolve, 2_600));
  assert.equal(on.coordinator.runs, 1);
  assert.equal(on.coordinator.of("/v1/work").length, 0);
});
