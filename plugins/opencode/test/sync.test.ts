import assert from "node:assert/strict";
import { test } from "node:test";
import type { HostMessage } from "../src/host.ts";
import { type Stage, session, stage, until } from "./stub.ts";
import { answer, assistant, SESSION, tool, user } from "./transcript.ts";

async function admit({ hooks }: Stage, message: HostMessage): Promise<void> {
  const given = { message: message.info, parts: message.parts };
  await hooks["chat.message"]({ sessionID: SESSION }, given as never);
}

async function happens({ hooks }: Stage, type: string, properties: object): Promise<void> {
  await hooks.event({ event: { type, properties } as never });
}

const idle = (on: Stage) => happens(on, "session.idle", { sessionID: SESSION });

function content(on: Stage): (string | null)[][] {
  return on.coordinator
    .of("/v1/sync")
    .map(({ messages }) => messages.filter((m) => m.parts).map((m) => m.id));
}

test("a new message is sealed before its request is assembled", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await admit(on, ask);
  await on.call([ask]);
  assert.deepEqual(
    on.coordinator.requests.map(({ path }) => path),
    ["/v1/health", "/v1/sync", "/v1/assemble"],
  );
  const [sync] = on.coordinator.of("/v1/sync");
  assert.deepEqual(
    sync?.messages.map(({ final, opens }) => [final, opens]),
    [[true, false]],
  );
  assert.equal(sync?.idle, false);
  assert.equal(sync?.session.project_key, "prj_1");
});

test("content is sent once, membership always", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const [first, reply, second] = [user("one"), answer("two"), user("three")];
  on.host.messages = [first, reply];
  await on.call([first]);
  on.host.messages = [first, reply, second];
  await on.call([first, reply, second]);
  assert.deepEqual(content(on), [[first.info.id, reply.info.id], [second.info.id]]);
  assert.equal(on.coordinator.of("/v1/sync")[1]?.messages.length, 3);
});

test("a tool continuation assembles without waiting for another pass", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await on.call([ask]);
  await on.call([ask, assistant({ finish: "tool-calls" }, tool("bash"))]);
  assert.equal(on.coordinator.of("/v1/sync").length, 1);
  assert.equal(on.coordinator.of("/v1/assemble").length, 2);
});

test("what the store lacks is sent, in portions", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const big = () => answer("x".repeat(5_000_000));
  const ask = user("hello");
  on.host.messages = [big(), big(), big(), big(), ask];
  await on.call([ask]);
  assert.deepEqual(
    content(on).map((ids) => ids.length),
    [2, 2, 1],
  );
  assert.equal(on.coordinator.held.size, 5);
});

test("what the store has forgotten is sent again", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const [first, reply, second] = [user("one"), answer("two"), user("three")];
  on.host.messages = [first, reply];
  await on.call([first]);
  on.coordinator.held.clear();
  on.host.messages = [first, reply, second];
  await on.call([first, reply, second]);
  assert.deepEqual(content(on).at(-1), [first.info.id, reply.info.id]);
  assert.equal(on.coordinator.held.size, 3);
});

test("a finished step is sealed while the turn goes on", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await on.call([ask]);
  const step = assistant({ finish: "tool-calls" }, tool("bash"));
  on.host.messages = [ask, step, assistant({ open: true })];
  await happens(on, "message.updated", { info: step.info });
  await until(() => on.coordinator.held.has(step.info.id));
  assert.equal(on.coordinator.of("/v1/sync")[1]?.idle, false);
});

test("why no summaries are made is said once, though its figures change", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const needs = { session: "s1", generation: 0, need: [], records: 0, sealed: 0, turn: null };
  let at = 0;
  on.coordinator.answers["/v1/sync"] = () => ({
    ...needs,
    disabled: null,
    notice: `summaries wait: 10 of 10 today's calls are used; they go on at ${at++}`,
  });
  for (const word of ["one", "two", "three"]) {
    const ask = user(word);
    on.host.messages = [...on.host.messages, ask];
    await on.call([ask]);
  }
  assert.ok(at >= 3);
  assert.deepEqual(
    on.host.said.map(({ level, message }) => [level, message.slice(0, 24)]),
    [["warn", "summaries wait: 10 of 10"]],
  );
});

test("the end is told once, however often the host announces it", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  on.host.messages = [ask];
  await on.call([ask]);
  const reply = answer("done");
  on.host.messages = [ask, reply];
  on.host.busy = false;
  await idle(on);
  await idle(on);
  await happens(on, "message.updated", { info: reply.info });
  await on.hooks.dispose();
  await idle(on);
  await on.hooks.dispose();
  assert.equal(on.coordinator.of("/v1/sync").length, 2);
  assert.equal(on.coordinator.of("/v1/sync")[1]?.idle, true);
});

test("an idle that comes before the last message waits for it", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const ask = user("hello");
  const open = assistant({ open: true }, "partial");
  on.host.messages = [ask];
  await happens(on, "message.updated", { info: open.info });
  await on.call([ask]);
  on.host.messages = [ask, open];
  on.host.busy = false;
  await idle(on);
  const aborted = assistant({ error: { name: "MessageAbortedError" } }, "partial");
  on.host.messages = [ask, aborted];
  await on.hooks.dispose();
  const last = on.coordinator.of("/v1/sync").at(-1);
  assert.deepEqual(
    last?.messages.map(({ terminal }) => terminal),
    [undefined, "interrupted"],
  );
});

test("a session is not idle between a message's arrival and its turn", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const [first, reply] = [user("one"), answer("two")];
  on.host.messages = [first, reply];
  await on.call([first]);
  on.host.busy = false;
  const second = user("three");
  await admit(on, second);
  on.host.messages = [first, reply, second];
  await idle(on);
  await on.hooks.dispose();
  assert.equal(on.coordinator.of("/v1/sync").at(-1)?.idle, false);
});

test("a message queued in a run that was aborted is settled with it", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const ask = user("one");
  on.host.messages = [ask];
  await on.call([ask]);
  const queued = user("two");
  await admit(on, queued);
  on.host.messages = [ask, assistant({ error: { name: "MessageAbortedError" } }), queued];
  on.host.busy = false;
  await idle(on);
  await on.hooks.dispose();
  const last = on.coordinator.of("/v1/sync").at(-1);
  assert.equal(last?.idle, true);
  assert.deepEqual(last?.messages.map((m) => [m.final, m.opens]).at(-1), [true, false]);
});

test("a session that this process does not run is not followed", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const copied = answer("copied by a fork");
  on.host.messages = [copied];
  await happens(on, "message.updated", { info: copied.info });
  await idle(on);
  await on.hooks.dispose();
  assert.equal(on.coordinator.requests.length, 0);
});

test("a subagent's transcript stays private", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  on.host.sessions = [session(SESSION, { parentID: "ses_0" })];
  const ask = user("child prompt");
  on.host.messages = [ask];
  await admit(on, ask);
  const sent = await on.call([ask]);
  await idle(on);
  await on.hooks.dispose();
  assert.deepEqual(on.coordinator.of("/v1/sync"), []);
  assert.equal(JSON.stringify(on.coordinator.requests).includes("child prompt"), false);
  assert.equal(sent.system.length, 1);
});

test("a subagent's transcript is told where the coordinator takes it in, an internal one never", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  on.coordinator.subagents = true;
  const ask = user("child prompt");
  on.host.messages = [ask];
  on.host.sessions = [
    session(SESSION, { parentID: "ses_0", metadata: { optchat: { internal: true } } }),
  ];
  await admit(on, ask);
  await idle(on);
  assert.deepEqual(on.coordinator.of("/v1/sync"), []);
  const child = session(SESSION, { parentID: "ses_0" });
  await happens(on, "session.created", { info: child });
  await idle(on);
  await on.hooks.dispose();
  assert.equal(on.coordinator.of("/v1/sync").at(-1)?.session.parent_id, "ses_0");
});

test("that a session was archived is told once, whoever follows it", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const told = () => on.coordinator.of("/v1/follow").map((body) => body.session.archived);
  const open = session("ses_9");
  const away = session("ses_9", { time: { ...open.time, archived: 5 } });
  await happens(on, "session.created", { info: open });
  assert.deepEqual(told(), []);
  for (const info of [away, away, open, open]) await happens(on, "session.updated", { info });
  assert.deepEqual(told(), [true, false]);
  assert.deepEqual(on.coordinator.of("/v1/sync"), []);
});

test("a fork's origin is the session whose messages have the same times", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const prefix = [user("one"), answer("two")];
  const last = prefix.at(-1)?.info.time.created ?? 0;
  const fork = session(SESSION, {
    title: "A title (fork #2)",
    time: { created: last + 1, updated: last + 2 },
  });
  const named = session("ses_named", { title: "A title (fork #1)" });
  on.host.sessions = [session("ses_root"), session("ses_other"), named, fork];
  on.host.others.set("ses_root", [...prefix, user("later")]);
  on.host.others.set("ses_named", [...prefix, user("later too")]);
  on.host.others.set("ses_other", [user("else"), answer("else")]);
  const ask = user("in the fork");
  on.host.messages = [...prefix, ask];
  await on.call([...prefix, ask]);
  const told = on.coordinator.of("/v1/sync");
  // The origin's last words are brought up to date first, without a claim that it is at rest.
  assert.deepEqual(
    told.map((request) => [request.session.id, request.session.fork_of, request.idle]),
    [
      ["ses_named", null, false],
      [SESSION, "ses_named", false],
    ],
  );
});

test("a fork's origin that was rewound since is still found by what both have", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  const prefix = [user("one"), answer("two"), user("three"), answer("four")];
  const last = prefix.at(-1)?.info.time.created ?? 0;
  const fork = session(SESSION, { time: { created: last + 1, updated: last + 2 } });
  on.host.sessions = [session("ses_root"), session("ses_other"), fork];
  on.host.others.set("ses_root", [...prefix.slice(0, 2), user("another way")]);
  on.host.others.set("ses_other", [user("else"), answer("else")]);
  const ask = user("in the fork");
  on.host.messages = [...prefix, ask];
  await on.call([...prefix, ask]);
  assert.equal(on.coordinator.of("/v1/sync").at(-1)?.session.fork_of, "ses_root");
});

test("a session outside version control is known by its directory", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  on.host.sessions = [session(SESSION, { projectID: "global", directory: "/elsewhere" })];
  const ask = user("hello");
  on.host.messages = [ask];
  await on.call([ask]);
  const told = on.coordinator.of("/v1/sync")[0]?.session;
  assert.deepEqual(
    [told?.project_key, told?.project_directory, told?.worktree],
    ["dir:/elsewhere", "/elsewhere", null],
  );
});

test("a session whose memory is off is mentioned once", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  on.coordinator.answers = {
    "/v1/sync": () => ({ need: [], disabled: "its history was changed" }),
  };
  for (const ask of [user("a"), user("b")]) {
    on.host.messages = [ask];
    await on.call([ask]);
  }
  assert.deepEqual(
    on.host.said.map(({ message }) => message),
    ["its history was changed"],
  );
});
