"""The base class of the sync and the async client: store, borrowed connection, author."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from dibs.codec import check_name
from dibs.errors import DibsError
from dibs.handlers.context import Context
from dibs.handlers.handler import Handler, HandlerOptions, TaskDecorator
from dibs.handlers.options import WorkflowOptions
from dibs.model.checks import check_integer
from dibs.model.task import NewTask
from dibs.model.workflow import NewWorkflow
from dibs.observe.metered import counted
from dibs.redaction import redact_url
from dibs.store.contract import Store
from dibs.store.open import open_store
from dibs.worker.config import WorkerConfig, WorkerOptions
from dibs.worker.worker import Worker
from dibs.workflow.builder import Flow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Enqueued = TypeVar("Enqueued")
"""The type that `enqueue` returns: a Task, or an awaitable."""

DEFAULT_URL = "sqlite:///dibs.db"


class ClientBase(ABC, Generic[Enqueued]):
    """A client of the task queue in the store at `url` (default: DIBS_URL, else ./dibs.db).

    `api_key`: the API key for the URL of a server (default: DIBS_API_KEY).
    The store is opened on first use. One object is enough for a whole process, and it can be used after a fork.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        clock: Callable[[], int] | None = None,
        migrate: bool = True,
    ) -> None:
        self._held = _SharedStore()
        self.handlers: dict[str, Handler[..., Any, Enqueued]] = {}
        self._on: Any = None
        self._by: str | None = None
        given = url or os.environ.get("DIBS_URL") or DEFAULT_URL
        self.use_url(given, api_key=api_key, clock=clock, migrate=migrate)

    def use_url(
        self,
        url: str,
        *,
        api_key: str | None = None,
        clock: Callable[[], int] | None = None,
        migrate: bool = True,
    ) -> None:
        """Use the store at `url` from now on: for tests, and for command line options that override the program.

        An API key that was set with another URL is not used.
        """
        self._store = counted(open_store(url, api_key=api_key, clock=clock, migrate=migrate))
        self.url = url

    @property
    def _store(self) -> Store:
        """The store. Copies made by `on` and `signed` share it, also after `use_url` and inside `isolated`."""
        return self._held.store

    @_store.setter
    def _store(self, store: Any) -> None:
        self._held.store = store

    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Handler[P, R, Enqueued]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Handler[P, R, Enqueued]: ...
    @overload
    def task(self, function: None = None, /, **options: Unpack[HandlerOptions]) -> TaskDecorator[Enqueued]: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a handler: `@app.task`, or `@app.task(max_attempts=5, timeout=30)`.

        Options: name, lane ("thread", "loop" or "process"), schedule with timezone and catch_up; and the defaults of
        its tasks: queue, priority, max_attempts, timeout, backoff, tags.
        """
        decorator = TaskDecorator(self.handlers, self._submit, **options)
        return decorator if function is None else decorator(function)

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Create a worker for the handlers: `app.worker(concurrency=8).run()`, or `with app.worker(): ...`.

        Options: concurrency, children, queues, order, lease, grace, burst, worker_id, poll, upkeep_every,
        recycle_after, recycle_above; WorkerConfig describes each.
        """
        return Worker(self._store, self._by, self.handlers.values(), WorkerConfig(**options))

    def workflow(self, name: str, **options: Unpack[WorkflowOptions]) -> Flow:
        """Build a workflow: `with app.workflow("order", key="order-7") as flow: flow.step(fetch, url=…)`.

        The workflow is stored at the end of the block (`async with` for AsyncDibs), unless the block raises.
        Options: key, deadline (seconds, or a time), on_failure ("fail", "continue" or "ignore": what the failure of a
        step does, unless the step has its own policy).
        """
        return Flow(NewWorkflow(name=name, **options), self.start_workflow)

    @abstractmethod
    def start_workflow(self, new: NewWorkflow) -> Any:
        """Store a workflow."""

    @abstractmethod
    def _submit(self, task: NewTask) -> Enqueued:
        """Enqueue the task."""

    def on(self, connection: Any) -> Self:
        """A copy of the client on your connection: its methods join the open transaction, which you commit."""
        return self._with(_on=connection)

    def signed(self, by: str) -> Self:
        """A copy of the client that records `by` as the author in the history of its changes."""
        return self._with(_by=check_name(by, "The signature"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({redact_url(self.url)!r})"

    def _with(self, **changes: Any) -> Self:
        other = copy.copy(self)
        vars(other).update(changes)
        return other


class _SharedStore:
    """The store that a client shares with its copies."""

    store: Store


def check_id(task_id: Any) -> int:
    """Check a task's id, and return it."""
    return check_integer(task_id, "A task's id", 0, 2**63 - 1)


def check_workflow_id(workflow_id: Any) -> int:
    """Check a workflow's id, and return it."""
    return check_integer(workflow_id, "A workflow's id", 0, 2**63 - 1)


def raise_if_error(result: T | DibsError) -> T:
    """Return the result, or raise it if it is an error."""
    if isinstance(result, DibsError):
        raise result
    return result
