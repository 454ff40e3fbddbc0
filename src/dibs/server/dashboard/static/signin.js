// A link may contain the key after the #, which no browser sends to a server: sign in with it, and remove it from the
// address. A link that is opened in a tab with this page changes only the part after the #, without loading the page.

signInByLink();
addEventListener("hashchange", signInByLink);

function signInByLink() {
  const given = /^#key=(dibs_[A-Za-z0-9_]+)$/.exec(location.hash);
  if (!given) return;
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("key").value = given[1];
  document.getElementById("signin").requestSubmit();
}
