import assert from "node:assert/strict";
import { test } from "node:test";
import type { HostMessage } from "../src/host.ts";
import { isCompacted, restore } from "../src/restore.ts";
import { answer, assistant, part, text, tool, user } from "./transcript.ts";

const pair = () => [
  user(part("compaction", { auto: true })),
  assistant({ summary: true, finish: "stop" }, "SUMMARY"),
];
const goOn = () => user(text("Continue", { metadata: { compaction_continue: true } }));
const step = () => assistant({ finish: "tool-calls" }, tool("bash"));

function ids(messages: readonly HostMessage[]): string[] {
  return messages.map(({ info }) => info.id);
}

test("a list without a compaction is not one to restore", () => {
  assert.equal(isCompacted([user("a"), answer("b")]), false);
  assert.equal(isCompacted([...pair(), user("a")]), true);
});

test("within a turn the request goes on as if there had been no compaction", () => {
  const turn = [user("ask"), step(), step()];
  const compaction = pair();
  const more = goOn();
  const stored = [...turn, ...compaction, more];
  assert.deepEqual(ids(restore([...compaction, more], stored).whole), ids(turn));
  const later = step();
  const { whole } = restore([...compaction, more, later], [...stored, later]);
  assert.deepEqual(ids(whole), ids([...turn, later]));
});

test("after an answer the host's word to go on is what there is to answer", () => {
  const turn = [user("ask"), answer("done")];
  const compaction = pair();
  const more = goOn();
  const { whole } = restore([...compaction, more], [...turn, ...compaction, more]);
  assert.deepEqual(ids(whole), ids([...turn, more]));
});

test("what the host keeps beside its summary stands in its old place, once", () => {
  const old = [user("one"), answer("two")];
  const tail = [user("three"), answer("four")];
  const compaction = pair();
  const ask = user("five");
  const given = [...compaction, ...tail, ask];
  const { whole } = restore(given, [...old, ...tail, ...compaction, ask]);
  assert.deepEqual(ids(whole), ids([...old, ...tail, ask]));
  assert.equal(whole[2], tail[0], "the request's own objects are used");
});

test("an answer that is being begun is not part of the request", () => {
  const old = [user("one"), answer("two")];
  const compaction = pair();
  const ask = user("three");
  const stored = [...old, ...compaction, ask, assistant({ open: true })];
  assert.deepEqual(ids(restore([...compaction, ask], stored).whole), ids([...old, ask]));
});

test("a reminder that is only in memory goes to the last thing that the user said", () => {
  const turn = [user("ask"), step()];
  const compaction = pair();
  const more = goOn();
  const reminder = text("plan only", { synthetic: true });
  const given = [...compaction, { ...more, parts: [...more.parts, reminder] }];
  const { whole } = restore(given, [...turn, ...compaction, more]);
  assert.deepEqual(whole[0]?.parts.at(-1), reminder);
  assert.deepEqual(turn[0]?.parts.length, 1);
});
