import assert from "node:assert/strict";
import { test } from "node:test";
import { Connection } from "../src/connection.ts";
import { Failure, inert, Stop } from "../src/failure.ts";
import { Coordinator } from "./stub.ts";

const HEALTH = { version: "0", protocol: 1, epoch: 1, pid: 1, home: "/" };

async function pair(): Promise<[Coordinator, Connection]> {
  const coordinator = await new Coordinator().start();
  coordinator.answers = { "/v1/health": () => HEALTH };
  return [coordinator, new Connection([coordinator.ensure])];
}

function failsWith(code: string): (thrown: unknown) => boolean {
  return (thrown) => thrown instanceof Failure && thrown.info.code === code;
}

test("callers share one start and one connection", async (t) => {
  const [coordinator, connection] = await pair();
  t.after(() => coordinator.stop());
  const asked = [1, 2, 3].map(() => connection.ask("/v1/health", undefined, 5_000));
  assert.deepEqual(await Promise.all(asked), [HEALTH, HEALTH, HEALTH]);
  assert.equal(coordinator.runs, 1);
  assert.deepEqual(
    coordinator.requests.map(({ protocol }) => protocol),
    ["1", "1", "1"],
  );
});

test("a coordinator that went away is started again within the request", async (t) => {
  const [coordinator, connection] = await pair();
  await connection.ask("/v1/health", undefined, 5_000);
  await coordinator.stop();
  await coordinator.start();
  t.after(() => coordinator.stop());
  assert.deepEqual(await connection.ask("/v1/health", undefined, 5_000), HEALTH);
});

test("a coordinator that does not come back is unreachable, at once", async () => {
  const [coordinator, connection] = await pair();
  await connection.ask("/v1/health", undefined, 5_000);
  await coordinator.stop();
  await assert.rejects(connection.ask("/v1/health", undefined, 5_000), failsWith("unreachable"));
  assert.ok(coordinator.runs > 1);
});

test("a start that fails is not tried again at once", async () => {
  const coordinator = new Coordinator();
  coordinator.writeEnsure(
    `echo run >> ${coordinator.folder}/runs\necho 'no room left' >&2\nexit 3`,
  );
  const connection = new Connection([coordinator.ensure]);
  for (let i = 0; i < 3; i++)
    await assert.rejects(connection.ask("/v1/health", undefined, 5_000), /no room left/);
  assert.equal(coordinator.runs, 1);
});

test("a program that is not there is named", async () => {
  const connection = new Connection(["/nowhere/optchat"]);
  await assert.rejects(connection.ask("/v1/health", undefined, 5_000), /\/nowhere\/optchat ensure/);
});

test("a start that leaves its output open is not waited for", async (t) => {
  const [coordinator, connection] = await pair();
  t.after(() => coordinator.stop());
  coordinator.writeEnsure(`echo '{"socket":"${coordinator.socket}"}'\nsleep 3`);
  const begun = Date.now();
  await connection.ask("/v1/health", undefined, 5_000);
  assert.ok(Date.now() - begun < 2_000);
});

test("an answer that does not come is a timeout, within its bound", async (t) => {
  const [coordinator, connection] = await pair();
  t.after(() => coordinator.stop());
  coordinator.answers = { "/v1/health": () => new Promise(() => undefined) };
  const begun = Date.now();
  await assert.rejects(connection.ask("/v1/health", undefined, 200), failsWith("timeout"));
  assert.ok(Date.now() - begun < 1_000);
});

test("an aborted call is left", async (t) => {
  const [coordinator, connection] = await pair();
  t.after(() => coordinator.stop());
  coordinator.answers = { "/v1/health": () => new Promise(() => undefined) };
  const abort = new AbortController();
  const asked = connection.ask("/v1/health", undefined, 5_000, abort.signal);
  setTimeout(() => abort.abort(), 20);
  await assert.rejects(asked, failsWith("timeout"));
});

test("an error of the coordinator keeps its code and hint", async (t) => {
  const [coordinator, connection] = await pair();
  t.after(() => coordinator.stop());
  const error = { code: "version_mismatch", message: "m", hint: "h", retryable: false };
  coordinator.failure = { status: 426, body: { error } };
  await assert.rejects(connection.ask("/v1/health", undefined, 5_000), (thrown: unknown) => {
    assert.deepEqual((thrown as Failure).info, error);
    return true;
  });
});

test("a deliberate stop never reads like a passing failure", () => {
  // What the host retries on, as read in its release 1.18.33.
  const transient = [
    /429|500|502|503|504|524/i,
    /rate increased too quickly|rate limit|rate-limit|rate_limit|too many requests|too_many_requests/i,
    /overloaded|service unavailable|internal error|server error|provider returned error/i,
    /terminated|fetch failed|failed to fetch|network[-_\s]error|upstream connect|connection refused/i,
    /socket hang up|reset before headers|getaddrinfo|enotfound|eai_again|econnrefused|etimedout/i,
    /^timeout$|\b(?:request|response|connection|network|stream|read) (?:timeout|timed out|time out)\b/i,
    /try your request again|retry your request|resource exhausted|exhausted|unavailable/i,
    /\btry again (?:later|in\b)|\b(?:currently|temporarily) at capacity\b/i,
  ];
  const message =
    "15042 tokens, 503: service unavailable, exhausted, overloaded, server error, rate limit, request " +
    "timed out, too many requests, connection refused, try again later, temporarily at capacity";
  const stop = new Stop({
    code: "too_many_requests",
    message,
    hint: "fetch failed",
    retryable: true,
  });
  for (const pattern of transient) assert.doesNotMatch(stop.message, pattern);
  assert.equal(stop.message.replaceAll("\u2060", "").includes(message), true);
  assert.equal(
    inert("the view needs 12 kB (memory_not_ready)"),
    "the view needs 12 kB (memory_not_ready)",
  );
});
