// The jobs of test_examples.py, as handlers of the Node worker.

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Permanent } from "../../clients/typescript/dist/index.js";

const jobs = {
  say: ({ word }) => ({ said: word }),
  break: () => {
    throw new Error("broken");
  },
  give_up: () => {
    throw new Permanent("no use");
  },
  nest: () => JSON.parse("[".repeat(70) + "]".repeat(70)),
  // Goes on until it is let go, whatever anybody says.
  hold: async ({ folder }, { task }) => {
    writeFileSync(join(folder, `${task.id}.${task.token}.began`), "");
    while (existsSync(folder) && !existsSync(join(folder, "go"))) await sleep(20);
    return { held: true };
  },
  // Goes on until it is asked to stop.
  listen: async ({ folder }, { task, signal }) => {
    writeFileSync(join(folder, `${task.id}.${task.token}.began`), "");
    await sleep(60_000, undefined, { signal });
  },
  step: async (_, { progress }) => {
    await progress(40, "two of five");
    throw new Permanent("that is far enough");
  },
};

export default { job: (params, context) => jobs[params.do](params, context) };
