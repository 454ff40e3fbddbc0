"""The tables of dibs in a database of the project: made by `manage.py migrate`, on the connection of Django."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.core import mail
from django.db import router

from dibs.django.configuration import backends, location, location_of
from dibs.django.databases import ENGINES, wrapper_of
from dibs.store.borrowed import BorrowedStore
from dibs.store.open import borrowed_engine

APP = "dibs"
"""The label of the app, by which routers know it."""


def create(alias: str) -> None:
    """Make the tables, or bring them up to date, if dibs keeps tasks in this database and the routers allow it."""
    if alias in _used() and router.allow_migrate(alias, APP):
        _store(alias).migrate()


def drop(alias: str) -> None:
    """Remove the tables: `manage.py migrate dibs zero`."""
    if wrapper_of(alias).vendor in ENGINES and router.allow_migrate(alias, APP):
        _store(alias).drop()


def empty(alias: str) -> None:
    """Delete everything that is in the tables."""
    _store(alias).empty()


def after_migrate(*, using: str, plan: Sequence[tuple[Any, bool]] | None = None, **_: Any) -> None:
    """Bring the tables up to date after each `migrate`, also where the migration of the app is recorded as applied, or
    tests run without migrations. After a flush in a test run (TransactionTestCase), empty them."""
    if plan is None:
        _empty_after_flush(using)
    elif not any(backwards and migration.app_label == APP for migration, backwards in plan):
        create(using)


def _empty_after_flush(alias: str) -> None:
    """A flush sends the signal without a plan. Only in a test run, so that no other sender can delete tasks."""
    if alias in _used() and hasattr(mail, "outbox") and not _store(alias).missing_migrations():
        empty(alias)


def _used() -> set[str]:
    """The aliases of the databases that dibs keeps tasks in, among those that it can use."""
    named = {location().database, *(location_of(each).database for each in backends().values())}
    return {alias for alias in named if alias is not None and wrapper_of(alias).vendor in ENGINES}


def _store(alias: str) -> BorrowedStore:
    return BorrowedStore(borrowed_engine(wrapper_of(alias).vendor), partial(wrapper_of, alias))
