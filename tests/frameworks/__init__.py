"""Tests of the integrations, each in an environment with the real framework: `python -m tests.frameworks`."""
