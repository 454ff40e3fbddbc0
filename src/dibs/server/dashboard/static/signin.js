// A link may bring the key along behind the #, which no browser sends to any server: sign in with it, and forget it.

const given = /^#key=(dibs_[A-Za-z0-9_]+)$/.exec(location.hash);
if (given) {
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("key").value = given[1];
  document.getElementById("door").requestSubmit();
}
