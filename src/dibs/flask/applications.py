"""The Flask applications that use one extension, and the store of each."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any
from urllib.parse import quote

from flask import Flask, current_app, has_app_context
from flask.cli import NoAppException, ScriptInfo

from dibs.client_base import DEFAULT_URL
from dibs.errors import InvalidValue
from dibs.observe.metered import counted
from dibs.store.contract import Store
from dibs.store.open import open_store

CONTEXT_HINT = "Push the context of the application: `with application.app_context():`."


class FlaskApplications:
    """The applications that one FlaskDibs was set up for. `factory`: where a process finds the application that has not
    created it, as the option --app of the flask command."""

    def __init__(self, factory: str | None) -> None:
        self._factory = factory
        self._stores: weakref.WeakKeyDictionary[Flask, Store | None] = weakref.WeakKeyDictionary()
        self._latest: Flask | None = None
        self._declared: weakref.WeakSet[Store] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._loading = threading.Lock()  # apart: a factory that is loaded adds its application

    def add(self, application: Flask) -> None:
        """Add an application."""
        with self._lock:
            self._stores.setdefault(application, None)
            self._latest = application

    def run_in(self, application: Flask) -> None:
        """Run attempts in this application, where no other context is pushed, until another one is added."""
        self._latest = application

    def of_store(self) -> Flask:
        """The application whose store is used here: that of the pushed context. Without a context, the only one."""
        if (application := self._in_context()) is not None:
            return application
        with self._lock:
            known = list(self._stores)
        if len(known) > 1 and len({url_of(each) for each in known}) > 1:
            raise InvalidValue("Several Flask applications use this FlaskDibs.", hint=CONTEXT_HINT)
        if not known:
            raise InvalidValue(
                "No Flask application uses this FlaskDibs yet.",
                hint="Call init_app(application) in the factory, and push the context of the application.",
            )
        return known[-1]

    def of_attempts(self) -> Flask:
        """The application in whose context attempts run: that of the pushed context, else the latest that was set up or
        had a worker, else the one that the flask command would load."""
        if (application := self._in_context()) is not None:
            return application
        with self._loading:
            if self._latest is None:
                self._latest = self._load()
            return self._latest

    def store_of(self, application: Flask) -> Store:
        """The store of the application. Nothing is opened before the first operation."""
        with self._lock:
            if (store := self._stores.get(application)) is None:
                key, migrate = application.config.get("DIBS_API_KEY"), application.config.get("DIBS_MIGRATE", True)
                store = counted(open_store(url_of(application), api_key=key, migrate=migrate))
                self._stores[application] = store
            return store

    def is_new(self, store: Store) -> bool:
        """True the first time that the store is asked for: it has no declarations of this process."""
        if store in self._declared:
            return False
        self._declared.add(store)
        return True

    def _in_context(self) -> Flask | None:
        if not has_app_context():
            return None
        application: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
        if application not in self._stores:
            raise _foreign(application)
        return application

    def _load(self) -> Flask:
        application = load_application(self._factory)
        if application not in self._stores:
            raise _foreign(application)
        return application


def _foreign(application: Flask) -> InvalidValue:
    return InvalidValue(
        f"The Flask application {application.name!r} does not use this FlaskDibs.",
        hint="Call init_app(application) in its factory.",
    )


class CurrentStore:
    """The store of the application whose context is pushed."""

    def __init__(self, applications: FlaskApplications) -> None:
        self._applications = applications

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)

    @property
    def current(self) -> Store:
        """The store itself."""
        return self._applications.store_of(self._applications.of_store())


def load_application(factory: str | None = None) -> Flask:
    """Load the application as the flask command does: from `factory`, FLASK_APP, wsgi.py or app.py."""
    try:
        return ScriptInfo(factory or os.environ.get("FLASK_APP")).load_app()
    except NoAppException as error:
        raise InvalidValue(
            f"The Flask application cannot be loaded: {error.message}",
            hint="Set FLASK_APP as for the flask command, or name it: FlaskDibs(factory='shop:create_app').",
        ) from None


def url_of(application: Flask) -> str:
    """The URL of the application's store: DIBS_URL in its configuration or in the environment, else the database of
    Flask-SQLAlchemy, else dibs.db in the current folder."""
    if url := application.config.get("DIBS_URL") or os.environ.get("DIBS_URL"):
        return str(url)
    database = application.extensions.get("sqlalchemy")
    if database is None:
        return DEFAULT_URL
    with application.app_context():
        return _url_of_database(database.engine.url)


def _url_of_database(url: Any) -> str:
    """The URL as dibs writes it, of a URL of SQLAlchemy: without a driver."""
    backend = url.get_backend_name()
    if backend == "postgresql":
        return str(url.set(drivername="postgresql").render_as_string(hide_password=False))
    if backend == "sqlite" and url.database not in (None, "", ":memory:"):
        return f"sqlite:///{quote(url.database)}"
    kept = "in memory" if backend == "sqlite" else f"in {backend}"
    raise InvalidValue(
        f"The database of Flask-SQLAlchemy is {kept}, where dibs cannot keep tasks.",
        hint="Set DIBS_URL in the configuration: sqlite:///tasks.db or postgresql://user@host/database.",
    )
