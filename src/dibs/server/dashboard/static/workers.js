// The workers' page also looks again when a worker was heard of, though nothing happened to any task.

import { refreshSoon } from "./live.js";

let heartbeat = null;

document.addEventListener("dibs:pulse", (event) => {
  if (heartbeat !== null && heartbeat !== event.detail.heartbeat) refreshSoon();
  heartbeat = event.detail.heartbeat;
});
