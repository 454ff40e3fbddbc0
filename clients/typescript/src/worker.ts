// A worker: claims tasks, runs a handler for each, renews their leases, writes their outcomes.
//
// Three rules make it safe. Every write about a task has the token of its claim. A request without an answer is
// repeated unchanged. And when a claim is lost, another worker may have the task: stop, write nothing.

import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { Attempt, completed, failed, unstorable, type ClaimAnswer, type Outcome } from "./attempt.js";
import { newId, type AnyTypes, type Client, type TaskOf, type TaskTypes, type TypeName } from "./client.js";
import { DibsError } from "./errors.js";
import { Outbox } from "./outbox.js";
import type { CallOptions } from "./transport.js";
import type { Finished, FinishBody, Refusal, Task } from "./types.js";

const HEARTBEAT_SECONDS = 30;
const LAST_WRITES_SECONDS = 15; // after the grace period, for outcomes and releases that are not answered yet
const MOST_TASKS = 1000; // of one request
const CLAIM_PAUSE_SECONDS = 5; // after an error of the server
const UNSTORABLE = new Set(["invalid_value", "bad_request", "too_large"]);

export interface Context<T extends TaskTypes<T> = AnyTypes, K extends TypeName<T> = TypeName<T>> {
  task: TaskOf<T, K>;
  /** Aborted when the claim is lost, the cancellation was requested, the timeout is over, or the worker gives up. */
  signal: AbortSignal;
  /** Report progress in percent. Throws when the handler should stop. */
  progress(percent: number, message?: string): Promise<void>;
}

/** A function for each task type: what it returns is the result, what it throws is how the attempt failed. */
export type Handlers<T extends TaskTypes<T> = AnyTypes> = {
  [K in TypeName<T>]?: (
    params: T[K]["params"],
    context: Context<T, K>,
  ) => T[K]["result"] | Promise<T[K]["result"]>;
};

export interface WorkerOptions {
  /** Its name: letters, digits, `_` and `-`; by default host, process and a random part. */
  id?: string | undefined;
  /** Only tasks of these queues; by default all. */
  queues?: string[] | undefined;
  /** Handlers at the same time (4). */
  concurrency?: number | undefined;
  /** Tasks to claim beyond those that can start now (0): for many short tasks. */
  ahead?: number | undefined;
  /** Seconds after which other workers get its tasks if it vanishes (60). It renews every third of that. */
  lease?: number | undefined;
  /** Seconds that running handlers have after a signal to stop (25). */
  grace?: number | undefined;
  /** Seconds that a claim waits for a task (20, at most 60). */
  wait?: number | undefined;
  /** Signals that stop the worker (SIGTERM and SIGINT). */
  signals?: NodeJS.Signals[] | undefined;
  /** Called with a line for each event. */
  log?: ((line: string) => void) | undefined;
}

type Settings = { [K in keyof Omit<WorkerOptions, "queues">]-?: NonNullable<WorkerOptions[K]> } & {
  queues: string[] | undefined;
};
type Handler = (params: object, context: object) => unknown;

export class Worker<T extends TaskTypes<T> = AnyTypes> {
  readonly #client: Client<T>;
  readonly #handlers: Map<string, Handler>;
  readonly #options: Settings;
  readonly #incarnation = newId();
  readonly #outbox = new Outbox(
    (outcomes) => this.#finish(outcomes),
    (outcomes) => this.#finishOnly(outcomes),
  );
  readonly #running = new Map<Attempt, Promise<void>>();
  readonly #stop = new AbortController();
  readonly #giveUp = new AbortController(); // ends the requests of a worker that cannot reach the server at its end
  #waiting: Attempt[] = []; // claimed, not begun
  #claiming = false; // a request that may bring tasks is on its way
  #wake: () => void = () => {};

  constructor(client: Client<T>, handlers: Handlers<T>, options: WorkerOptions = {}) {
    this.#client = client;
    this.#handlers = new Map(Object.entries(handlers) as Array<[string, Handler]>);
    const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
    this.#options = { ...defaults(), ...given };
    if (this.#handlers.size === 0) throw new TypeError("A worker needs a handler.");
    const { concurrency, ahead, wait } = this.#options;
    if (!(wait > 0 && wait <= 60)) throw new RangeError("wait must be more than 0 and at most 60 seconds.");
    if (!(concurrency >= 1 && ahead >= 0)) throw new RangeError("concurrency must be at least 1, ahead at least 0.");
    if (concurrency + ahead > MOST_TASKS) throw new RangeError(`A worker holds at most ${MOST_TASKS} tasks.`);
    if (!(this.#options.lease > 0)) throw new RangeError("lease must be more than 0 seconds.");
  }

  get id(): string {
    return this.#options.id;
  }

  /**
   * Work until stop() is called or a signal arrives; then release what has not begun, and let the rest end for as long
   * as the grace period lasts. Throws if the server refuses the worker, for example because of its key.
   */
  async run(): Promise<void> {
    const { signals, lease } = this.#options;
    const stop = () => this.stop();
    signals.forEach((each) => process.once(each, stop));
    this.#options.log(`${this.id} begins: ${[...this.#handlers.keys()].join(", ")}`);
    const timers = [every(HEARTBEAT_SECONDS, () => this.#heartbeat()), every(lease / 3, () => this.#renew())];
    void this.#heartbeat();
    try {
      await this.#claimUntilStopped();
    } finally {
      this.stop();
      await this.#drain();
      timers.forEach((each) => clearInterval(each));
      signals.forEach((each) => process.removeListener(each, stop));
    }
  }

  /** Begin to stop; run() returns when that is done. */
  stop(): void {
    if (this.#stop.signal.aborted) return;
    this.#options.log(`${this.id} stops`);
    this.#stop.abort();
    this.#wake();
  }

  // Claiming

  async #claimUntilStopped(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      if (this.#claiming || this.#room <= 0) await new Promise<void>((resolve) => (this.#wake = resolve));
      else await this.#claim();
    }
  }

  /** How many more tasks the worker takes. */
  get #room(): number {
    const { concurrency, ahead } = this.#options;
    return concurrency + ahead - this.#running.size - this.#waiting.length;
  }

  async #claim(): Promise<void> {
    const body = { worker_id: this.id, ...this.#wanted(this.#room), wait_seconds: this.#options.wait };
    this.#claiming = true;
    try {
      this.#take(await this.#client.claim(body, { retryFor: Infinity, signal: this.#stop.signal }));
    } catch (error) {
      if (!this.#stop.signal.aborted) await this.#pauseAfter(error);
    } finally {
      this.#claiming = false;
    }
  }

  /** Wait after an error of the server; throws what only a person can mend, such as a wrong key. */
  async #pauseAfter(error: unknown): Promise<void> {
    if (!(error instanceof DibsError && error.status >= 500)) throw error;
    this.#options.log(error.message);
    await sleep(CLAIM_PAUSE_SECONDS * 1000, undefined, { signal: this.#stop.signal }).catch(() => {});
  }

  #wanted(count: number) {
    const { queues, lease: lease_seconds, ahead } = this.#options;
    const task_types = [...this.#handlers.keys()];
    return { incarnation: this.#incarnation, queues, task_types, lease_seconds, ahead: ahead > 0, count };
  }

  #take(tasks: Array<TaskOf<T>>): void {
    this.#waiting.push(...tasks.map((task) => new Attempt(task as Task)));
    this.#begin();
  }

  #begin(): void {
    const { concurrency } = this.#options;
    while (this.#waiting.length > 0 && this.#running.size < concurrency && !this.#stop.signal.aborted) {
      const attempt = this.#waiting.shift()!;
      this.#running.set(attempt, this.#run(attempt).finally(() => this.#ended(attempt)));
    }
  }

  #ended(attempt: Attempt): void {
    this.#running.delete(attempt);
    this.#begin();
    this.#wake();
  }

  // One attempt

  async #run(attempt: Attempt): Promise<void> {
    const { id, token } = attempt.task;
    const outcome = await this.#outcome(attempt);
    attempt.decided = true;
    if (attempt.released) return;
    if (!attempt.lost) await this.#write(attempt, outcome).catch((error: Error) => this.#unwritten(attempt, error));
    this.#options.log(`task ${id} (token ${token}) ${attempt.lost ? "is lost" : outcome.outcome}`);
  }

  async #outcome(attempt: Attempt): Promise<Outcome> {
    const { task, signal } = attempt;
    const clock = attempt.startClock();
    try {
      // Its last worker vanished, or it may have expired while it waited here: its start is written down.
      if (this.#options.ahead > 0 && (task.dropped > 0 || task.expires_at)) await this.#start(attempt);
      const context = { task, signal, progress: (n: number, text?: string) => this.#progress(attempt, n, text) };
      const handler = this.#handlers.get(task.task_type)!;
      return completed(await Promise.race([handler(task.params, context), attempt.timedOut]));
    } catch (error) {
      if (error instanceof DibsError && error.code === "task_expired") return { outcome: "released" };
      return attempt.cancelled ? { outcome: "cancelled" } : failed(attempt.expired ?? error);
    } finally {
      clearTimeout(clock);
    }
  }

  async #write(attempt: Attempt, outcome: Outcome): Promise<void> {
    const answer = await this.#outbox.add(attempt, outcome);
    if ("code" in answer && outcome.outcome === "completed") {
      if (UNSTORABLE.has(answer.code)) return this.#write(attempt, unstorable(answer.error));
      if (answer.code === "store_refused") return this.#write(attempt, failed(new Error("The store refused the result.")));
    }
    attempt.note(answer);
    if ("code" in answer && !attempt.lost) this.#options.log(`task ${attempt.task.id}: ${answer.code}: ${answer.error}`);
  }

  #unwritten(attempt: Attempt, error: Error): void {
    attempt.lost = true; // its lease ends without an outcome
    this.#options.log(`task ${attempt.task.id}: its outcome was not written: ${error.message}`);
  }

  /** Finish these tasks. If no claim is on its way, every place was taken: then claim as many more in the same request. */
  async #finish(outcomes: FinishBody["outcomes"]): Promise<Array<Finished | Refusal>> {
    if (this.#claiming || this.#stop.signal.aborted) return this.#finishOnly(outcomes);
    const count = this.#room + outcomes.length;
    this.#claiming = true;
    try {
      const body = { worker_id: this.id, outcomes, claim: this.#wanted(count) };
      const { answers, tasks } = await this.#client.exchange(body, this.#always);
      this.#take(tasks);
      return answers;
    } finally {
      this.#claiming = false;
      this.#wake();
    }
  }

  async #finishOnly(outcomes: FinishBody["outcomes"]): Promise<Array<Finished | Refusal>> {
    return (await this.#client.finish({ worker_id: this.id, outcomes }, this.#always)).answers;
  }

  get #always(): CallOptions {
    return { retryFor: Infinity, signal: this.#giveUp.signal };
  }

  async #start(attempt: Attempt): Promise<void> {
    const body = { worker_id: this.id, claims: [attempt.ref] };
    const call = { ...this.#always, repeatable: true };
    const { answers } = await this.#client.request("POST /api/tasks/start", { body }, call);
    const answer = answers[0]!;
    this.#check(attempt, answer);
    if ("code" in answer) throw new DibsError(409, answer);
  }

  async #progress(attempt: Attempt, percent: number, message?: string): Promise<void> {
    try {
      this.#check(attempt, await this.#client.progress(attempt.task, percent, message, this.#always));
    } catch (error) {
      if (error instanceof DibsError) this.#check(attempt, error.answer as Refusal);
      throw error;
    }
  }

  /** Note the answer about a running attempt; throws if its handler should stop. */
  #check(attempt: Attempt, answer: ClaimAnswer): void {
    if (!attempt.decided) attempt.note(answer);
    attempt.signal.throwIfAborted();
  }

  // Leases and heartbeats

  async #renew(): Promise<void> {
    const attempts = [...this.#waiting, ...this.#running.keys()].filter((attempt) => !attempt.lost && !attempt.released);
    if (attempts.length === 0) return;
    const { lease } = this.#options;
    const body = { worker_id: this.id, claims: attempts.map((attempt) => attempt.ref), lease_seconds: lease };
    const call = { ...this.#always, timeout: Math.min(15, Math.max(1, lease / 3)) };
    const { answers } = await this.#client.renewMany(body, call);
    // A renewal may cross with an outcome: once that is decided, only the answer to the outcome counts.
    attempts.forEach((attempt, n) => attempt.decided || attempt.note(answers[n]!));
    this.#waiting = this.#waiting.filter((attempt) => !attempt.lost);
  }

  /** List the worker among the workers. Nothing else depends on it. */
  async #heartbeat(leaving = false): Promise<void> {
    const task_types = [...this.#handlers.keys()];
    const body = { worker_id: this.id, incarnation: this.#incarnation, queues: this.#options.queues, task_types, leaving };
    const call = { retryFor: leaving ? 0 : HEARTBEAT_SECONDS, timeout: leaving ? 2 : 15, signal: this.#giveUp.signal };
    await this.#client.heartbeat(body, call).catch((error: Error) => this.#options.log(error.message));
  }

  // The end

  async #drain(): Promise<void> {
    const { grace } = this.#options;
    const giveUp = setTimeout(() => this.#giveUp.abort(), (grace + LAST_WRITES_SECONDS) * 1000);
    await this.#release(this.#waiting.splice(0));
    const ended = new AbortController();
    await Promise.race([this.#settled(), sleep(grace * 1000, undefined, { signal: ended.signal }).catch(() => {})]);
    ended.abort();
    const undecided = [...this.#running.keys()].filter((attempt) => !attempt.decided && !attempt.lost);
    await this.#release([...this.#waiting.splice(0), ...undecided]);
    await this.#settled([...this.#running.keys()].filter((attempt) => attempt.decided && !attempt.released));
    await this.#heartbeat(true);
    clearTimeout(giveUp);
    this.#giveUp.abort();
  }

  #settled(attempts: Iterable<Attempt> = this.#running.keys()): Promise<unknown> {
    return Promise.allSettled([...attempts].map((attempt) => this.#running.get(attempt)));
  }

  /** Give tasks back. Their handlers are aborted, and what those do afterwards is not written. */
  async #release(attempts: Attempt[]): Promise<void> {
    if (attempts.length === 0) return;
    const outcomes = attempts.map((attempt) => ({ ...attempt.ref, outcome: "released" as const }));
    attempts.forEach((attempt) => (attempt.released = true));
    try {
      await this.#finishOnly(outcomes);
      this.#options.log(`${this.id} released ${attempts.length} of its tasks`);
    } catch (error) {
      this.#options.log(`${this.id} could not release ${attempts.length} of its tasks: ${(error as Error).message}`);
    } finally {
      attempts.forEach((attempt) => attempt.stop());
    }
  }
}

function defaults(): Settings {
  const id = `${hostname()}-${process.pid}-${newId().slice(0, 6)}`.replace(/[^A-Za-z0-9_-]/g, "-");
  const signals: NodeJS.Signals[] = ["SIGTERM", "SIGINT"];
  return { id, queues: undefined, concurrency: 4, ahead: 0, lease: 60, grace: 25, wait: 20, signals, log: () => {} };
}

/** Call a function again and again, and never while the last call is not done. */
function every(seconds: number, work: () => Promise<void>): NodeJS.Timeout {
  let busy = false;
  const tick = () => {
    if (busy) return;
    busy = true;
    void work().catch(() => {}).finally(() => (busy = false)); // the client has logged what failed
  };
  return setInterval(tick, seconds * 1000);
}
