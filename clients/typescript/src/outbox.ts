// Decided outcomes on their way to the server: all that are decided while a request is on its way share the next one.

import type { Attempt, Outcome } from "./attempt.js";
import { DibsError } from "./errors.js";
import type { Finished, FinishBody, Refusal } from "./types.js";

type Answer = Finished | Refusal;
type Outcomes = FinishBody["outcomes"];
interface Decided {
  outcome: Outcomes[number];
  bytes: number;
  resolve: (answer: Answer) => void;
  reject: (error: unknown) => void;
}

const MAX_OUTCOMES = 100;
const MAX_BYTES = 2 ** 19; // of several outcomes in a request; a larger outcome is sent alone

export class Outbox {
  readonly #queue: Decided[] = [];
  readonly #write: (outcomes: Outcomes) => Promise<Answer[]>;
  readonly #writeAlone: (outcomes: Outcomes) => Promise<Answer[]>;
  #writing = false;

  /** `write` sends a batch; `writeAlone` sends one outcome of a batch that was refused as a whole. */
  constructor(
    write: (outcomes: Outcomes) => Promise<Answer[]>,
    writeAlone: (outcomes: Outcomes) => Promise<Answer[]>,
  ) {
    this.#write = write;
    this.#writeAlone = writeAlone;
  }

  /** Write an outcome. The answer is a refusal if the server refuses it. */
  add(attempt: Attempt, outcome: Outcome): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const whole = { ...attempt.ref, ...outcome } as Outcomes[number];
      this.#queue.push({ outcome: whole, bytes: Buffer.byteLength(JSON.stringify(whole)), resolve, reject });
      if (!this.#writing) void this.#flush();
    });
  }

  async #flush(): Promise<void> {
    this.#writing = true;
    while (this.#queue.length > 0) {
      await new Promise(setImmediate); // attempts that end now share the request
      await this.#send(this.#batch());
    }
    this.#writing = false;
  }

  #batch(): Decided[] {
    let bytes = 0;
    const tooMuch = this.#queue.findIndex((each, n) => n === MAX_OUTCOMES || ((bytes += each.bytes) > MAX_BYTES && n > 0));
    return this.#queue.splice(0, tooMuch === -1 ? this.#queue.length : tooMuch);
  }

  async #send(batch: Decided[]): Promise<void> {
    try {
      const answers = await this.#write(batch.map((each) => each.outcome));
      batch.forEach((each, n) => each.resolve(answers[n]!));
    } catch (error) {
      if (error instanceof DibsError) await Promise.all(batch.map((each) => this.#sendAlone(each)));
      else batch.forEach((each) => each.reject(error));
    }
  }

  async #sendAlone({ outcome, resolve, reject }: Decided): Promise<void> {
    try {
      resolve((await this.#writeAlone([outcome]))[0]!);
    } catch (error) {
      if (!(error instanceof DibsError)) return reject(error);
      resolve({ success: false, error: error.message, code: error.code ?? String(error.status) });
    }
  }
}
