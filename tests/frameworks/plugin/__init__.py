"""Tests of the pytest plugin, each in a pytest run of its own."""
