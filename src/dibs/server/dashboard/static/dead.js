// The dead letter: groups are sent back batch by batch.

import { startBulk } from "./bulk.js";

startBulk();
