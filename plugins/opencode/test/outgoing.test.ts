import assert from "node:assert/strict";
import { test } from "node:test";
import type { HostMessage } from "../src/host.ts";
import type { AssembleRequest, AssembleResponse } from "../src/wire.gen.ts";
import { ENVIRONMENT, NATIVE, type Stage, stage } from "./stub.ts";
import { answer, assistant, part, SESSION, tool, user } from "./transcript.ts";

const STOP = {
  code: "memory_not_ready",
  message: "not yet",
  hint: "optchat status",
  retryable: true,
};

async function ready(
  answered: Partial<AssembleResponse> | ((r: AssembleRequest) => Partial<AssembleResponse>),
) {
  const on = await stage();
  on.coordinator.answers = {
    "/v1/assemble": (request) => ({
      ...NATIVE,
      state: "ready",
      ...(typeof answered === "function" ? answered(request) : answered),
    }),
  };
  return on;
}

function texts(messages: HostMessage[]): string[][] {
  return messages.map(({ parts }) => parts.flatMap((p) => (p.type === "text" ? [p.text] : [])));
}

/** Run only the system hook, as the title's request and a retry do. */
async function system({ hooks }: Stage, text = ENVIRONMENT): Promise<string[]> {
  const output = { system: [text] };
  await hooks["experimental.chat.system.transform"]?.({ sessionID: SESSION } as never, output);
  return output.system;
}

test("base, news and the kept tail make the request, and no host object is changed", async (t) => {
  const old = [user("old"), answer("older")];
  const ask = user("new");
  const on = await ready({
    base: "BASE",
    keep_from: ask.info.id,
    news: [{ message_id: ask.info.id, text: "NEWS" }],
  });
  t.after(() => on.coordinator.stop());
  const messages = [...old, ask];
  const before = structuredClone(messages);
  on.host.messages = structuredClone(messages);
  const list = [...messages];
  const sent = await on.call(list);
  assert.equal(sent.messages, list);
  assert.deepEqual(texts(list), [["NEWS", "new"]]);
  assert.deepEqual(sent.system, [ENVIRONMENT, "BASE"]);
  assert.deepEqual(messages, before);
  assert.notEqual(list[0], ask);
});

test("a base can lead the first message, or stand before it if that is an answer", async (t) => {
  const messages = [user("one"), answer("two"), user("three")];
  let keep: string | null = null;
  const on = await ready(() => ({ base: "BASE", placement: "message", keep_from: keep }));
  t.after(() => on.coordinator.stop());
  on.host.messages = structuredClone(messages);
  const whole = await on.call([...messages]);
  assert.deepEqual(texts(whole.messages)[0], ["BASE", "one"]);
  assert.deepEqual(whole.system, [ENVIRONMENT]);
  keep = messages[1]?.info.id ?? null;
  const cut = await on.call([...messages]);
  assert.deepEqual(texts(cut.messages).slice(0, 2), [["BASE"], ["two"]]);
  assert.equal(cut.messages[0]?.info.role, "user");
});

test("the title's request gets no memory, whenever it comes", async (t) => {
  const on = await ready({ base: "BASE" });
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await on.hooks["experimental.chat.messages.transform"]?.({}, { messages: [ask] } as never);
  assert.deepEqual(await system(on, "You are a title generator."), ["You are a title generator."]);
  const params = { sessionID: SESSION, agent: "title" };
  await on.hooks["chat.params"]?.(params as never, {} as never);
  assert.deepEqual(await system(on), [ENVIRONMENT, "BASE"]);
  assert.deepEqual(await system(on, "You are a title generator."), ["You are a title generator."]);
});

test("a retry, which runs only the system hook, gets the base again", async (t) => {
  const on = await ready({ base: "BASE" });
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await on.call([ask]);
  assert.deepEqual(await system(on), [ENVIRONMENT, "BASE"]);
});

test("instructions without an environment still get the base", async (t) => {
  const on = await ready({ base: "BASE" });
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await on.hooks["experimental.chat.messages.transform"]?.({}, { messages: [ask] } as never);
  assert.deepEqual(await system(on, "Rewritten."), ["Rewritten.", "BASE"]);
});

test("the host's compaction is given the session's history, and no base of a main request", async (t) => {
  const on = await ready(({ purpose }) =>
    purpose === "compaction"
      ? { base: "OWN", placement: "message", keep_from: ask.info.id }
      : { base: "BASE" },
  );
  t.after(() => on.coordinator.stop());
  const old = [user("old"), answer("older")];
  const ask = user("hello");
  on.host.messages = [...old, ask];
  await on.call([...old, ask]);
  await on.hooks["experimental.session.compacting"]?.({ sessionID: SESSION }, { context: [] });
  const head = structuredClone([...old, ask]);
  await on.hooks["experimental.chat.messages.transform"]?.({}, { messages: head } as never);
  assert.deepEqual(texts(head), [["OWN", "hello"]]);
  assert.deepEqual(await system(on, "Summarise."), ["Summarise."]);
  const { system: after } = await on.call([...old, ask]);
  assert.deepEqual(after, [ENVIRONMENT, "BASE"]);
});

test("without the coordinator the host compacts what it has", async () => {
  const on = await ready({});
  await on.coordinator.stop();
  const ask = user("hello");
  on.host.messages = [ask];
  await on.hooks["experimental.session.compacting"]?.({ sessionID: SESSION }, { context: [] });
  const head = [ask];
  await on.hooks["experimental.chat.messages.transform"]?.({}, { messages: head } as never);
  assert.deepEqual(head, [ask]);
});

test("a checkpoint stands last in its message, and what it tells is left out", async (t) => {
  const ask = user("ask");
  const steps = [1, 2, 3].map((n) =>
    assistant({ finish: "tool-calls" }, tool("bash", { output: `${n}` })),
  );
  const on = await ready({
    news: [{ message_id: ask.info.id, text: "NEWS" }],
    checkpoints: [{ after: ask.info.id, until: steps[2]?.info.id ?? "", text: "TOLD" }],
  });
  t.after(() => on.coordinator.stop());
  const messages = [ask, ...steps];
  on.host.messages = structuredClone(messages);
  const before = structuredClone(messages);
  const sent = await on.call([...messages]);
  assert.deepEqual(texts(sent.messages)[0], ["NEWS", "ask", "TOLD"]);
  assert.deepEqual(sent.messages.slice(1), [steps[2]]);
  assert.deepEqual(messages, before);
});

test("what the host compacted away is back in the request, and a refusal is a full window", async (t) => {
  const on = await ready({});
  t.after(() => on.coordinator.stop());
  const ask = user("ask");
  const step = assistant({ finish: "tool-calls" }, tool("bash"));
  const pair = [
    user(part("compaction", { auto: true, overflow: true })),
    assistant({ summary: true, finish: "stop" }, "SUMMARY"),
  ];
  const copy = user("ask");
  const refused = assistant({
    tokens: { input: 0, output: 0, reasoning: 0, cache: { read: 0, write: 0 } },
  });
  const next = assistant({ open: true });
  on.host.messages = structuredClone([ask, step, refused, ...pair, copy, next]);
  const sent = await on.call([...pair, copy]);
  assert.deepEqual(
    sent.messages.map(({ info }) => info.id),
    [ask, step, refused].map(({ info }) => info.id),
  );
  const [request] = on.coordinator.of("/v1/assemble");
  assert.equal(request?.shape.length, 3);
  assert.deepEqual(request?.usage, { message_id: pair[0]?.info.id, input_tokens: 200_000 });
});

test("a stop ends the turn with an error that says what to do", async (t) => {
  const on = await ready({ state: "stop", error: STOP });
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await assert.rejects(on.call([ask]), {
    name: "OptChatStop",
    message: "optchat: not yet (memory_not_ready)\nNext: optchat status",
  });
  assert.deepEqual(on.host.said, []);
});

test("a stop leaves the title's request alone", async (t) => {
  const on = await ready({ state: "stop", error: STOP });
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await on.call([ask], "title");
});

test("a base that found no place stops the request that leans on it", async (t) => {
  const on = await ready({ base: "BASE" });
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await on.hooks["experimental.chat.messages.transform"]?.({}, { messages: [ask] } as never);
  await system(on, "You are a title generator. Or are you?");
  const params = on.hooks["chat.params"]?.(
    { sessionID: SESSION, agent: "build" } as never,
    {} as never,
  );
  await assert.rejects(params ?? Promise.resolve(), /found no place/);
});

test("what turns out larger than announced is checked, and may stop the turn", async (t) => {
  const on = await ready({});
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  on.coordinator.answers["/v1/check"] = () => ({ error: { ...STOP, code: "turn_too_large" } });
  await on.hooks["experimental.chat.messages.transform"]?.({}, { messages: [ask] } as never);
  await system(on, `${"long ".repeat(20_000)}${ENVIRONMENT}`);
  const params = on.hooks["chat.params"]?.(
    { sessionID: SESSION, agent: "build" } as never,
    {} as never,
  );
  await assert.rejects(params ?? Promise.resolve(), /turn_too_large/);
  assert.ok((on.coordinator.of("/v1/check")[0]?.overhead.letters ?? 0) > 80_000);
});

test("instructions are measured once seen, and known from then on", async (t) => {
  const on = await ready({});
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await on.call([ask]);
  await on.call([ask]);
  const [first, second] = on.coordinator.of("/v1/assemble");
  assert.deepEqual([first?.overhead_known, second?.overhead_known], [false, true]);
  assert.ok((first?.overhead.letters ?? 0) > 9_000);
  assert.ok((second?.overhead.letters ?? 0) < 200);
});

test("tools that the agent may not use are not counted, unlisted ones make it a guess", async (t) => {
  const on = await ready({});
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  (ask.info as { agent: string }).agent = "small";
  on.host.messages = [ask];
  on.host.servers = { files: { status: "connected" } };
  await on.call([ask]);
  await on.call([ask]);
  const [first, second] = on.coordinator.of("/v1/assemble");
  assert.ok((first?.overhead.letters ?? 0) < 1_300);
  assert.equal(second?.overhead_known, false);
  // The only tool costs ten symbols as JSON; the instructions seven.
  assert.equal(second?.overhead.symbols, 7);
});

test("the shape tells sizes and roles, the model its limits, the usage what was paid", async (t) => {
  const on = await ready({});
  t.after(() => on.coordinator.stop());
  const messages = [
    user("abc"),
    assistant({ finish: "tool-calls" }, tool("bash", { output: "defgh" })),
  ];
  on.host.messages = messages;
  await on.call([...messages]);
  const [request] = on.coordinator.of("/v1/assemble");
  assert.deepEqual(
    request?.shape.map(({ role, sizes }) => [role, sizes.letters]),
    [
      ["user", 3],
      ["assistant", 10],
    ],
  );
  assert.deepEqual(request?.model, {
    provider: "fake",
    id: "big-200k",
    context_tokens: 200_000,
    output_tokens: 8_192,
    input_tokens: null,
  });
  assert.deepEqual(request?.usage, { message_id: messages[1]?.info.id, input_tokens: 123 });
});

test("what another model reported is not its usage", async (t) => {
  const on = await ready({});
  t.after(() => on.coordinator.stop());
  const messages = [user("a"), assistant({ finish: "stop", modelID: "other" }, "b"), user("c")];
  on.host.messages = messages;
  await on.call([...messages]);
  assert.equal(on.coordinator.of("/v1/assemble")[0]?.usage, null);
});

test("without the coordinator the request goes out as it was, and that is said once", async () => {
  const on = await ready({ base: "BASE" });
  await on.coordinator.stop();
  const ask = user("hello");
  on.host.messages = [ask];
  for (let i = 0; i < 3; i++) {
    const sent = await on.call([ask]);
    assert.deepEqual([sent.system, sent.messages], [[ENVIRONMENT], [ask]]);
  }
  assert.equal(on.host.said.length, 1);
  assert.match(
    on.host.said[0]?.message ?? "",
    /Memory is off: .* \(unreachable\)\. Next: optchat serve/,
  );
});

test("an error of the coordinator leaves the request as it was", async (t) => {
  const on = await ready({ base: "BASE" });
  t.after(() => on.coordinator.stop());
  const error = {
    code: "version_mismatch",
    message: "speaks 2",
    hint: "optchat stop",
    retryable: false,
  };
  on.coordinator.failure = { status: 426, body: { error } };
  const ask = user("hello");
  on.host.messages = [ask];
  const sent = await on.call([ask]);
  assert.deepEqual([sent.system, sent.messages], [[ENVIRONMENT], [ask]]);
  assert.match(on.host.said[0]?.message ?? "", /speaks 2 \(version_mismatch\)/);
});

test("an answer that names a message that is not there changes nothing", async (t) => {
  const ask = user("hello");
  const on = await ready({
    base: "BASE",
    news: [{ message_id: ask.info.id, text: "N" }],
    keep_from: "msg_nowhere",
  });
  t.after(() => on.coordinator.stop());
  on.host.messages = [ask];
  const sent = await on.call([ask]);
  assert.deepEqual([sent.system, sent.messages], [[ENVIRONMENT], [ask]]);
  assert.match(on.host.said[0]?.message ?? "", /msg_nowhere/);
});

test("a slow coordinator costs one wait, not one for each step", async (t) => {
  const on = await stage({ sync_timeout_ms: 1_100 });
  t.after(() => on.coordinator.stop());
  on.coordinator.answers = { "/v1/sync": () => new Promise(() => undefined) };
  const ask = user("hello");
  on.host.messages = [ask];
  const begun = Date.now();
  for (let i = 0; i < 3; i++) await on.call([ask]);
  assert.ok(Date.now() - begun < 2_000);
});

test("a notice is passed on once", async (t) => {
  const on = await ready({ state: "native", notice: "This directory is isolated." });
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await on.call([ask]);
  await on.call([ask]);
  assert.deepEqual(
    on.host.said.map(({ message }) => message),
    ["This directory is isolated."],
  );
});
