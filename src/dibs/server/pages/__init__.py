"""Pages for people, rendered on the server; they need no script and nothing from elsewhere."""
