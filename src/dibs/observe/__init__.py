"""Observability: metrics, logs, traces, and the offline check of a recorded history."""
