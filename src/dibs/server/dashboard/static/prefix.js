// The path under which the server is mounted; empty for a server at the root.

export const prefix = document.documentElement.dataset.prefix;
