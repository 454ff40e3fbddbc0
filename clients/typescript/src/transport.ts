// One request and its repetitions. A repetition is sent unchanged, after a growing random pause, and never sooner than
// the server asks for.

import { setTimeout as sleep } from "node:timers/promises";
import { DibsError, NoAnswer } from "./errors.js";
import type { Refusal } from "./types.js";

const SHORTEST = 0.1;
const LONGEST = 10; // seconds between two requests
const LONGEST_TIMER = 2 ** 31 - 1; // milliseconds
const NOTHING_WAS_DONE = new Set([408, 429]);
const MAYBE_DONE = new Set([500, 502, 503, 504]);

export interface CallOptions {
  /** Ends the call and its repetitions. */
  signal?: AbortSignal | undefined;
  /** Seconds to wait for the answer to one request. */
  timeout?: number | undefined;
  /** Seconds after which a request is not repeated any more; 0: never repeat. */
  retryFor?: number | undefined;
}

export interface Call {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string | undefined;
  /** Whether a repetition has no second effect. */
  repeatable: boolean;
  timeout: number;
  retryFor: number;
  signal: AbortSignal | undefined;
  onRetry: (message: string) => void;
}

/** The content of the answer. Throws DibsError if the server refuses, and NoAnswer if there is no answer in time. */
export async function send(call: Call): Promise<unknown> {
  const begun = performance.now();
  for (let failures = 1; ; failures++) {
    const { content, error, retryAfter } = await sendOnce(call);
    if (error === undefined) return content;
    const pause = retryAfter + growing(failures);
    const tooLate = (performance.now() - begun) / 1000 + pause > call.retryFor;
    if (tooLate || !mayRepeat(error, call.repeatable)) throw error;
    call.onRetry(`${call.method} ${new URL(call.url).pathname}: ${error.message}; again in ${pause.toFixed(1)} s`);
    await sleep(Math.min(pause * 1000, LONGEST_TIMER), undefined, { signal: call.signal });
  }
}

/** Whether the request was not carried out, or carrying it out again has no second effect. */
function mayRepeat(error: DibsError | NoAnswer, repeatable: boolean): boolean {
  if (error instanceof NoAnswer) return repeatable;
  if (NOTHING_WAS_DONE.has(error.status)) return true;
  if (error.status === 503 && error.code !== undefined && error.code !== "outcome_unknown") return true;
  return repeatable && MAYBE_DONE.has(error.status) && error.code !== "store_refused";
}

/** Seconds to wait: longer each time, and random, so that many clients do not come back at the same moment. */
function growing(failures: number): number {
  return Math.min(LONGEST, SHORTEST * 2 ** Math.min(failures - 1, 10)) * (0.5 + Math.random() / 2);
}

interface Result {
  content?: unknown;
  error?: DibsError | NoAnswer;
  retryAfter: number;
}

async function sendOnce(call: Call): Promise<Result> {
  call.signal?.throwIfAborted();
  const request = new AbortController();
  const giveUp = () => request.abort();
  const timer = setTimeout(giveUp, call.timeout * 1000);
  call.signal?.addEventListener("abort", giveUp);
  try {
    const { method, headers, body = null } = call;
    const response = await fetch(call.url, { method, headers, body, signal: request.signal, redirect: "manual" });
    return await read(response);
  } catch (error) {
    call.signal?.throwIfAborted();
    const reason = request.signal.aborted ? `no answer in ${call.timeout} s` : `no answer (${cause(error)})`;
    return { error: new NoAnswer(reason, { cause: error }), retryAfter: 0 };
  } finally {
    clearTimeout(timer);
    call.signal?.removeEventListener("abort", giveUp);
  }
}

async function read(response: Response): Promise<Result> {
  const retryAfter = Number(response.headers.get("retry-after")) || 0;
  const text = await response.text();
  const content = parsed(text);
  if (response.ok && content !== undefined) return { content, retryAfter };
  if (response.ok) return { error: new NoAnswer("the answer is not JSON"), retryAfter };
  return { error: new DibsError(response.status, content ?? { error: "The answer is not from a dibs server." }), retryAfter };
}

function parsed(text: string): Partial<Refusal> | undefined {
  try {
    const content: unknown = JSON.parse(text);
    return typeof content === "object" && content !== null ? content : undefined;
  } catch {
    return undefined;
  }
}

function cause(error: unknown): string {
  const { cause, message } = error as { cause?: { code?: string; message?: string }; message?: string };
  return cause?.code ?? cause?.message ?? message ?? String(error);
}
