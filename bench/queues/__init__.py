"""The queues that are measured: how each works in a process of its own, and what its store says afterwards."""
