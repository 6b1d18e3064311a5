import assert from "node:assert/strict";
import { test } from "node:test";
import { type Measured, measure, measureMessage, measureMessages } from "../src/sizes.ts";
import { answer, assistant, part, text, tool, user } from "./transcript.ts";

// [text, letters, spaces, symbols, other bytes], as optchat.core.budget.measure counts them.
const CASES: [string, number, number, number, number][] = [
  ["", 0, 0, 0, 0],
  ["Hello, world 1\n\t", 10, 4, 2, 0],
  ["naïve café", 7, 1, 0, 4],
  ["日本語のテキスト", 0, 0, 0, 24],
  ["🙂 ok 👩\u200d👩\u200d👧", 2, 2, 0, 22],
  ["a\x0bb\x0cc\r", 3, 1, 2, 0],
];

test("sizes are counted as the coordinator counts them", () => {
  for (const [content, letters, spaces, symbols, other_bytes] of CASES)
    assert.deepEqual(measure(content), { letters, spaces, symbols, other_bytes, media: 0 });
});

test("what the host does not send costs nothing", () => {
  const letters = (...parts: Parameters<typeof user>) => measureMessage(user(...parts)).letters;
  assert.equal(letters("abc", text("ignored", { ignored: true }), part("agent")), 3);
  assert.equal(
    measureMessage(user(part("file", { mime: "text/plain", url: "file:///a" }))).media,
    0,
  );
  assert.equal(measureMessage(user(part("file", { mime: "image/png", url: "data:" }))).media, 1);
  assert.equal(measureMessage(assistant({ error: { name: "APIError" } }, "abc")).letters, 0);
  assert.equal(
    measureMessage(assistant({ error: { name: "MessageAbortedError" } }, "abc")).letters,
    3,
  );
});

test("a pruned tool output costs what the host puts in its place", () => {
  const output = "x".repeat(5_000);
  const whole = measureMessage(answer(tool("bash", { output })));
  const pruned = measureMessage(answer(tool("bash", { output, time: { compacted: 1 } })));
  assert.ok(whole.letters > 5_000 && pruned.letters < 100);
});

test("a message is counted again when it has grown, ended or been pruned", () => {
  const known = new Map<string, Measured>();
  const message = answer("abc", tool("bash", { status: "running" }));
  const letters = () => measureMessages([message], known)[0]?.letters;
  const running = letters();
  assert.equal(letters(), running);
  message.parts = [text("abcd"), tool("bash", { output: "x".repeat(100) })];
  assert.equal(letters(), 4 + "basha".length + 100);
  message.parts = [text("abcd"), tool("bash", { output: "x".repeat(100), time: { compacted: 1 } })];
  assert.equal(letters(), 4 + "basha".length + "Oldtoolresultcontentcleared".length);
});
