"""Benchmarks: programs that measure dibs, each beside something to compare it with."""
