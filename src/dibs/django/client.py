"""`app`: the client of a Django project, whose store the settings name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast, get_args

from django.db.models import Model, QuerySet

from dibs.client import Dibs
from dibs.django.databases import shown_url, wrapper_of
from dibs.django.project_store import ProjectStore, migrate_hint, open_for_worker
from dibs.errors import InvalidValue, SchemaMissing
from dibs.handlers.batch import BatchHandler
from dibs.handlers.handler import Handler
from dibs.handlers.middleware import is_async
from dibs.handlers.values import annotations_of
from dibs.model.task import NewTask
from dibs.redaction import redact_url
from dibs.worker.config import WorkerConfig, WorkerOptions
from dibs.worker.worker import Worker

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
D = TypeVar("D")
R = TypeVar("R")
C = TypeVar("C")

PROJECT = "the store of the Django project"
"""What DjangoDibs has instead of a URL until another store is chosen with `use_url`."""


class _AroundAttempts:
    """A handler with the middleware of `dibs.django.attempts` around its attempts, inside the middleware of the app."""

    def __init__(self, name: str, function: Callable[..., Any], **options: Any) -> None:
        from dibs.django import attempts

        own = tuple(options.pop("middleware", ()))
        awaited = inspect.iscoroutinefunction(function) or any(map(is_async, own))
        layer = attempts.around_async if awaited else attempts.around
        super().__init__(name, function, middleware=(layer, *own), **options)  # type: ignore[call-arg]


class DjangoBatchHandler(_AroundAttempts, BatchHandler[D, R, C]):
    """A batch handler of a Django project."""


class DjangoHandler(_AroundAttempts, Handler[P, R, C]):
    """A handler of a Django project, which refuses instances of models as arguments."""

    batch_kind = DjangoBatchHandler

    def check_types(self) -> None:
        """See HandlerBase."""
        try:
            super().check_types()
        except InvalidValue as error:
            if any(map(_names_model, (annotations_of(self.function) or {}).values())):
                raise InvalidValue(error.message, hint=MODEL_ADVICE) from None
            raise

    def new(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """See Handler."""
        refuse_models(f"The handler {self.name!r}", (*args, *kwargs.values()))
        return super().new(*args, **kwargs)


class DjangoDibs(Dibs):
    """The client of a Django project. Its store is the one that the settings name: by default the project's database,
    over Django's own connection, whose open transaction every method joins."""

    _handler_kind = DjangoHandler
    _how_to_declare = "Declare tasks in the module tasks.py of an app that INSTALLED_APPS has."
    _url = PROJECT

    def __init__(self) -> None:
        super().__init__(PROJECT)

    def use_url(self, url: str, **options: Any) -> None:
        """See Dibs. Until then the settings decide."""
        if url == PROJECT:
            self._store = cast("Any", ProjectStore())
            self.url = url
        else:
            super().use_url(url, **options)

    @property
    def url(self) -> str:  # an attribute of the other clients
        """The URL of the store. That of a database in memory cannot be opened."""
        if not isinstance(self._store, ProjectStore):
            return self._url
        where = self._store.location
        return where.url or shown_url(wrapper_of(where.database or ""))

    @url.setter
    def url(self, url: str) -> None:
        self._url = url

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """See Dibs. The worker has connections of its own; handlers use those of Django."""
        if not isinstance(self._store, ProjectStore):
            return super().worker(**options)
        declarations = self._declarations(every_type=True)
        return ProjectWorker(
            open_for_worker(),
            self._by,
            self.handlers.values(),
            WorkerConfig(**options),
            declarations,
            hooks=self._hooks,
        )

    @property
    def _must_declare(self) -> bool:
        """See ClientBase. Not in a transaction: until its end, the lock of the limits would keep workers waiting."""
        if not super()._must_declare or not isinstance(self._store, ProjectStore):
            return super()._must_declare
        database = self._store.location.database
        return database is None or not wrapper_of(database).in_atomic_block

    def __repr__(self) -> str:
        project = isinstance(self._store, ProjectStore)
        return f"DjangoDibs({PROJECT})" if project else f"DjangoDibs({redact_url(self._url)!r})"


MODEL_ADVICE = "Take the primary key (order_id: int), and read the row in the handler: it may have changed until then."


def _names_model(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return True
    return any(map(_names_model, get_args(annotation)))


def refuse_models(what: str, values: Iterable[Any]) -> None:
    """Raise InvalidValue if a value is an instance of a model or a query set, itself or in a list."""
    for value in values:
        for each in value if isinstance(value, (list, tuple, set)) else (value,):
            if isinstance(each, (Model, QuerySet)):
                raise InvalidValue(f"{what} was given {_described(each)} as an argument.", hint=_advice(each))


def _described(value: Any) -> str:
    kind = "a query set" if isinstance(value, QuerySet) else "an instance"
    model = value.model if isinstance(value, QuerySet) else type(value)
    return f"{kind} of the model {model._meta.label}"


def _advice(value: Any) -> str:
    keys = (
        "the primary keys: list(….values_list('pk', flat=True))" if isinstance(value, QuerySet) else "its primary key"
    )
    return f"Pass {keys}, and read the row in the handler: it may have changed until the task runs."


class ProjectWorker(Worker):
    """A worker on the project's database. It closes its connections when it stops, and says how tables are made."""

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """See Worker."""
        try:
            super().start(loop)
        except SchemaMissing as error:
            raise SchemaMissing(error.message, hint=migrate_hint()) from None

    def _shut_down(self, grace: float | None = None) -> int:
        code = super()._shut_down(grace)
        self._access.store.close()
        return code


app = DjangoDibs()
"""The client of this project, for `@app.task`."""
