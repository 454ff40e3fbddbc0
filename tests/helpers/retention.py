"""Retention in tests: set the default retention of a store in seconds."""

from __future__ import annotations

from typing import Any

from dibs.model.retention import RetentionTarget

NOTHING = {"completed": 0.0, "cancelled": 0.0, "failed": 0.0}
"""Finished tasks are deleted by the next prune."""


def keep(app: Any, **seconds: float | None) -> None:
    """Set the default of each of these kinds of records."""
    for records, kept in seconds.items():
        app.set_retention(records, kept)


def keep_in(store: Any, **seconds: float | None) -> None:
    """The same, where there is a store and no client."""
    for records, kept in seconds.items():
        store.run(store.retention.set_retention(RetentionTarget(records=records), kept))
