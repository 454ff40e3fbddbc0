"""The worker: service threads that claim tasks, renew leases and write outcomes, and lanes that run handlers."""
