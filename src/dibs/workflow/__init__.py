"""Workflows in Python: building graphs, reading results, claiming finalizations. The package does not use a store."""
