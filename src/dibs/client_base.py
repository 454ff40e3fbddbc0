"""The base class of the sync and the async client: store, borrowed connection, author."""

from __future__ import annotations

import copy
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, Unpack

from dibs.errors import DibsError, NotAllowed, StoreError
from dibs.handlers.handler import AnyHandler, TaskDecorator, codecs_of
from dibs.handlers.hooks import AppHooks
from dibs.json_values import check_name
from dibs.model.checks import check_integer
from dibs.model.declaration import Declarations, DeclaredInCode
from dibs.model.limit import NewLimit, NewQueueSettings
from dibs.model.task import NewTask
from dibs.model.workflow import NewWorkflow
from dibs.observe.metered import counted
from dibs.redaction import redact_url
from dibs.store.contract import Store
from dibs.store.open import open_store
from dibs.worker.config import WorkerConfig, WorkerOptions
from dibs.workflow.builder import FlowBase

if TYPE_CHECKING:
    from dibs.handlers.codecs import Codec
    from dibs.handlers.lifespan import LifespanFunction
    from dibs.handlers.log_capture import LogCapture
    from dibs.handlers.middleware import AttemptMiddleware, EnqueueMiddleware
    from dibs.handlers.options import WorkflowOptions
    from dibs.handlers.outcome_hooks import OutcomeHook
    from dibs.many.handles import Convert
    from dibs.model.declaration import StoredDeclarations
    from dibs.worker.worker import Worker

    Around = TypeVar("Around", bound=AttemptMiddleware)
    AroundEnqueue = TypeVar("AroundEnqueue", bound=EnqueueMiddleware)
    Hook = TypeVar("Hook", bound=OutcomeHook)
    Opens = TypeVar("Opens", bound=LifespanFunction)

T = TypeVar("T")
H = TypeVar("H", bound=AnyHandler)
"""The class of the handlers: Handler or AsyncHandler."""

DEFAULT_URL = "sqlite:///dibs.db"


class ClientBase(ABC, Generic[H]):
    """A client of the task queue in the store at `url` (default: DIBS_URL, else ./dibs.db).

    `api_key`: the API key for the URL of a server (default: DIBS_API_KEY). `capture_logs`: the default of that
    option of @app.task. `codec`: encodes params, results and checkpoints of all handlers that name no codec of their
    own (see dibs.Codec).
    `register_schemas`: False if workers do not register the JSON Schemas of the handlers' arguments, by which clients
    in other languages are checked. The option register_schema of a handler decides for its task type.
    The store is opened on first use. One object is enough for a whole process, and it can be used after a fork.
    """

    _handler_kind: ClassVar[type[AnyHandler]]
    _flow_kind: ClassVar[type[FlowBase[Any]]]
    _how_to_declare = "Declare handlers with @app.task, and import the modules that declare them in this module."
    """The hint of the error for a worker without handlers."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        clock: Callable[[], int] | None = None,
        migrate: bool = True,
        register_schemas: bool = True,
        capture_logs: bool | LogCapture | None = None,
        codec: Codec | Sequence[Codec] | None = None,
    ) -> None:
        self._register_schemas = register_schemas
        self._held = _SharedStore()
        self._in_code = DeclaredInCode()
        self.handlers: dict[str, H] = {}
        self.codecs = None if codec is None else codecs_of(codec)
        self._hooks = AppHooks(awaited=inspect.iscoroutinefunction(self._submit))
        if capture_logs is not None:
            self._hooks.set_capture(capture_logs)
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
        self._in_code.unwritten = self._declarations().any

    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a handler: `@app.task`, or `@app.task(max_attempts=5, timeout=30)`.

        Options: name, lane ("thread", "loop" or "process"), schedule with timezone, every or at, with
        jitter, start_at, end_at, overlap and catch_up; retry_on and
        give_up_on (exception classes), backoff (also a LinearBackoff, a list of seconds, or a function of attempt and
        exception), capture_logs (True or a LogCapture), middleware, codec (a dibs.Codec, or several),
        on_success, on_error, on_dead, on_cancel; limits (names) and group_by (the parameter
        that names the group), which apply to all tasks of the type, also to those that are enqueued by name, by the
        command line or over HTTP; register_schema (False: workers do not register the schema of the arguments); and the
        defaults of its tasks: queue, priority, max_attempts, timeout, tags, expires_in, delay, group, and for tasks
        with a key: key_scope, key_for, on_conflict, max_delay.
        """
        given = self._with_defaults(options)
        decorator = TaskDecorator(self.handlers, self, self._handler_kind, self._hooks, **given)
        return decorator if function is None else decorator(function)

    def batch_task(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a batch handler, which runs many tasks in one call: `@app.batch_task(size=100)`.

        The function takes a `Sequence[dibs.BatchItem[Document]]`, where Document is a class with fields, and returns
        one outcome for each item, in their order: the result of the task, or an exception, which fails this task alone.
        An exception that the function raises fails all tasks of the call. `enqueue(Document(…))` stores one task.

        A call has up to `size` tasks; the first one waits up to `wait` seconds for others. Other options: those of
        `task` without a schedule. `middleware` is around the call and receives its items; the middleware of the app
        does not apply.
        """
        from dibs.handlers.batch import BatchDecorator

        given = self._with_defaults(options)
        decorator = BatchDecorator(self.handlers, self, self._handler_kind, self._hooks, **given)
        return decorator if function is None else decorator(function)

    def middleware(self, function: Around, /) -> Around:
        """Run the function around each attempt of all handlers: `@app.middleware`. Not around batch handlers.

        It is called with the context of the attempt and with `call_next`, which runs the handler and returns its
        result; its own return value is the result of the attempt. An async function awaits `call_next()`. The first
        declared is the outermost. A plain function is refused where a handler is async.
        """
        self._hooks.add_middleware(function, [each for each in self.handlers.values() if each.batch is None])
        return function

    def enqueue_middleware(self, function: AroundEnqueue, /) -> AroundEnqueue:
        """Run the function around each enqueue of this app, once for the whole batch of `enqueue_many`.

        It is called with a sequence of NewTask and with `call_next`, which stores the tasks that it is given and
        returns them; it returns the stored tasks in the same order. An async function for AsyncDibs, a plain one for
        Dibs. The first declared is the outermost.
        """
        self._hooks.add_around_enqueue(function)
        return function

    def limit(
        self, name: str, *, max: int | None = None, rate: str | None = None, burst: int = 1, per: str | None = None
    ) -> None:
        """Declare a limit, without I/O: `app.limit("stripe", max=5)`.

        `max`: how many claims may be live at once. `rate`: how many claims may start in a period, such as "100/minute";
        `burst`: how many of them may start at once. `per`: "group" for a limit of its own for each group.

        A worker stores the declarations of its program when it starts, before its first claim; a client, before its
        first enqueue. A limit that was set or removed by hand stays so until its declaration changes. The same
        declaration again is allowed; another one with the same name raises InvalidValue.
        """
        self._in_code.add_limit(NewLimit(name=name, max=max, rate=rate, burst=burst, per=per))

    def queue(self, name: str, *, fair: bool = False, limits: Sequence[str] = ()) -> None:
        """Declare the settings of a queue, without I/O: `app.queue("mail", fair=True)`. See limit.

        `fair`: the groups of the queue take turns. `limits`: limits that apply to every task of the queue.
        """
        new = NewQueueSettings(queue=name, fair=fair, limits=limits)
        self._in_code.add_queue(NewQueueSettings(queue=name, fair=fair, limits=list(new.limits or ())))

    def lifespan(self, function: Opens, /) -> Opens:
        """Open what handlers need before a worker claims its first task, and close it after the last one.

        A generator function (also an async one) that yields once, or a function that returns a context manager. What it
        yields is `ctx.resources` in all handlers. Each child process of the process lane has its own. If it raises, the
        worker does not start. An app has one lifespan.
        """
        self._hooks.set_lifespan(function)
        return function

    def on_success(self, hook: Hook, /) -> Hook:
        """Call the hook in the worker after a task was completed: `@app.on_success`, with a dibs.EndedAttempt.

        Outcome hooks are called after the outcome is stored, at most once. One that fails is logged and changes
        nothing. A task that ends outside of an attempt has none.
        """
        self._hooks.add_outcome_hook("on_success", hook)
        return hook

    def on_error(self, hook: Hook, /) -> Hook:
        """Call the hook in the worker after each failed attempt, as in `on_success`."""
        self._hooks.add_outcome_hook("on_error", hook)
        return hook

    def on_dead(self, hook: Hook, /) -> Hook:
        """Call the hook in the worker after a failed attempt that no other one follows, as in `on_success`."""
        self._hooks.add_outcome_hook("on_dead", hook)
        return hook

    def on_cancel(self, hook: Hook, /) -> Hook:
        """Call the hook in the worker after a running task was cancelled, as in `on_success`."""
        self._hooks.add_outcome_hook("on_cancel", hook)
        return hook

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Create a worker for the handlers: `app.worker(concurrency=8).run()`, or `with app.worker(): ...`.

        Options: concurrency, children, queues, order, lease, grace, burst, worker_id, poll, upkeep_every,
        recycle_after, recycle_above; WorkerConfig describes each. `queues={"mail": 2, "default": None}` runs at most
        two tasks of the queue mail at once in this process, over all lanes.
        """
        from dibs.worker.worker import Worker

        config = WorkerConfig(**options)
        declarations = self._declarations(every_type=True)
        return Worker(self._store, self._by, self.handlers.values(), config, declarations, hooks=self._hooks)

    def workflow(self, name: str, **options: Unpack[WorkflowOptions]) -> Any:
        """Build a workflow: `with app.workflow("order", key="order-7") as flow: flow.step(fetch, url=…)`.

        The workflow is stored at the end of the block (`async with` for AsyncDibs), unless the block raises.
        Options: key, deadline (seconds, or a time), on_failure ("fail", "continue" or "ignore": what the failure of a
        step does, unless the step has its own policy).
        """
        return self._flow_kind(NewWorkflow(name=name, **options), self.start_workflow)

    def tasks(self, ids: Iterable[int]) -> Any:
        """Many tasks by their ids, in this order, as `map` of a handler returns them: to wait for all of them, and to
        read them. Reads nothing yet. `handler.tasks(ids)` is the same with typed results."""
        return self._handle(ids, None)

    @abstractmethod
    def _handle(self, ids: Iterable[int], convert: Convert | None) -> Any:
        """The handle of these tasks."""

    @abstractmethod
    def start_workflow(self, new: NewWorkflow) -> Any:
        """Store a workflow."""

    @abstractmethod
    def _submit(self, task: NewTask) -> Any:
        """Enqueue the task."""

    @abstractmethod
    def _map(self, new: Any, convert: Convert) -> Any:
        """Enqueue the tasks in chunks."""

    @abstractmethod
    def get(self, task_id: int) -> Any:
        """The task with this id."""

    def on(self, connection: Any) -> Self:
        """A copy of the client on your connection: its methods join the open transaction, which you commit.

        `connection`: a connection or cursor of sqlite3, psycopg or psycopg2; a connection of aiosqlite or asyncpg; a
        Connection, Session, AsyncConnection or AsyncSession of SQLAlchemy; a connection of Django, or its alias.
        """
        return self._with(_on=connection)

    def signed(self, by: str) -> Self:
        """A copy of the client that records `by` as the author in the history of its changes."""
        return self._with(_by=check_name(by, "The signature"))

    def _with_defaults(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a handler, with the defaults of the app."""
        if options.get("limits") or options.get("group_by"):
            self._in_code.unwritten = True
        defaults: dict[str, Any] = {"register_schema": self._register_schemas, "codec": self.codecs}
        return {**defaults, **options}

    def _decode_of(self, type_name: str, stored: Any, what: str) -> Any:
        """The plain JSON of an encoded value of a task of this type, by the codec of its handler, of any other one, or
        of the app."""
        from dibs.handlers.codecs import decode_with

        handlers = sorted(self.handlers.values(), key=lambda handler: handler.name != type_name)
        return decode_with([*(each.codecs for each in handlers), self.codecs], stored, what)

    def _declarations(self, *, every_type: bool = False) -> Declarations:
        """What the program declares. `every_type`: with the types of handlers without limits. Only a worker takes an
        earlier declaration of their limits back: a program that enqueues may have another version of the handler."""
        return Declarations(
            limits=list(self._in_code.limits.values()),
            queues=list(self._in_code.queues.values()),
            types=[each.settings for each in self.handlers.values() if every_type or each.is_limited],
        )

    @property
    def _must_declare(self) -> bool:
        """True if the declarations have to be stored before an enqueue. Not in an open transaction of SQLite, which has
        locked the file: the store would wait for the caller."""
        if not self._in_code.unwritten or self._on is None:
            return self._in_code.unwritten
        from dibs.store.joining import holds_file_lock

        return not holds_file_lock(self._on)

    def _note_declared(self, stored: StoredDeclarations) -> None:
        self._in_code.unwritten = False
        if stored.refused or stored.removed:
            from dibs.worker.declaring import log_refused

            log_refused(stored)

    def _note_not_declared(self, error: StoreError) -> None:
        """Go on without the declarations: a worker, or a client with another key, stores them. After an unknown
        outcome, the next enqueue declares again."""
        if isinstance(error, NotAllowed):
            from dibs.worker.declaring import log_not_allowed

            self._in_code.unwritten = False
            log_not_allowed(error)

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


def goes_on(what: str, which: int) -> str:
    """What a program that is interrupted in a wait tells the user."""
    return f"The wait has ended; {what} {which} goes on."
