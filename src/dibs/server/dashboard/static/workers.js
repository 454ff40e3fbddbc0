// The workers page is also updated when a worker sends a heartbeat, although no task changed.

import { refreshSoon } from "./live.js";

let heartbeat = null;

document.addEventListener("dibs:stats", (event) => {
  if (heartbeat !== null && heartbeat !== event.detail.heartbeat) refreshSoon();
  heartbeat = event.detail.heartbeat;
});
