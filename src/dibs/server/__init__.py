"""The server: the verbs of dibs over HTTP, for workers in any language and without database credentials."""
