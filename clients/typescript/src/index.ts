export { Client, type AnyTypes, type Claim, type ClientOptions, type NewTask, type TaskOf, type TaskTypes } from "./client.js";
export { DibsError, NoAnswer, Permanent } from "./errors.js";
export type { CallOptions } from "./transport.js";
export type * from "./types.js";
export { Worker, type Context, type Handlers, type WorkerOptions } from "./worker.js";
