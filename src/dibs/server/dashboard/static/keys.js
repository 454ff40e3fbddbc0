// Copy a new key with one click; if the browser does not allow that, select it for Ctrl+C.

import { showNotice } from "./acts.js";

const button = document.getElementById("copy");
button?.removeAttribute("hidden");
button?.addEventListener("click", async () => {
  const secret = document.getElementById("secret");
  try {
    await navigator.clipboard.writeText(secret.textContent);
    showNotice("Copied.");
  } catch {
    getSelection().selectAllChildren(secret);
    showNotice("Press Ctrl+C to copy it.");
  }
});
