"""Live statistics of the server: queue depths, trends, metrics."""
