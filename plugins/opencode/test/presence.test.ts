import assert from "node:assert/strict";
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type Stage, session, stage, until } from "./stub.ts";
import { SESSION, user } from "./transcript.ts";

function store({ coordinator }: Stage): string {
  const folder = join(coordinator.folder, "opencode");
  mkdirSync(folder, { recursive: true });
  const path = join(folder, "opencode.db");
  writeFileSync(path, "");
  return path;
}

async function turn(on: Stage, text = "hello"): Promise<void> {
  const ask = user(text);
  on.host.messages = [...on.host.messages, ask];
  const given = { message: ask.info, parts: ask.parts };
  await on.hooks["chat.message"]({ sessionID: SESSION }, given as never);
  await on.call(on.host.messages);
}

function compared(on: Stage) {
  return on.coordinator.of("/v1/present").map(({ ids, gone }) => ({ ids, gone }));
}

/** A coordinator that holds these sessions. */
function holds(on: Stage, ...held: string[]): void {
  on.coordinator.answers["/v1/present"] = ({ ids, gone }) => ({
    missing: held.filter((id) => !ids.includes(id) && !gone?.includes(id)),
    forgotten: gone?.length ?? 0,
  });
}

test("a session that the host denies by its id is told as gone, before the turn is assembled", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  store(on);
  holds(on, "ses_gone");
  await turn(on);
  assert.deepEqual(compared(on).slice(0, 2), [
    { ids: [SESSION], gone: [] },
    { ids: [SESSION], gone: ["ses_gone"] },
  ]);
  const paths = on.coordinator.requests.map(({ path }) => path);
  assert.ok(paths.lastIndexOf("/v1/present") < paths.indexOf("/v1/assemble"));
});

test("a session that is only not in the list is kept, and asked about once", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  store(on);
  holds(on, "ses_elsewhere");
  on.host.sessions.push(session("ses_elsewhere", { directory: "/project/below" }));
  on.host.listed = [session(SESSION)];
  await turn(on);
  await turn(on, "and again");
  assert.ok(compared(on).every(({ gone }) => gone?.length === 0));
  assert.deepEqual(compared(on).at(-1)?.ids, [SESSION, "ses_elsewhere"]);
});

test("an answer that is no clear denial tells nothing", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  store(on);
  holds(on, "ses_gone");
  on.host.missing = { status: 500 };
  on.host.listed = [];
  await turn(on);
  assert.ok(compared(on).every(({ gone }) => gone?.length === 0));
});

test("without the host's store nothing is compared, and another file is another store", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  await turn(on);
  assert.deepEqual(compared(on), []);
  const path = store(on);
  await turn(on, "with it");
  renameSync(path, `${path}.old`);
  store(on);
  await turn(on, "another");
  rmSync(`${path}.old`);
  const stores = on.coordinator.of("/v1/present").map((request) => request.store);
  assert.equal(new Set(stores).size, 2);
  assert.equal(on.coordinator.of("/v1/sync").at(-1)?.session.store, stores.at(-1));
});

test("an event of a deletion is a reason to compare, and a failure is none to stop a turn", async (t) => {
  const on = await stage();
  t.after(() => on.coordinator.stop());
  store(on);
  const info = { id: "ses_gone", time: {} };
  await on.hooks.event({ event: { type: "session.deleted", properties: { info } } as never });
  await until(() => compared(on).length > 0);
  on.coordinator.answers["/v1/present"] = () => {
    throw new Error("broken");
  };
  on.coordinator.answers["/v1/present"] = () => ({ nonsense: true });
  await turn(on);
  assert.equal(on.coordinator.of("/v1/assemble").length, 1);
});
