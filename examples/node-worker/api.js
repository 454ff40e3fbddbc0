// Requests to a dibs server, sent again until there is an answer.
//
// Everything that a worker sends may be sent twice: a claim carries a request_id, an outcome its token. So a reply
// that got lost, a server that restarts and a store that is busy are all met in the same way: rest, send it again.

import { setTimeout as sleep } from "node:timers/promises";

const ANSWER_SECONDS = 15; // beyond the wait that was asked for
const SHORTEST = 0.1, LONGEST = 10; // seconds between two tries
const AGAIN = new Set([408, 429, 500, 502, 503, 504]);

/** The server refused the request. */
export class Refused extends Error {
  constructor(status, answer) {
    super(`${status} ${answer.code ?? ""}: ${answer.error ?? answer.message}`);
    this.status = status;
    this.code = answer.code;
  }
}

export class Api {
  #url;
  #headers = { "Content-Type": "application/json" };

  constructor(url, key) {
    this.#url = url.replace(/\/+$/, "");
    if (key) this.#headers["X-API-Key"] = key;
  }

  /** The answer to a POST; throws Refused if the server refuses. `signal` ends the attempts. */
  async post(path, content, { waitSeconds = 0, signal } = {}) {
    const body = JSON.stringify(content);
    for (let failures = 1; ; failures++) {
      const { response, answer } = await this.#send(path, body, ANSWER_SECONDS + waitSeconds, signal);
      if (answer && response.ok) return answer;
      if (answer && !AGAIN.has(response.status)) throw new Refused(response.status, answer);
      const seconds = rest(failures, response);
      const reason = answer?.error ?? (response ? `status ${response.status} without JSON` : "no answer");
      console.error(`${path}: ${reason}; again in ${seconds.toFixed(1)} s`);
      await sleep(seconds * 1000, undefined, { signal });
    }
  }

  async #send(path, body, seconds, signal) {
    signal?.throwIfAborted();
    const patience = new AbortController();
    const giveUp = () => patience.abort();
    const timer = setTimeout(giveUp, seconds * 1000);
    signal?.addEventListener("abort", giveUp);
    let response;
    try {
      const options = { method: "POST", headers: this.#headers, body, signal: patience.signal, redirect: "manual" };
      response = await fetch(this.#url + path, options);
      return { response, answer: await response.json() };
    } catch {
      signal?.throwIfAborted();
      return { response }; // no answer, an incomplete answer, or not a dibs server
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", giveUp);
    }
  }
}

/** Seconds to wait: longer each time, never all workers at the same moment, never less than the server asks for. */
function rest(failures, response) {
  const grown = Math.min(LONGEST, SHORTEST * 2 ** Math.min(failures - 1, 10));
  const asked = Number(response?.headers.get("retry-after")) || 0;
  return asked + grown * (0.5 + Math.random() / 2);
}
