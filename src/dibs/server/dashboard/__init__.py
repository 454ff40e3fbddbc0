"""The dashboard: HTML pages that the server renders itself, without a build step and without external resources."""
