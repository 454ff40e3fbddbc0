"""Injected faults, for any time: `python -m tests.stress --minutes 30`. One file for each fault."""
