"""The store behind a server: the same contract, spoken over the HTTP API."""
