import assert from "node:assert/strict";
import { test } from "node:test";
import type { HostMessage } from "../src/host.ts";
import { mapMessages, rolesOf, type Watched } from "../src/map.ts";
import { answer, assistant, part, text, tool, user } from "./transcript.ts";

const UNWATCHED: Watched = {
  opens: new Map(),
  loaded: new Set(),
  begun: new Set(),
  settled: false,
};

function mapped(messages: HostMessage[], watched: Partial<Watched> = {}) {
  return mapMessages(messages, { ...UNWATCHED, ...watched });
}

function ends(...messages: HostMessage[]) {
  return mapped(messages).map(({ final, terminal }) => [final, terminal ?? null]);
}

test("reasoning and step marks never leave the process", () => {
  const message = answer(
    part("reasoning", { text: "hidden thought" }),
    "said",
    part("step-finish"),
    part("patch"),
  );
  const [found] = mapped([message]);
  assert.deepEqual(
    found?.parts?.map(({ type }) => type),
    ["text"],
  );
  assert.ok(!JSON.stringify(found).includes("hidden thought"));
});

test("an attachment is a manifest without its bytes", () => {
  const data = Buffer.from("twelve bytes").toString("base64");
  const file = part("file", {
    mime: "image/png",
    filename: "a.png",
    url: `data:image/png;base64,${data}`,
  });
  const path = part("file", { mime: "text/plain", url: "file:///project/a.txt" });
  const [found] = mapped([user(file, path)]);
  assert.deepEqual(found?.parts, [
    {
      type: "file",
      id: file.id,
      mime: "image/png",
      filename: "a.png",
      url: "data:",
      content_bytes: 12,
    },
    { type: "file", id: path.id, mime: "text/plain", filename: "", url: "file:///project/a.txt" },
  ]);
});

test("the answer of our own tool goes by reference", () => {
  const optchat = { refs: ["pub:1"], snapshot: "pub<2", sha256: "ab" };
  const own = tool("memory_zoom", { output: "foreign text", metadata: { optchat } });
  const aborted = tool("memory_search", { status: "error", error: "Tool execution aborted" });
  const [found] = mapped([answer(own, aborted)]);
  assert.ok(!JSON.stringify(found).includes("foreign text"));
  const [first, second] = found?.parts ?? [];
  assert.deepEqual(first?.type === "tool" && first.own, optchat);
  assert.deepEqual(second?.type === "tool" && second.own, { refs: [], snapshot: "", sha256: "" });
});

test("a tool part says what the host cut off and whether it is a subagent's report", () => {
  const metadata = { truncated: true, outputPath: "/tool_1" };
  const [found] = mapped([answer(tool("bash", { metadata }), tool("task"))]);
  const [bash, task] = found?.parts ?? [];
  assert.equal(bash?.type === "tool" && bash.full_output_path, "/tool_1");
  assert.equal(bash?.type === "tool" && bash.input_json, '{"a":1}');
  assert.equal(task?.type === "tool" && task.report, true);
});

test("half a character, left by a cut, does not make the request unreadable", () => {
  const cut = "cut \ud83d";
  const [found] = mapped([answer(cut, tool("bash", { output: cut, input: { text: cut } }))]);
  assert.ok(JSON.stringify(found).isWellFormed());
  assert.doesNotMatch(JSON.stringify(found), /\\ud83d/);
});

test("a digest depends on the content alone", () => {
  const message = user("same");
  const copy = { ...user("same"), info: { ...user().info, summary: { diffs: [1] } } };
  const [a, b, c] = mapped([message, copy as HostMessage, user("other")]);
  assert.equal(a?.digest, b?.digest);
  assert.notEqual(a?.digest, c?.digest);
});

test("a finished answer ends its run, a tool call does not", () => {
  assert.deepEqual(ends(answer("done")), [[true, "completed"]]);
  assert.deepEqual(ends(assistant({ finish: "tool-calls" }, tool("bash"))), [[true, null]]);
  assert.deepEqual(ends(assistant({ finish: "length" }, "cut")), [[true, "completed"]]);
});

test("an error ends a run as interrupted or failed", () => {
  const aborted = assistant({ error: { name: "MessageAbortedError" } }, "partial");
  const failed = assistant({ error: { name: "APIError" }, finish: "tool-calls" });
  assert.deepEqual(ends(aborted, failed), [
    [true, "interrupted"],
    [true, "failed"],
  ]);
});

test("an answer aborted while it waited for a retry has neither error nor finish", () => {
  const aborted = assistant({});
  assert.deepEqual(ends(aborted, user("next"))[0], [true, "interrupted"]);
  const [settled] = mapped([aborted], { settled: true });
  assert.equal(settled?.terminal, "interrupted");
  // Until then it may as well have been too long, and a compaction be about to follow.
  assert.deepEqual(ends(aborted), [[true, null]]);
});

test("a command that the user ran himself is a completed run", () => {
  const shell = assistant({}, tool("bash"));
  shell.parts.shift();
  assert.deepEqual(ends(shell), [[true, "completed"]]);
  const running = assistant({}, tool("bash", { status: "running" }));
  running.parts.shift();
  assert.deepEqual(ends(running), [[false, null]]);
});

test("an open answer is final once another follows it, or once its own process is settled", () => {
  const open = assistant({ open: true }, "lost");
  assert.deepEqual(ends(open), [[false, null]]);
  assert.deepEqual(ends(open, user("next"), answer("ok"))[0], [true, "interrupted"]);
  assert.deepEqual(ends(open, user("steering"))[0], [false, null]);
  const [foreign] = mapped([open], { settled: true });
  assert.equal(foreign?.final, false);
  const [own] = mapped([open], { settled: true, begun: new Set([open.info.id]) });
  assert.deepEqual([own?.final, own?.terminal], [true, "interrupted"]);
});

test("a user's message is final once the host has sent it, for its parts are written after it", () => {
  const message = user();
  assert.equal(mapped([message])[0]?.final, false);
  assert.equal(mapped([message], { loaded: new Set([message.info.id]) })[0]?.final, true);
  assert.equal(mapped([message, assistant({ open: true })])[0]?.final, true);
});

test("a message says whether it opened a turn, if somebody watched", () => {
  const messages = [user("a"), user("b"), user("c")];
  const [a, b] = messages.map(({ info }) => info.id);
  const opens = new Map([
    [a ?? "", true],
    [b ?? "", false],
  ]);
  assert.deepEqual(
    mapped(messages, { opens }).map((m) => m.opens),
    [true, false, null],
  );
});

test("the host's compaction and its continuation give no records", () => {
  const pair = [
    user(part("compaction", { auto: true })),
    assistant({ summary: true, finish: "stop" }, "S"),
  ];
  const go = user(text("Continue", { synthetic: true, metadata: { compaction_continue: true } }));
  assert.deepEqual(rolesOf([user("a"), ...pair, go, answer("b")]), [
    "user",
    "other",
    "other",
    "other",
    "assistant",
  ]);
  assert.deepEqual(
    mapped(pair).map(({ parts }) => parts),
    [[], []],
  );
});

test("the copy of a message after an overflow is not a second message", () => {
  const image = part("file", {
    mime: "image/png",
    filename: "a.png",
    url: "data:image/png;base64,AA==",
  });
  const overflowed = assistant({});
  const pair = [
    user(part("compaction", { auto: true, overflow: true })),
    assistant({ summary: true, finish: "stop" }, "S"),
  ];
  const messages = [
    user("ask", image),
    overflowed,
    ...pair,
    user("ask", "[Attached image/png: a.png]"),
    answer("b"),
  ];
  assert.deepEqual(rolesOf(messages), [
    "user",
    "assistant",
    "other",
    "other",
    "other",
    "assistant",
  ]);
  assert.deepEqual(ends(...messages)[1], [true, null]);
  assert.deepEqual(rolesOf([...messages, user("ask")]).at(-1), "user");
});
