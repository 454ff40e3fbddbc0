// A new key, copied with one click; where the browser does not allow that, it is marked, to be copied by hand.

import { tell } from "./acts.js";

const button = document.getElementById("copy");
button?.removeAttribute("hidden");
button?.addEventListener("click", async () => {
  const secret = document.getElementById("secret");
  try {
    await navigator.clipboard.writeText(secret.textContent);
    tell("Copied.");
  } catch {
    getSelection().selectAllChildren(secret);
    tell("Press Ctrl+C to copy it.");
  }
});
