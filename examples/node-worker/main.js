// node main.js HANDLERS: a worker with the handlers of that module. The environment has the settings.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Client, Worker } from "../../clients/typescript/dist/index.js";

const { env } = process;
const number = (name) => (env[name] === undefined ? undefined : Number(env[name]));

const { default: handlers } = await import(pathToFileURL(resolve(process.argv[2] ?? "handlers.js")));
const client = new Client({ onRetry: console.error }); // reads DIBS_URL and DIBS_API_KEY
const worker = new Worker(client, handlers, {
  id: env.WORKER_ID,
  queues: env.QUEUES?.split(","),
  concurrency: number("CONCURRENCY"),
  ahead: number("AHEAD"),
  lease: number("LEASE"),
  grace: number("GRACE"),
  wait: number("WAIT"),
  log: console.log,
});

try {
  await worker.run(); // until SIGTERM or SIGINT
  process.exit(0); // also if a handler that was given up still runs
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
