// What every page does: stay live, act without a reload, be usable from the keyboard. Without scripts all pages and
// forms work as well; only then they have to be reloaded by hand.

import { startLive } from "./live.js";
import { startActs } from "./acts.js";
import { startKeyboard } from "./keyboard.js";
import { startTimes } from "./times.js";
import { startTheme } from "./theme.js";

startTheme();
showWhereWeAre();
startTimes();
startKeyboard();
startActs();
if (document.getElementById("pulse")) startLive();

// On a phone the menu is wider than the window. (scrollIntoView would also move the place from which Tab goes on.)
function showWhereWeAre() {
  const here = document.querySelector(".menu [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft + (here.offsetWidth - here.parentElement.clientWidth) / 2;
}
