// What to do with each type of task: a function of its params. What it returns is the result; what it throws is how
// the attempt failed. The context has the task, a signal to stop by, and progress(percent, message).

import { setTimeout as sleep } from "node:timers/promises";
import { Permanent } from "../../clients/typescript/dist/index.js";

export default {
  async greet({ name }) {
    if (!name) throw new Permanent("The task has no name to greet."); // no retry will bring a name
    return { greeting: `Hello, ${name}!` };
  },

  async count({ to = 10, seconds = 0.1 }, { signal, progress }) {
    for (let n = 1; n <= to; n++) {
      await sleep(seconds * 1000, undefined, { signal }); // throws when the task is lost or asked to stop
      await progress(Math.floor((100 * n) / to), `${n} of ${to}`);
    }
    return { counted: to };
  },
};
