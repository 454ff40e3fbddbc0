"""In the place of the package django_tasks_db, whose tests import it: DibsBackend under the name of its backend."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Import the backend on first use: apps are imported before Django is set up."""
    if name == "DatabaseBackend":
        from backends import OneAttempt

        return OneAttempt
    raise AttributeError(name)
