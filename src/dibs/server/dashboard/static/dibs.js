// What every page does: stay live, act without a reload, be usable from the keyboard. Without scripts all pages and
// forms work as well; only then they have to be reloaded by hand.

import { startLive } from "./live.js";
import { startActs } from "./acts.js";
import { startKeyboard } from "./keyboard.js";
import { startTimes } from "./times.js";
import { startTheme } from "./theme.js";

startTheme();
document.querySelector(".menu [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone
startTimes();
startKeyboard();
startActs();
if (document.getElementById("pulse")) startLive();
