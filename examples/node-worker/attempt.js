// An attempt: a claimed task, until its outcome is written or its claim is lost.

const LOST = new Set(["claim_lost", "not_your_claim", "task_not_found"]);

/** Thrown by a handler: trying again would not help. */
export class Permanent extends Error {
  name = "Permanent";
}

export class Attempt {
  #abort = new AbortController();
  #timeOut;
  expired; // the error, once its time was over
  over = false; // its outcome is decided, maybe not yet written
  lost = false;
  cancelled = false;

  constructor(task) {
    this.task = task;
    this.ref = { task_id: task.id, token: task.token };
    this.timedOut = new Promise((_, reject) => (this.#timeOut = reject));
    this.timedOut.catch(() => {}); // it may be rejected when no code awaits it any more
  }

  get signal() {
    return this.#abort.signal;
  }

  /** The status of the claim at the server: held, requested to stop, or lost. */
  hear(answer) {
    this.lost ||= LOST.has(answer.code);
    this.cancelled ||= answer.cancel_requested === true;
    if (this.lost) this.#abort.abort(new Error(answer.error));
    if (this.cancelled) this.#abort.abort(new Error("The cancellation of the task was requested."));
  }

  /** Start the clock of the task's own timeout, if it has one. */
  startClock() {
    const seconds = this.task.timeout_seconds;
    return seconds === null ? undefined : setTimeout(() => this.#expire(seconds), seconds * 1000);
  }

  #expire(seconds) {
    this.expired = Object.assign(new Error(`It took longer than ${seconds} s.`), { name: "Timeout" });
    this.#abort.abort(this.expired);
    this.#timeOut(this.expired); // a handler that does not listen is left behind: nothing can stop it
  }
}

/** The outcome of an attempt that threw this. */
export function failed(error) {
  return {
    outcome: "failed",
    error_message: String(error?.message ?? error),
    error_code: error?.name ?? "Error",
    traceback: error?.stack?.slice(-10_000),
    retryable: !(error instanceof Permanent),
    retry_in_seconds: error?.retryIn, // a delay of its own, if the error names one
  };
}
