import assert from "node:assert/strict";
import { test } from "node:test";
import { ALIAS_DEFINITIONS } from "../src/aliases.ts";
import { server } from "../src/plugin.ts";
import { DEFINITIONS } from "../src/tools.ts";
import { ALIASES, TOOLS } from "../src/wire.gen.ts";
import { type Stage, session, stage } from "./stub.ts";
import { SESSION } from "./transcript.ts";

const FOUND = {
  output: "pub:1 …",
  title: "pub:1",
  refs: ["pub:1"],
  snapshot: "pub<2",
  sha256: "ab",
  complete: true,
  data_json: "{}",
};

async function run({ hooks }: Stage, args: unknown, sessionID = SESSION): Promise<unknown> {
  return hooks.tool.memory_zoom?.execute(args as never, { sessionID } as never);
}

test("arguments go as they are, and the answer's references are kept beside it", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  on.coordinator.answers = { "/v1/tool": () => FOUND };
  assert.deepEqual(await run(on, { ref: 7, nope: true }), {
    title: "pub:1",
    output: "pub:1 …",
    metadata: { optchat: { refs: ["pub:1"], snapshot: "pub<2", sha256: "ab" } },
  });
  assert.deepEqual(on.coordinator.of("/v1/tool"), [
    {
      tool: "memory_zoom",
      args_json: '{"ref":7,"nope":true}',
      host: "opencode",
      session: SESSION,
      children: [],
    },
  ]);
});

test("a subagent asks in the name of the conversation that sent it", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  on.coordinator.answers = { "/v1/tool": () => FOUND };
  on.host.sessions.push(
    session("ses_2", { parentID: SESSION }),
    session("ses_3", { parentID: "ses_2" }),
  );
  await run(on, { ref: "pub:1" }, "ses_3");
  assert.equal(on.coordinator.of("/v1/tool")[0]?.session, SESSION);
});

test("an error is an answer that the model can act on", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const error = {
    code: "not_found",
    message: "no such ref",
    hint: "optchat sessions",
    retryable: false,
  };
  on.coordinator.failure = { status: 404, body: { error } };
  const found = (await run(on, {})) as { output: string; metadata: object };
  assert.equal(found.output, "not_found: no such ref\noptchat sessions");
  assert.deepEqual(found.metadata, { optchat: { refs: [], snapshot: "", sha256: "" } });
});

test("the schema that reaches the provider names what is optional", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  assert.deepEqual(Object.keys(on.hooks.tool), Object.keys(DEFINITIONS));
  const output: { jsonSchema?: { required: string[] } } = {};
  await on.hooks["tool.definition"]?.({ toolID: "memory_search" }, output as never);
  assert.deepEqual(output.jsonSchema?.required, ["query"]);
  const other = {};
  await on.hooks["tool.definition"]?.({ toolID: "bash" }, other as never);
  assert.deepEqual(other, {});
});

test("instances in one process share the coordinator and what they know", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  on.coordinator.answers = { "/v1/tool": () => FOUND };
  const twin = await server(on.host.input, { command: [on.coordinator.ensure] });
  await run(on, {});
  await run({ ...on, hooks: twin as Stage["hooks"] }, {});
  assert.equal(on.coordinator.runs, 1);
});

test("no hook lets an error of ours into the host", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  await on.hooks.event({ event: { type: "message.updated", properties: null } as never });
  await on.hooks["experimental.chat.messages.transform"]?.({}, { messages: null } as never);
  await on.hooks["chat.message"]({ sessionID: SESSION }, {} as never);
  assert.ok(on.host.said.length > 0);
});

test("the names of other systems are offered only where the coordinator answers to them", async (t) => {
  const off = await stage();
  t.after(() => off.coordinator.stop());
  await off.hooks["chat.message"]({ sessionID: SESSION } as never, { message: {} } as never);
  assert.deepEqual(Object.keys(off.hooks.tool), [...TOOLS]);

  const on = await stage({}, (coordinator) => {
    coordinator.aliases = true;
  });
  t.after(() => on.coordinator.stop());
  on.coordinator.answers["/v1/tool"] = () => FOUND;
  // The host takes up its tools after this hook, and only then.
  await on.hooks["chat.message"]({ sessionID: SESSION } as never, { message: {} } as never);
  assert.deepEqual(Object.keys(on.hooks.tool), [...TOOLS, ...ALIASES]);
  await on.hooks.tool.recall?.execute({ query: "x" } as never, { sessionID: SESSION } as never);
  assert.equal(on.coordinator.of("/v1/tool")[0]?.tool, "recall");
  const output: { jsonSchema?: { properties: object } } = {};
  await on.hooks["tool.definition"]?.({ toolID: "recall_get" }, output as never);
  assert.deepEqual(Object.keys(output.jsonSchema?.properties ?? {}), ["sessionID", "messageID"]);
});

test("every name is defined once, and its definition stays short", () => {
  assert.deepEqual(Object.keys(DEFINITIONS), [...TOOLS]);
  assert.deepEqual(Object.keys(ALIAS_DEFINITIONS), [...ALIASES]);
  assert.ok(JSON.stringify(DEFINITIONS).length < 4_400, `${JSON.stringify(DEFINITIONS).length}`);
});

test("subagents are told as the host has them when the model asks for them", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  on.coordinator.answers = { "/v1/tool": () => FOUND };
  on.host.sessions.push(session("ses_2", { parentID: SESSION, title: "look around" }));
  const aborted = { name: "MessageAbortedError" };
  const info = { role: "assistant", error: aborted, time: { created: 1 } };
  on.host.others.set("ses_2", [{ info, parts: [] } as never]);
  const ask = (args: object) =>
    on.hooks.tool.memory_sessions?.execute(args as never, { sessionID: SESSION } as never);
  await ask({ parent: "current" });
  await ask({});
  const [asked, plain] = on.coordinator.of("/v1/tool");
  const { created, updated } = session("ses_2").time;
  assert.deepEqual(asked?.children, [
    {
      id: "ses_2",
      title: "look around",
      state: "cancelled",
      created_ms: created,
      updated_ms: updated,
    },
  ]);
  assert.deepEqual(plain?.children, []);
});
