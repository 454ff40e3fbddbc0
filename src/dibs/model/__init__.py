"""The domain types: tasks, claims, workflows, schedules, keys, statistics. The package does no I/O."""
