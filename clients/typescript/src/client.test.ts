// The client and the worker before a real server. The environment has its URL, a key with all scopes, and a key that
// is not valid (tests/server/test_typescript_client.py of the repository starts the server).

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { Client, DibsError, NoAnswer, Permanent, Worker, type Handlers, type WorkerOptions } from "./index.js";

interface Types {
  resize: { params: { picture: number; width?: number }; result: { width: number } };
  mail: { params: { to: string }; result: string };
}

const { DIBS_URL: url = "", DIBS_API_KEY: apiKey = "", DIBS_WRONG_KEY: wrongKey = "" } = process.env;

/** Forwards to the server, keeps the paths of the requests, and can drop answers. */
class Relay {
  paths: string[] = [];
  toDrop = new Set<string>();
  readonly #server: Server = createServer(async (request, response) => {
    const body = [];
    for await (const chunk of request) body.push(chunk);
    const path = request.url!;
    this.paths.push(path);
    const { method = "GET", headers } = request;
    const content = method === "GET" ? null : Buffer.concat(body);
    const sent = { "X-API-Key": String(headers["x-api-key"]), "Content-Type": "application/json" };
    const answer = await fetch(url + path, { method, headers: sent, body: content });
    const text = await answer.text();
    if (this.toDrop.delete(path)) return void response.destroy();
    response.writeHead(answer.status, { "Content-Type": "application/json" }).end(text);
  });

  async open(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

const relay = new Relay();
const direct = new Client<Types>({ url, apiKey });
let client: Client<Types>;

before(async () => {
  client = new Client<Types>({ url: await relay.open(), apiKey });
});
after(() => relay.close());

/** A queue of this test alone, so that tests do not claim tasks of each other. */
const newQueue = () => `q-${randomBytes(6).toString("hex")}`;
const worker_id = "tester";

/** Run a worker until the work is done. */
async function withWorker(handlers: Handlers<Types>, options: WorkerOptions, work: () => Promise<void>): Promise<void> {
  const worker = new Worker(client, handlers, { wait: 5, grace: 5, signals: [], ...options });
  const running = worker.run();
  try {
    await work();
  } finally {
    worker.stop();
    await running;
  }
}

async function ended(id: number) {
  for (;;) {
    const task = await direct.get(id);
    if (task.status !== "pending" && task.status !== "claimed") return task;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("the types of params and results are checked by the compiler", async () => {
  const { task } = await client.enqueue("resize", { picture: 7, width: 80 }, { queue: newQueue(), priority: 3 });
  assert.equal(task.params.picture, 7);
  assert.equal(task.priority, 3);
  // @ts-expect-error: the param is a number; the server has no schema for the type and takes it
  await client.enqueue("resize", { picture: "seven" }, { queue: newQueue() });
  // @ts-expect-error: there is no such type
  await client.enqueue("rezise", { picture: 7 }, { queue: newQueue() });
  // @ts-expect-error: the result of resize is an object
  const handlers: Handlers<Types> = { resize: () => "done" };
  assert.ok(handlers);
});

test("a batch is stored whole or not at all", async () => {
  const queue = newQueue();
  const mail = (to: string) => ({ task_type: "mail" as const, params: { to }, queue });
  const { tasks } = await client.enqueueMany([mail("ada"), mail("bob")]);
  assert.deepEqual(tasks.map((task) => task.params), [{ to: "ada" }, { to: "bob" }]);
  await assert.rejects(client.enqueueMany([mail("eve"), { ...mail("fox"), max_attempts: -1 }]), { code: "bad_request" });
  assert.equal((await client.request("GET /api/tasks", { query: { queue } })).tasks.length, 2);
});

test("a claim is renewed, reports progress, and is completed under its token", async () => {
  const queue = newQueue();
  await client.enqueue("resize", { picture: 1 }, { queue });
  const [task] = await client.claim({ worker_id, queues: [queue] });
  assert.ok(task);
  assert.equal((await client.renew(task, 30)).cancel_requested, false);
  await client.progress(task, 40, "two of five");
  await client.cancel(task.id);
  assert.equal((await client.renew(task)).cancel_requested, true);
  assert.equal((await client.complete(task, { width: 8 })).repeated, false);
  assert.equal((await client.complete(task, { width: 8 })).repeated, true);
  const done = await client.get(task.id);
  assert.deepEqual([done.status, done.result, done.progress], ["completed", { width: 8 }, 40]);
});

test("a failed task is tried again, and a released one has lost no attempt", async () => {
  const queue = newQueue();
  await client.enqueue("mail", { to: "ada" }, { queue });
  const [first] = await client.claim({ worker_id, queues: [queue] });
  await client.release(first!);
  const [second] = await client.claim({ worker_id, queues: [queue] });
  assert.deepEqual([second!.attempts, second!.token], [0, 2]);
  const failure = { error_message: "no answer", error_code: "Timeout", retry_in_seconds: 60 };
  assert.equal((await client.fail(second!, failure)).will_retry, true);
});

test("an exchange finishes one task and claims the next", async () => {
  const queue = newQueue();
  const mail = (to: string) => ({ task_type: "mail" as const, params: { to }, queue });
  await client.enqueueMany([mail("ada"), mail("bob")]);
  const [task] = await client.claim({ worker_id, queues: [queue] });
  const outcomes = [{ outcome: "completed" as const, task_id: task!.id, token: task!.token, result: "sent" }];
  const { answers, tasks } = await client.exchange({ worker_id, outcomes, claim: { queues: [queue] } });
  assert.equal(answers[0]!.status, "completed");
  assert.deepEqual(tasks.map((each) => each.params), [{ to: "bob" }]);
});

test("a claim waits for a task, ends empty without one, and ends at once when its signal is aborted", async () => {
  const queue = newQueue();
  assert.deepEqual(await client.claim({ worker_id, queues: [queue], wait_seconds: 0.1 }), []);
  const waiting = client.claim({ worker_id, queues: [queue], wait_seconds: 20 });
  await direct.enqueue("mail", { to: "ada" }, { queue });
  assert.equal((await waiting).length, 1);
  const abort = new AbortController();
  const idle = client.claim({ worker_id, queues: [queue], wait_seconds: 20 }, { signal: abort.signal });
  abort.abort();
  await assert.rejects(idle, { name: "AbortError" });
});

test("a claim whose answer was lost is repeated and returns the same task", async () => {
  const queue = newQueue();
  await client.enqueue("mail", { to: "ada" }, { queue });
  relay.toDrop.add("/api/tasks/claim");
  const [task] = await client.claim({ worker_id, queues: [queue] });
  assert.deepEqual([task!.params, task!.token], [{ to: "ada" }, 1]);
});

test("an enqueue whose answer was lost is repeated only with a key", async () => {
  const queue = newQueue();
  relay.toDrop.add("/api/tasks");
  await assert.rejects(client.enqueue("mail", { to: "ada" }, { queue }), NoAnswer);
  relay.toDrop.add("/api/tasks");
  const options = { queue, idempotency_key: "bob", on_conflict: "raise" as const };
  assert.equal((await client.enqueue("mail", { to: "bob" }, options)).task.params.to, "bob");
  await assert.rejects(client.enqueue("mail", { to: "bob" }, options), { code: "key_conflict", status: 409 });
  assert.equal((await client.request("GET /api/tasks", { query: { queue } })).tasks.length, 2);
});

test("a refusal has a code, a status and a hint", async () => {
  const wrong = new Client({ url, apiKey: wrongKey });
  await assert.rejects(wrong.get(1), (error) => {
    assert.ok(error instanceof DibsError);
    assert.deepEqual([error.code, error.status], ["unauthorized", 401]);
    assert.match(error.hint ?? "", /key/);
    return true;
  });
  await assert.rejects(client.complete({ id: 10 ** 9, token: 1, worker_id }), { code: "task_not_found" });
});

test("without a server a read ends after retryFor, and a wrong path is refused before it is sent", async () => {
  const nowhere = new Client({ url: "http://127.0.0.1:9", retryFor: 0.3 });
  await assert.rejects(nowhere.get(1), NoAnswer);
  await assert.rejects(client.request("POST /api/queues/{name}/pause", { path: { name: ".." } }), TypeError);
});

test("a worker with the wrong key ends with an error", async () => {
  const worker = new Worker(new Client({ url, apiKey: wrongKey }), { mail: () => "sent" }, { signals: [] });
  await assert.rejects(worker.run(), { code: "unauthorized" });
});

test("a busy worker finishes and claims in one request, and runs each task once", async () => {
  const queue = newQueue();
  const seen: string[] = [];
  const names = Array.from({ length: 30 }, (_, n) => `${n}`);
  const { tasks } = await direct.enqueueMany(names.map((to) => ({ task_type: "mail", params: { to }, queue })));
  relay.paths = [];
  relay.toDrop.add("/api/tasks/exchange");
  const mail = ({ to }: { to: string }) => (seen.push(to), "sent");
  await withWorker({ mail }, { queues: [queue], concurrency: 3 }, async () => {
    for (const task of tasks) assert.equal((await ended(task.id)).status, "completed");
  });
  assert.deepEqual(seen.sort(), names.sort());
  const claims = relay.paths.filter((path) => path === "/api/tasks/claim");
  assert.ok(claims.length <= 3, `${claims.length} claims`);
});

test("a result that is refused fails its own task and no other", async () => {
  const queue = newQueue();
  const results: Record<string, string> = { large: "x".repeat(2 ** 20 - 20), huge: "x".repeat(2 ** 26) };
  const mail = async ({ to }: { to: string }) => results[to] ?? "sent";
  const names = ["ada", "large", "huge", "bob"];
  const { tasks } = await direct.enqueueMany(names.map((to) => ({ task_type: "mail", params: { to }, queue })));
  await withWorker({ mail }, { queues: [queue] }, async () => {
    const all = await Promise.all(tasks.map((task) => ended(task.id)));
    assert.deepEqual(all.map((task) => task.status), ["completed", "failed", "failed", "completed"]);
    assert.match(all[1]!.error!.message, /cannot be stored/);
    assert.match(all[2]!.error!.message, /cannot be stored/);
  });
});

test("a lost claim aborts the handler, and nothing is written about it", async () => {
  const queue = newQueue();
  const { task } = await direct.enqueue("mail", { to: "ada" }, { queue });
  relay.paths = [];
  let aborted = () => {};
  const lost = new Promise<void>((resolve) => (aborted = resolve));
  const mail = (_: object, { signal }: { signal: AbortSignal }) =>
    new Promise<string>((resolve) => signal.addEventListener("abort", () => (aborted(), resolve("too late"))));
  await withWorker({ mail }, { id: "loser", queues: [queue], lease: 3, concurrency: 1 }, async () => {
    while ((await direct.get(task.id)).status !== "claimed");
    await direct.release({ id: task.id, token: 1, worker_id: "loser" }, 60); // as another process of that name would
    await lost;
  });
  assert.deepEqual(relay.paths.filter((path) => /finish|exchange/.test(path)), []);
  const after = await direct.get(task.id);
  assert.deepEqual([after.status, after.token, after.result], ["scheduled", 1, null]);
});

test("a cancelled task ends as cancelled, and a permanent failure is not tried again", async () => {
  const queue = newQueue();
  const { tasks } = await direct.enqueueMany(
    ["wait", "fail"].map((to) => ({ task_type: "mail", params: { to }, queue, max_attempts: 5 })),
  );
  const mail = ({ to }: { to: string }, { signal }: { signal: AbortSignal }) => {
    if (to === "fail") throw new Permanent("no such address");
    return new Promise<string>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  await withWorker({ mail }, { queues: [queue], lease: 3 }, async () => {
    const failed = await ended(tasks[1]!.id);
    assert.deepEqual([failed.status, failed.attempts, failed.error?.message], ["failed", 1, "no such address"]);
    while ((await direct.get(tasks[0]!.id)).status !== "claimed");
    await direct.cancel(tasks[0]!.id);
    assert.equal((await ended(tasks[0]!.id)).status, "cancelled");
  });
});
