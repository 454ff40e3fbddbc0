// Shared by all pages: live updates, actions without a reload, keyboard shortcuts. Without scripts, all pages and forms
// work as well, but are not updated by themselves.

import { startLive } from "./live.js";
import { startActs } from "./acts.js";
import { startKeyboard } from "./keyboard.js";
import { startTimes } from "./times.js";
import { startTheme } from "./theme.js";

startTheme();
scrollMenuToCurrentPage();
startTimes();
startKeyboard();
startActs();
if (document.getElementById("live-status")) startLive();

// Scroll the menu to the current page: on a phone the menu is wider than the window. (scrollIntoView would also move the
// starting point of the Tab key.)
function scrollMenuToCurrentPage() {
  const here = document.querySelector(".menu [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft + (here.offsetWidth - here.parentElement.clientWidth) / 2;
}
