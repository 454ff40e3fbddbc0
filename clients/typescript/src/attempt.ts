// An attempt: a claimed task, until its outcome is written or its claim is lost.

import { Permanent } from "./errors.js";
import type { FinishBody, JsonValue, Refusal, Task } from "./types.js";

type WithRef<O> = O extends unknown ? Omit<O, "task_id" | "token"> : never;
/** How an attempt ended. */
export type Outcome = WithRef<FinishBody["outcomes"][number]>;
/** What the server answers about a claim. */
export type ClaimAnswer = { success?: boolean; cancel_requested?: boolean } | Refusal;

const LONGEST_TEXT = 10_000;
const MAX_RESULT_BYTES = 2 ** 20; // the largest body that the server reads
const LOST = new Set(["claim_lost", "not_your_claim", "task_not_found"]);

export class Attempt {
  readonly ref: { task_id: number; token: number };
  /** Rejects at the end of the timeout. A handler that does not listen to its signal is left behind. */
  readonly timedOut: Promise<never>;
  /** The outcome is decided, but perhaps not yet written. */
  decided = false;
  lost = false;
  released = false;
  cancelled = false;
  expired: Error | undefined;
  readonly #abort = new AbortController();
  #reject: (error: Error) => void = () => {};

  constructor(readonly task: Task) {
    this.ref = { task_id: task.id, token: task.token };
    this.timedOut = new Promise((_, reject) => (this.#reject = reject));
    this.timedOut.catch(() => {}); // it may be rejected when no code awaits it any more
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Note what the server answered: the claim is held, is lost, or the cancellation of the task was requested. */
  note(answer: ClaimAnswer): void {
    if ("code" in answer && LOST.has(answer.code)) {
      this.lost = true;
      this.#abort.abort(new Error(answer.error));
    } else if ("cancel_requested" in answer && answer.cancel_requested) {
      this.cancelled = true;
      this.#abort.abort(new Error("The cancellation of the task was requested."));
    }
  }

  /** Abort the handler: its task goes back to the queue. */
  stop(): void {
    this.#abort.abort(new Error("The worker stops."));
  }

  /** Start the clock of the timeout of the task, if it has one. */
  startClock(): NodeJS.Timeout | undefined {
    const seconds = this.task.timeout_seconds;
    return seconds === null ? undefined : setTimeout(() => this.#expire(seconds), Math.min(seconds * 1000, 2 ** 31 - 1));
  }

  #expire(seconds: number): void {
    this.expired = Object.assign(new Error(`It took longer than ${seconds} s.`), { name: "Timeout" });
    this.#abort.abort(this.expired);
    this.#reject(this.expired);
  }
}

/** The outcome of an attempt that threw this. An error may have `retryIn`: the seconds until the next attempt. */
export function failed(thrown: unknown): Outcome {
  const error = thrown as { message?: unknown; name?: unknown; stack?: unknown; retryIn?: unknown } | null | undefined;
  return {
    outcome: "failed",
    error_message: String(error?.message ?? thrown).slice(-LONGEST_TEXT),
    error_code: typeof error?.name === "string" ? error.name : "Error",
    traceback: typeof error?.stack === "string" ? error.stack.slice(-LONGEST_TEXT) : null,
    retryable: !(thrown instanceof Permanent),
    retry_in_seconds: typeof error?.retryIn === "number" ? error.retryIn : null,
  };
}

/** The outcome of an attempt with this result. */
export function completed(result: unknown): Outcome {
  try {
    const bytes = Buffer.byteLength(JSON.stringify(result) ?? "");
    return bytes > MAX_RESULT_BYTES ? unstorable(`it has ${bytes} bytes.`) : { outcome: "completed", result: result as JsonValue };
  } catch (error) {
    return unstorable((error as Error).message);
  }
}

/** The outcome of a result that JSON or the server does not accept. */
export function unstorable(reason: string): Outcome {
  return failed(new Permanent(`The result cannot be stored: ${reason}`));
}
