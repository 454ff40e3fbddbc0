// A worker: claims tasks in batches, runs a handler for each, renews their leases, writes their outcomes.
//
// Three rules make it safe. Every write about a task has the token of its claim. A request without an answer is
// repeated unchanged. And when a claim is lost, another worker may have the task: stop, write nothing.

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Refused } from "./api.js";
import { Attempt, Permanent, failed } from "./attempt.js";

const BEAT_SECONDS = 30;
const UNSTORABLE = new Set(["invalid_value", "bad_request", "too_large"]);

export class Worker {
  #api;
  #handlers;
  #options;
  #waiting = []; // claimed, not begun
  #running = new Map(); // attempt -> promise
  #stop = new AbortController();
  #wake = () => {};

  constructor(api, handlers, options) {
    this.#api = api;
    this.#handlers = handlers;
    this.#options = { ...options, incarnation: randomBytes(8).toString("hex") };
  }

  /** Work until stop() is called; then give back what has not begun, and finish the rest. */
  async run() {
    const timers = [every(BEAT_SECONDS, () => this.#beat()), every(this.#options.lease / 3, () => this.#renew())];
    this.#beat();
    try {
      while (!this.#stop.signal.aborted) await this.#claim();
    } catch (error) {
      if (!this.#stop.signal.aborted) throw error; // for example a key without permission
    } finally {
      await this.#drain();
      timers.forEach(clearInterval);
    }
  }

  stop() {
    this.#stop.abort();
    this.#wake();
  }

  async #claim() {
    const { concurrency, ahead, wait } = this.#options;
    const count = concurrency + ahead - this.#running.size;
    if (this.#waiting.length > 0 || count <= 0) return new Promise((resolve) => (this.#wake = resolve));
    const request = { ...this.#filters(), count, wait_seconds: wait, request_id: randomBytes(12).toString("hex") };
    const { tasks } = await this.#api
      .post("/api/tasks/claim", request, { waitSeconds: wait, signal: this.#stop.signal })
      .catch(noneFound);
    this.#waiting.push(...tasks.map((task) => new Attempt(task)));
    this.#begin();
  }

  #filters() {
    const { id: worker_id, incarnation, queues, lease: lease_seconds, ahead } = this.#options;
    const task_types = Object.keys(this.#handlers);
    return { worker_id, incarnation, queues, task_types, lease_seconds, ahead: ahead > 0 };
  }

  #begin() {
    const { concurrency } = this.#options;
    while (this.#waiting.length > 0 && this.#running.size < concurrency && !this.#stop.signal.aborted) {
      const attempt = this.#waiting.shift();
      this.#running.set(attempt, this.#run(attempt).finally(() => this.#ended(attempt)));
    }
  }

  #ended(attempt) {
    this.#running.delete(attempt);
    this.#begin();
    this.#wake();
  }

  async #run(attempt) {
    const outcome = await this.#outcome(attempt);
    attempt.over = true;
    if (!attempt.lost) await this.#write(attempt, outcome);
    console.log(`task ${attempt.task.id} (token ${attempt.task.token}) ${attempt.lost ? "is lost" : outcome.outcome}`);
  }

  async #outcome(attempt) {
    const { task, signal } = attempt;
    const clock = attempt.startClock();
    try {
      if (task.dropped > 0) await this.#start(attempt); // its last worker vanished: now its start is written down
      const context = { task, signal, progress: (percent, message) => this.#progress(attempt, percent, message) };
      const result = await Promise.race([this.#handlers[task.task_type](task.params, context), attempt.timedOut]);
      JSON.stringify(result); // a result that is not JSON is a failure, too
      return { outcome: "completed", result };
    } catch (error) {
      return attempt.cancelled ? { outcome: "cancelled" } : failed(attempt.expired ?? error);
    } finally {
      clearTimeout(clock);
    }
  }

  async #write(attempt, outcome) {
    const [answer] = await this.#finish([attempt], outcome);
    if (outcome.outcome === "completed" && UNSTORABLE.has(answer.code)) {
      await this.#write(attempt, failed(new Permanent(`The result cannot be stored: ${answer.error}`)));
    } else {
      attempt.hear(answer);
    }
  }

  #finish(attempts, outcome) {
    const outcomes = attempts.map((attempt) => ({ ...attempt.ref, ...outcome }));
    return this.#ask("/api/tasks/finish", { outcomes }, attempts);
  }

  #start(attempt) {
    return this.#note("/api/tasks/start", { claims: [attempt.ref] }, attempt);
  }

  #progress(attempt, progress, message) {
    return this.#note("/api/tasks/progress", { notes: [{ ...attempt.ref, progress, message }] }, attempt);
  }

  /** Report progress to the server; throws if the handler should stop. */
  async #note(path, content, attempt) {
    const [answer] = await this.#ask(path, content, [attempt]);
    attempt.hear(answer);
    attempt.signal.throwIfAborted();
    if (!answer.success) throw new Error(answer.error);
  }

  async #renew() {
    const attempts = [...this.#waiting, ...this.#running.keys()].filter((attempt) => !attempt.lost);
    if (attempts.length === 0) return;
    const content = { claims: attempts.map((attempt) => attempt.ref), lease_seconds: this.#options.lease };
    const answers = await this.#ask("/api/tasks/renew", content, attempts);
    // Renewed also while its outcome is on the way; but then only the answer to the outcome counts.
    attempts.forEach((attempt, n) => attempt.over || attempt.hear(answers[n]));
    this.#waiting = this.#waiting.filter((attempt) => !attempt.lost);
  }

  /** One answer for each attempt; if the request as a whole was refused, that is the answer to each. */
  async #ask(path, content, attempts) {
    try {
      return (await this.#api.post(path, { worker_id: this.#options.id, ...content })).answers;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      console.error(error.message);
      return attempts.map(() => ({ success: false, code: error.code, error: error.message }));
    }
  }

  /** Send a heartbeat, for the list of workers. Nothing else depends on it. */
  async #beat(leaving = false) {
    const { id: worker_id, incarnation, queues } = this.#options;
    const body = { worker_id, incarnation, queues, task_types: Object.keys(this.#handlers), leaving };
    const signal = leaving ? AbortSignal.timeout(2000) : undefined;
    await this.#api.post("/api/workers/heartbeat", body, { signal }).catch((error) => console.error(error.message));
  }

  async #drain() {
    await this.#release(this.#waiting.splice(0));
    await Promise.race([Promise.all(this.#running.values()), sleep(this.#options.grace * 1000)]);
    await this.#release([...this.#running.keys()]); // no time left: other workers will start them again
    await this.#beat(true);
  }

  async #release(attempts) {
    if (attempts.length === 0) return;
    await this.#finish(attempts, { outcome: "released" });
    console.log(`gave back ${attempts.length} of its tasks`);
  }
}

function noneFound(error) {
  if (error instanceof Refused && error.status === 404 && error.code === undefined) return { tasks: [] };
  throw error;
}

/** Call it again and again, and never while the last call is not done. */
function every(seconds, work) {
  let busy = false;
  return setInterval(async () => {
    if (busy) return;
    busy = true;
    await work().finally(() => (busy = false));
  }, seconds * 1000);
}
