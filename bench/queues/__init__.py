"""The queues that are measured: how each runs in a separate process, and how its store is checked afterwards."""
