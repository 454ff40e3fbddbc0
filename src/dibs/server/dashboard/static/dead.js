// The dead letter: groups are sent back or discarded batch by batch.

import { startBulk } from "./bulk.js";

startBulk();
