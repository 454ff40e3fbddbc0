"""What the sync and the async client have in common: the store, a borrowed connection, a signature."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from dibs.codec import check_name
from dibs.errors import DibsError
from dibs.handlers.context import Context
from dibs.handlers.handler import Declaring, Handler, HandlerOptions
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
"""What enqueueing gives: a Task, or something to await."""

DEFAULT_URL = "sqlite:///dibs.db"


class ClientBase(ABC, Generic[Enqueued]):
    """A queue of tasks in the store at `url` (else at DIBS_URL, else in ./dibs.db).

    `api_key` is for the URL of a server (else DIBS_API_KEY).
    Nothing is opened before the first verb is used. One object serves a whole process and survives a fork.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        clock: Callable[[], int] | None = None,
        migrate: bool = True,
    ) -> None:
        self._held = _Held()
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
        """Use the store at `url` from now on: for tests, and for a command line that overrides the program. A key that
        was given with another URL does not go there."""
        self._store = counted(open_store(url, api_key=api_key, clock=clock, migrate=migrate))
        self.url = url

    @property
    def _store(self) -> Store:
        """The store. Copies made by `on` and `signed` have the same, also after `use_url` and inside of `isolated`."""
        return self._held.store

    @_store.setter
    def _store(self, store: Any) -> None:
        self._held.store = store

    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Handler[P, R, Enqueued]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Handler[P, R, Enqueued]: ...
    @overload
    def task(self, function: None = None, /, **options: Unpack[HandlerOptions]) -> Declaring[Enqueued]: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Make a function a handler: `@app.task`, or `@app.task(max_attempts=5, timeout=30)`.

        Options: name, lane ("thread", "loop" or "process"), schedule with timezone and catch_up, and as defaults of
        its tasks queue, priority, max_attempts, timeout, backoff.
        """
        declaring = Declaring(self.handlers, self._submit, **options)
        return declaring if function is None else declaring(function)

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker for the handlers: `app.worker(concurrency=8).run()`, or `with app.worker(): ...`.

        Options: concurrency, children, queues, order, lease, grace, burst, worker_id, poll, upkeep_every,
        recycle_after, recycle_above; WorkerConfig says what each means.
        """
        return Worker(self._store, self._by, self.handlers.values(), WorkerConfig(**options))

    def workflow(self, name: str, **options: Unpack[WorkflowOptions]) -> Flow:
        """A workflow to write down: `with app.workflow("order", key="order-7") as flow: flow.step(fetch, url=…)`.

        It is stored at the end of the block, which is `async with` for AsyncDibs; nothing is if the block raises.
        Options: key, deadline (seconds, or a moment), on_failure ("fail", "continue" or "ignore": what the failure of a
        step means, unless the step says otherwise).
        """
        return Flow(NewWorkflow(name=name, **options), self.start_workflow)

    @abstractmethod
    def start_workflow(self, new: NewWorkflow) -> Any:
        """Store a whole workflow."""

    @abstractmethod
    def _submit(self, task: NewTask) -> Enqueued:
        """Enqueue the task."""

    def on(self, connection: Any) -> Self:
        """The same queue on your connection: every verb joins its open transaction, which you commit."""
        return self._with(_on=connection)

    def signed(self, by: str) -> Self:
        """The same queue with `by` noted in the history of everything it does."""
        return self._with(_by=check_name(by, "The signature"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({redact_url(self.url)!r})"

    def _with(self, **changes: Any) -> Self:
        other = copy.copy(self)
        vars(other).update(changes)
        return other


class _Held:
    """What a client and its copies have in common."""

    store: Store


def check_id(task_id: Any) -> int:
    """A task's id."""
    return check_integer(task_id, "A task's id", 0, 2**63 - 1)


def check_workflow_id(workflow_id: Any) -> int:
    """A workflow's id."""
    return check_integer(workflow_id, "A workflow's id", 0, 2**63 - 1)


def or_raise(answer: T | DibsError) -> T:
    """The answer, raised if it is an error."""
    if isinstance(answer, DibsError):
        raise answer
    return answer
