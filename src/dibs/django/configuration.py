"""What the settings of a project say about dibs: the store, the modules with tasks, the defaults of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS
from django.utils.module_loading import import_string

STORE_OPTIONS = frozenset({"url", "api_key", "database"})
TASK_OPTIONS = frozenset({"max_attempts", "timeout", "backoff", "tags", "expires_in", "limits", "group"})
"""The OPTIONS that are defaults of the enqueued tasks."""

OTHER_OPTIONS = frozenset({"enqueue_on_commit", "modules"})
OPTIONS = STORE_OPTIONS | TASK_OPTIONS | OTHER_OPTIONS

TASKS_MODULE = "tasks"
"""The module in which apps declare their tasks."""


class StoreLocation(NamedTuple):
    """Where the tasks of the project are: in the database of an alias, or at a URL."""

    database: str | None
    url: str | None = None
    api_key: str | None = None

    @property
    def shown(self) -> str:
        """The location for a message."""
        return f"the database {self.database!r}" if self.database is not None else "a URL"


def backends() -> dict[str, Mapping[str, Any]]:
    """The settings of each alias in TASKS whose backend is DibsBackend, or a subclass of it."""
    configured: Mapping[str, Mapping[str, Any]] = getattr(settings, "TASKS", None) or {}
    return {alias: each for alias, each in configured.items() if _is_dibs(each.get("BACKEND", ""))}


def _is_dibs(path: str) -> bool:
    try:
        return getattr(import_string(path), "is_dibs", False) is True
    except ImportError:
        return False


def location_of(backend: Mapping[str, Any]) -> StoreLocation:
    """The store that the OPTIONS of a backend name. ImproperlyConfigured if they name two."""
    options = backend.get("OPTIONS") or {}
    url, database = options.get("url"), options.get("database")
    if url is not None and database is not None:
        raise ImproperlyConfigured('OPTIONS of DibsBackend has both "url" and "database". Give one of them.')
    if url is not None:
        return StoreLocation(None, url, options.get("api_key"))
    return StoreLocation(DEFAULT_DB_ALIAS if database is None else database)


@cache
def location() -> StoreLocation:
    """The store of the project: that of the alias "default" of TASKS, else of the first alias with DibsBackend. Without
    one, the default database."""
    configured = backends()
    if not configured:
        return StoreLocation(DEFAULT_DB_ALIAS)
    return location_of(configured.get("default") or next(iter(configured.values())))


def task_modules() -> list[str]:
    """The names of the modules in which the apps of the project declare tasks."""
    named = [name for each in backends().values() for name in (each.get("OPTIONS") or {}).get("modules", ())]
    return list(dict.fromkeys([TASKS_MODULE, *named]))


def _forget(*, setting: str, **_: Any) -> None:
    """Read the settings again after a test has overridden them."""
    if setting in ("TASKS", "DATABASES"):
        location.cache_clear()


setting_changed.connect(_forget, dispatch_uid="dibs.configuration")
