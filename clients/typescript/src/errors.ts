import type { Refusal } from "./types.js";

/** The server refused a request. `code` is for programs, the message for people, `hint` describes what to do. */
export class DibsError extends Error {
  override name = "DibsError";
  readonly code: string | undefined;
  readonly hint: string | undefined;

  /** `answer`: the body of the response, with the id, token and status of the task where they matter. */
  constructor(readonly status: number, readonly answer: Partial<Refusal>) {
    super(`${answer.code ?? "refused"} (${status}): ${answer.error ?? answer.message ?? "The answer has no reason."}`);
    this.code = answer.code;
    this.hint = answer.hint;
  }
}

/** The server did not answer. The request may have been carried out. */
export class NoAnswer extends Error {
  override name = "NoAnswer";
}

/** Thrown by a handler: the task fails, and is not tried again. */
export class Permanent extends Error {
  override name = "Permanent";
}
