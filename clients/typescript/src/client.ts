// The verbs of the HTTP API, typed. A request is repeated after a lost answer only if a repetition has no second
// effect: a claim has a request id, an outcome the token of its claim, an enqueue its idempotency key.

import { randomBytes } from "node:crypto";
import { DibsError } from "./errors.js";
import { send, type CallOptions } from "./transport.js";
import type {
  ClaimBody,
  Created,
  CreatedBatch,
  Exchanged,
  ExchangeBody,
  FailBody,
  Finished,
  FinishedAnswers,
  FinishBody,
  HeartbeatBody,
  JsonValue,
  NewTaskBody,
  Operations,
  Renewed,
  RenewedAnswers,
  RenewManyBody,
  Task,
} from "./types.js";

/** The params and the result of each task type of a program. */
export type TaskTypes<T> = { [K in keyof T]: { params: object; result?: unknown } };
export type AnyTypes = Record<string, { params: any; result: any }>;
export type TypeName<T> = keyof T & string;

/** A task with the types of its params and result. */
export type TaskOf<T extends TaskTypes<T>, K extends TypeName<T> = TypeName<T>> = {
  [Name in K]: Omit<Task, "task_type" | "params" | "result"> & {
    task_type: Name;
    params: T[Name]["params"];
    result: T[Name]["result"] | null;
  };
}[K];

type EnqueueOptions = Omit<NewTaskBody, "task_type" | "params">;
export type NewTask<T extends TaskTypes<T>> = {
  [Name in TypeName<T>]: EnqueueOptions & { task_type: Name; params: T[Name]["params"] };
}[TypeName<T>];

/** A claimed task, or as much of it as a write about it needs. */
export type Claim = Pick<Task, "id" | "token" | "worker_id">;

export interface ClientOptions {
  /** The server; by default the environment variable DIBS_URL, or http://127.0.0.1:8787. */
  url?: string | undefined;
  /** The API key; by default the environment variable DIBS_API_KEY. */
  apiKey?: string | undefined;
  /** A name that the history shows beside the id of the key. */
  signature?: string | undefined;
  /** Seconds to wait for the answer to one request (15), in addition to `wait_seconds`. */
  timeout?: number | undefined;
  /** Seconds during which a request that may be repeated is repeated (30). */
  retryFor?: number | undefined;
  /** Called before each pause. */
  onRetry?: ((message: string) => void) | undefined;
}

type Path = { [name: string]: string | number };
type Input<Op extends keyof Operations> = {
  path?: Path;
  query?: Operations[Op]["query"];
  body?: Operations[Op]["body"];
};
type WithRequestId<B> = Omit<B, "request_id"> & { request_id?: string };

export class Client<T extends TaskTypes<T> = AnyTypes> {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #options: { timeout: number; retryFor: number; onRetry: (message: string) => void };

  constructor(options: ClientOptions = {}) {
    const { DIBS_URL, DIBS_API_KEY } = process.env;
    const key = options.apiKey ?? DIBS_API_KEY;
    this.#url = (options.url ?? DIBS_URL ?? "http://127.0.0.1:8787").replace(/\/+$/, "");
    this.#headers = {
      ...(key ? { "X-API-Key": key } : {}),
      ...(options.signature ? { "X-Dibs-Signature": options.signature } : {}),
    };
    const { timeout = 15, retryFor = 30, onRetry = () => {} } = options;
    this.#options = { timeout, retryFor, onRetry };
  }

  // Enqueue and read

  /**
   * Enqueue a task. When it returns, the task is on disk. If the answer is lost, it is repeated only with an
   * `idempotency_key`; without one it throws NoAnswer, and the task may be stored.
   */
  async enqueue<K extends TypeName<T>>(
    type: K,
    params: T[K]["params"],
    options: EnqueueOptions = {},
    call?: CallOptions,
  ): Promise<Omit<Created, "task"> & { task: TaskOf<T, K> }> {
    const body = repeatableTask({ ...options, task_type: type, params: params as NewTaskBody["params"] });
    const repeatable = typeof body.idempotency_key === "string";
    return (await this.request("POST /api/tasks", { body }, { ...call, repeatable })) as never;
  }

  /** Enqueue up to 1,000 tasks in one transaction, all or none. */
  async enqueueMany(
    tasks: ReadonlyArray<NewTask<T>>,
    call?: CallOptions,
  ): Promise<Omit<CreatedBatch, "tasks"> & { tasks: Array<TaskOf<T>> }> {
    const bodies = tasks.map((task) => repeatableTask(task as NewTaskBody));
    const repeatable = bodies.every((body) => typeof body.idempotency_key === "string");
    return (await this.request("POST /api/tasks/batch", { body: { tasks: bodies } }, { ...call, repeatable })) as never;
  }

  async get(id: number, call?: CallOptions): Promise<TaskOf<T>> {
    return (await this.request("GET /api/tasks/{id}", { path: { id } }, call)).task as TaskOf<T>;
  }

  /** Cancel a task that waits; of a running task, request the cancellation. */
  async cancel(id: number, call?: CallOptions): Promise<TaskOf<T>> {
    return (await this.request("POST /api/tasks/{id}/cancel", { path: { id } }, call)).task as TaskOf<T>;
  }

  // Claim and finish

  /** Claim up to `count` tasks (1), and wait up to `wait_seconds` for the first. An empty list: there was none. */
  async claim(body: WithRequestId<ClaimBody>, call: CallOptions = {}): Promise<Array<TaskOf<T>>> {
    const full = { count: 1, request_id: newId(), ...body };
    const wait = body.wait_seconds ?? 0;
    const timeout = (call.timeout ?? this.#options.timeout) + wait;
    const retryFor = (call.retryFor ?? this.#options.retryFor) + wait;
    const patient = { ...call, timeout, retryFor, repeatable: true };
    try {
      const answer = await this.request("POST /api/tasks/claim", { body: full }, patient);
      return (answer.tasks ?? [answer.task]) as Array<TaskOf<T>>;
    } catch (error) {
      if (error instanceof DibsError && error.status === 404 && "filters" in error.answer) return [];
      throw error;
    }
  }

  /** Extend the lease of a claim. The answer has `cancel_requested`. */
  renew(claim: Claim, lease_seconds = 60, call?: CallOptions): Promise<Renewed> {
    return this.#write("POST /api/tasks/{id}/renew", claim, { lease_seconds }, call);
  }

  renewMany(body: RenewManyBody, call?: CallOptions): Promise<RenewedAnswers> {
    return this.request("POST /api/tasks/renew", { body }, { ...call, repeatable: true });
  }

  complete(claim: Claim, result?: unknown, call?: CallOptions): Promise<Finished> {
    return this.#write("POST /api/tasks/{id}/complete", claim, { result: result as JsonValue }, call);
  }

  fail(claim: Claim, failure: Omit<FailBody, "worker_id" | "token">, call?: CallOptions): Promise<Finished> {
    return this.#write("POST /api/tasks/{id}/fail", claim, failure, call);
  }

  /** Give a task back. That spends no attempt. */
  release(claim: Claim, delay_seconds?: number, call?: CallOptions): Promise<Finished> {
    return this.#write("POST /api/tasks/{id}/release", claim, { delay_seconds }, call);
  }

  /** Report progress in percent. The answer has `cancel_requested`. */
  progress(claim: Claim, progress: number, message?: string, call?: CallOptions) {
    return this.#write("POST /api/tasks/{id}/progress", claim, { progress, message }, call);
  }

  /** Finish many tasks. There is an answer for each outcome; a refusal has a `code`. */
  finish(body: FinishBody, call?: CallOptions): Promise<FinishedAnswers> {
    return this.request("POST /api/tasks/finish", { body }, { ...call, repeatable: true });
  }

  /** Finish tasks and claim the next ones, in one transaction. It does not wait for tasks. */
  async exchange(
    body: ExchangeBody,
    call?: CallOptions,
  ): Promise<Omit<Exchanged, "tasks"> & { tasks: Array<TaskOf<T>> }> {
    const full = { ...body, claim: { request_id: newId(), ...body.claim } };
    return (await this.request("POST /api/tasks/exchange", { body: full }, { ...call, repeatable: true })) as never;
  }

  /** List a worker among the workers. */
  heartbeat(body: HeartbeatBody, call?: CallOptions) {
    return this.request("POST /api/workers/heartbeat", { body }, { ...call, repeatable: true });
  }

  /**
   * Any operation of the API, by its method and path. A GET is repeated after a lost answer, another operation only with
   * `repeatable: true`.
   */
  async request<Op extends keyof Operations>(
    operation: Op,
    input: Input<Op> = {},
    call: CallOptions & { repeatable?: boolean } = {},
  ): Promise<Operations[Op]["answer"]> {
    const [method = "", path = ""] = operation.split(" ");
    const body = input.body === undefined ? undefined : JSON.stringify(input.body);
    return (await send({
      method,
      url: this.#url + filled(path, input.path ?? {}) + queryOf(input.query),
      headers: body === undefined ? this.#headers : { ...this.#headers, "Content-Type": "application/json" },
      body,
      repeatable: call.repeatable ?? method === "GET",
      timeout: call.timeout ?? this.#options.timeout,
      retryFor: call.retryFor ?? this.#options.retryFor,
      signal: call.signal,
      onRetry: this.#options.onRetry,
    })) as Operations[Op]["answer"];
  }

  /** A write about a claimed task, under its token. */
  #write<Op extends keyof Operations>(operation: Op, claim: Claim, fields: object, call?: CallOptions) {
    const body = { worker_id: claim.worker_id, token: claim.token, ...fields } as Operations[Op]["body"];
    return this.request(operation, { path: { id: claim.id }, body }, { ...call, repeatable: true });
  }
}

/** A new id for a request. */
export function newId(): string {
  return randomBytes(12).toString("hex");
}

/** The task with a request id if its key alone does not make a repetition safe. */
function repeatableTask(task: NewTaskBody): NewTaskBody {
  const keyEnds = (task.key_scope ?? "always") !== "always" || task.key_for_seconds != null;
  const needsId = typeof task.idempotency_key === "string" && (keyEnds || (task.on_conflict ?? "return") !== "return");
  return needsId ? { request_id: newId(), ...task } : task;
}

function filled(path: string, values: Path): string {
  return path.replace(/{(\w+)}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new TypeError(`The path ${path} needs ${name}.`);
    if (/^\.{0,2}$/.test(String(value))) throw new TypeError(`'${value}' cannot be a part of a path.`);
    return encodeURIComponent(value);
  });
}

function queryOf(query: object | undefined): string {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined);
  const texts = given.map(([name, value]): [string, string] => [name, String(value)]);
  return texts.length === 0 ? "" : `?${new URLSearchParams(texts)}`;
}
