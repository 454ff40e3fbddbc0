// The dead letter page: groups are retried or discarded in batches.

import { startBulk } from "./bulk.js";

startBulk();
