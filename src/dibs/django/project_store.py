"""The store of a Django project, found through its settings at each use: tests change the database, and override
settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from django.apps import apps

from dibs.django.configuration import StoreLocation, location
from dibs.django.databases import connection_to, url_of
from dibs.errors import SchemaMissing
from dibs.model.upkeep import Check
from dibs.observe.metered import counted
from dibs.store.borrowed import BorrowedStore
from dibs.store.contract import Store
from dibs.store.open import borrowed_engine, open_store
from dibs.store.operation import Operation

T = TypeVar("T")

MIGRATE_DATABASE = (
    "Run `python manage.py migrate`. If it has nothing to do, check that a router allows the app 'dibs' to migrate the"
    " database."
)
INSTALL = 'Add "dibs.django" to INSTALLED_APPS, and run `python manage.py migrate`.'
MIGRATE_URL = "Run `python manage.py dibs migrate`."


class ProjectStore:
    """Forwards everything to the store that the settings name now, which is opened on first use."""

    def __init__(self) -> None:
        self._opened: dict[StoreLocation, Any] = {}

    @property
    def location(self) -> StoreLocation:
        """Where the store is."""
        return location()

    @property
    def current(self) -> Any:
        """The store that the settings name now."""
        where = self.location
        if where not in self._opened:
            self._opened[where] = counted(_open(where))
        return self._opened[where]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)

    def close(self) -> None:
        """Close every store that was opened."""
        for store in self._opened.values():
            store.close()


def open_for_worker() -> Store:
    """The store of the project on connections of its own, for a worker. InvalidValue for a database in memory."""
    where = location()
    url = url_of(where.database) if where.database is not None else where.url or ""
    return counted(open_store(url, api_key=where.api_key, migrate=False))


def migrate_hint() -> str:
    """How the tables of the project's store are made."""
    if location().database is None:
        return MIGRATE_URL
    return MIGRATE_DATABASE if apps.is_installed("dibs.django") else INSTALL


def _open(where: StoreLocation) -> Any:
    if where.database is not None:
        return ProjectDatabase(where.database)
    return open_store(where.url or "", api_key=where.api_key, migrate=False)


class ProjectDatabase(BorrowedStore):
    """The store in a database of the project, on Django's connection of the calling thread.

    It joins the open transaction (`transaction.atomic`), and needs no connection beside those of Django. After the
    commit it wakes the workers.
    """

    def __init__(self, alias: str) -> None:
        super().__init__(borrowed_engine(connection_to(alias).vendor), partial(connection_to, alias))
        self._alias = alias
        self._migrated: set[str] = set()
        """The names of the databases whose tables were found up to date: tests change the database of an alias."""

    def run_once(self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """See BorrowedStore. SchemaMissing with the advice for a Django project."""
        return _advised(lambda: self._run_checked(operation, by, on, idle))

    def doctor(self) -> list[Check]:
        """Check the database on a connection of its own."""
        store = open_store(url_of(self._alias), migrate=False)
        try:
            return store.doctor()
        finally:
            store.close()

    def _run_checked(self, operation: Operation[T], by: str | None, on: Any, idle: bool) -> T:
        name = str(connection_to(self._alias).settings_dict["NAME"])
        if on is None and name not in self._migrated:
            if missing := self.missing_migrations():
                raise SchemaMissing(f"The database {self._alias!r} lacks these migrations: {', '.join(missing)}.")
            self._migrated.add(name)
        return super().run_once(operation, by, on, idle)


def _advised(run: Callable[[], T]) -> T:
    try:
        return run()
    except SchemaMissing as error:
        raise SchemaMissing(error.message, hint=migrate_hint()) from None
