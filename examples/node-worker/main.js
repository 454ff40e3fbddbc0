// node main.js HANDLERS: a worker with the handlers of that module. The environment has the settings.

import { hostname } from "node:os";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Api } from "./api.js";
import { Worker } from "./worker.js";

const { env } = process;
const name = `${hostname()}-${process.pid}`.replace(/[^A-Za-z0-9_-]/g, "-");
const options = {
  id: env.WORKER_ID ?? name,
  queues: env.QUEUES?.split(","),
  concurrency: Number(env.CONCURRENCY ?? 4),
  ahead: Number(env.AHEAD ?? 0), // tasks to claim beyond those that can start now: for many short tasks
  lease: Number(env.LEASE ?? 60),
  grace: Number(env.GRACE ?? 25),
  wait: Number(env.WAIT ?? 20),
};

const { default: handlers } = await import(pathToFileURL(resolve(process.argv[2] ?? "handlers.js")));
const worker = new Worker(new Api(env.DIBS_URL ?? "http://127.0.0.1:8787", env.DIBS_API_KEY), handlers, options);

for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, () => {
    console.log(`${options.id} stops`);
    worker.stop();
    setTimeout(() => process.exit(1), (options.grace + 15) * 1000).unref(); // the last outcomes found no server
  });
}

console.log(`${options.id} begins: ${Object.keys(handlers).join(", ")}`);
try {
  await worker.run();
  process.exit(0); // also if a handler that was given up is still at it
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
