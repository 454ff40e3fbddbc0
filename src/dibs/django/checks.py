"""System checks of Django: `manage.py check`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from dibs.django.configuration import backends, location, location_of
from dibs.django.databases import connection_to, is_in_memory


def register() -> None:
    """Register the checks of dibs."""
    checks.register(check_store, "dibs")


def check_store(**_: Any) -> list[checks.CheckMessage]:
    """The store of the project can be used, and all backends use the same one."""
    try:
        return [*_two_stores(), *_database()]
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="dibs.E001")]


def _two_stores() -> Iterator[checks.CheckMessage]:
    stores = {alias: location_of(each) for alias, each in backends().items()}
    if len(set(stores.values())) > 1:
        yield checks.Error(
            f"The aliases {', '.join(map(repr, stores))} of TASKS name different stores.",
            hint='A project has one store: `app`, the workers and the admin use it. Give each alias the same "database"'
            ' or "url"; to separate tasks, use queues (QUEUES).',
            id="dibs.E002",
        )


def _database() -> Iterator[checks.CheckMessage]:
    alias = location().database
    if alias is None:
        return
    connection = connection_to(alias)
    if connection.vendor != "sqlite" or is_in_memory(connection):
        return
    if str(connection.settings_dict["OPTIONS"].get("transaction_mode")).upper() != "IMMEDIATE":
        yield checks.Warning(
            f"The SQLite database {alias!r} begins transactions without the write lock.",
            hint="A transaction that reads first and then enqueues fails at once with 'database is locked' if another"
            ' process has written meanwhile. Set DATABASES[…]["OPTIONS"]["transaction_mode"] = "IMMEDIATE": then it'
            " waits for its turn. `migrate` has switched the file to WAL mode, in which readers and a writer do not"
            " wait for each other.",
            id="dibs.W001",
        )
