"""The SQLite engine: one file, no server."""
