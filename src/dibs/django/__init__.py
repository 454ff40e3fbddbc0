"""dibs in a Django project: `"dibs.django"` in INSTALLED_APPS, `DibsBackend` in TASKS, `app` for handlers.

The tasks are kept in the project's own database, over Django's own connection, or in any other store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dibs.django.client import app

if TYPE_CHECKING:
    from dibs.django.backend import DibsBackend

__all__ = ["DibsBackend", "app"]


def __getattr__(name: str) -> Any:
    """Import the backend on first use: before Django 6 the backend needs the package django_tasks, and `app` does
    not."""
    if name == "DibsBackend":
        from dibs.django.backend import DibsBackend

        return DibsBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
