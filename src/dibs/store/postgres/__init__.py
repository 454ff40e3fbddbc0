"""The PostgreSQL engine: for workers on many machines."""
