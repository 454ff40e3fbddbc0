"""The worker: claim, run, finish. Threads on one store, handlers in lanes."""
