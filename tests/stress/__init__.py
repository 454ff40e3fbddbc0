"""Faults, injected for as long as you like: `python -m tests.stress --minutes 30`. One file for each fault."""
