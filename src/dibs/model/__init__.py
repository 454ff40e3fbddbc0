"""The domain types: tasks, claims, workflows, schedules, keys, statistics. Nothing here does I/O."""
