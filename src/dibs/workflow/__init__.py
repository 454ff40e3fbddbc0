"""Workflows in Python: graphs written down, results read, finalizations claimed. Nothing in here knows a store."""
