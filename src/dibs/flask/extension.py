"""FlaskDibs: the client as an extension of Flask."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Unpack, cast

from flask import Flask
from flask.ctx import AppContext

from dibs.client import Dibs
from dibs.client_base import _SharedStore
from dibs.errors import InvalidValue
from dibs.flask.applications import CurrentStore, FlaskApplications, url_of
from dibs.flask.command import command
from dibs.handlers.middleware import is_async
from dibs.worker.config import WorkerOptions
from dibs.worker.worker import Worker

NAME = "dibs"
"""The name of the extension in `application.extensions`."""

IN_FLASK = "the store of the Flask application"
"""What FlaskDibs has instead of a URL until another store is chosen with `use_url`."""

_in_attempt: ContextVar[bool] = ContextVar("in_attempt", default=False)


class FlaskDibs(Dibs):
    """The client of Flask applications: `dibs = FlaskDibs()` beside `@dibs.task`, and `dibs.init_app(application)` in
    the factory.

    Its store is that of the application whose context is pushed: DIBS_URL in the configuration, by default the database
    of Flask-SQLAlchemy. DIBS_API_KEY is the key for a server; DIBS_MIGRATE = False creates no tables. Each attempt of a
    handler runs in an application context of its own, which its middleware shares.

    `factory`: "module:create_app", where child processes find the application if FLASK_APP, wsgi.py or app.py does not
    lead to it. Other options: as for Dibs.
    """

    _how_to_declare = "Import the modules that declare handlers in the module or the factory of the application."

    def __init__(self, application: Flask | None = None, *, factory: str | None = None, **options: Any) -> None:
        self._applications = FlaskApplications(factory)
        super().__init__(IN_FLASK, **options)
        if application is not None:
            self.init_app(application)

    def init_app(self, application: Flask) -> None:
        """Set up an application. One extension may be set up for several."""
        if application.extensions.setdefault(NAME, self) is not self:
            raise InvalidValue(
                f"The Flask application {application.name!r} has another FlaskDibs.", hint="Use one for all handlers."
            )
        self._applications.add(application)
        application.cli.add_command(command)

    def run_in(self, application: Flask) -> None:
        """Run handlers of this process in this application, if several have been set up: by default in the latest."""
        self._applications.run_in(application)

    def app_context(self) -> AppContext:
        """A new context of the application in which handlers run: for outcome hooks, the lifespan and scripts."""
        return self._applications.of_attempts().app_context()

    def use_url(self, url: str, **options: Any) -> None:
        """Use the store at `url` from now on, for all applications."""
        if url == IN_FLASK:
            self._store = cast("Any", CurrentStore(self._applications))
            self.url = url
        else:
            super().use_url(url, **options)

    @property
    def url(self) -> str:
        """The URL of the store."""
        if not isinstance(self._store, CurrentStore):
            return self._url
        try:
            return url_of(self._applications.of_store())
        except InvalidValue:  # outside of the applications
            return IN_FLASK

    @url.setter
    def url(self, url: str) -> None:
        self._url = url

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """See Dibs. The worker is that of one application: the one whose context is pushed, else the latest."""
        application = self._applications.of_attempts()
        self._applications.run_in(application)
        other = self._with(_held=_SharedStore())
        other._held.store = self._store_of_worker(application)
        return super(FlaskDibs, other).worker(**options)

    def _store_of_worker(self, application: Flask) -> Any:
        """The store itself: the threads of a worker have no context."""
        is_current = isinstance(self._store, CurrentStore)
        return self._applications.store_of(application) if is_current else self._store

    if not TYPE_CHECKING:  # the types are those of Dibs

        def task(self, function: Any = None, /, **options: Any) -> Any:
            """See ClientBase.task."""
            if function is None:
                return functools.partial(self.task, **options)
            return super().task(**self._in_context(function, options))(function)

        def batch_task(self, function: Any = None, /, **options: Any) -> Any:
            """See ClientBase.batch_task."""
            if function is None:
                return functools.partial(self.batch_task, **options)
            return super().batch_task(**self._in_context(function, options))(function)

    def middleware(self, function: Any, /) -> Any:
        """See ClientBase.middleware."""
        super().middleware(self._wrapped_async(function) if is_async(function) else self._wrapped(function))
        return function

    def _in_context(self, function: Any, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a handler, with a middleware that pushes the context of the application."""
        own = tuple(options.get("middleware", ()))
        layer = _push_async if is_async((*own, function)[0]) else _push
        return {**options, "middleware": (functools.partial(layer, self), *own)}

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(context: Any, call_next: Any) -> Any:
            with self._attempt():
                return function(context, call_next)

        return call

    def _wrapped_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(context: Any, call_next: Any) -> Any:
            with self._attempt():
                return await function(context, call_next)

        return call

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        """The application context of an attempt, which its middleware shares. Its teardown returns sessions."""
        if _in_attempt.get():
            yield
            return
        token = _in_attempt.set(True)
        try:
            with self.app_context():
                yield
        finally:
            _in_attempt.reset(token)

    @property
    def _must_declare(self) -> bool:
        """See ClientBase. Each store of an application needs the declarations."""
        if isinstance(self._store, CurrentStore) and self._applications.is_new(self._store.current):
            self._in_code.unwritten = self._declarations().any
        return super()._must_declare

    def __repr__(self) -> str:
        return f"FlaskDibs({IN_FLASK})" if isinstance(self._store, CurrentStore) else super().__repr__()


def _push(extension: FlaskDibs, context: Any, call_next: Callable[[], Any]) -> Any:
    """Middleware of plain handlers."""
    with extension._attempt():
        return call_next()


async def _push_async(extension: FlaskDibs, context: Any, call_next: Callable[[], Any]) -> Any:
    """Middleware of async handlers."""
    with extension._attempt():
        return await call_next()
