// The theme: light or dark as the system prefers, until the user chooses. A cookie stores the choice, so that the server
// sends the page in the right colours.

import { prefix } from "./prefix.js";

export function startTheme() {
  document.getElementById("theme")?.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme === "dark" || (root.dataset.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `dibs_theme=${root.dataset.theme}; Path=${prefix || "/"}; Max-Age=31536000; SameSite=Lax`;
  });
}
