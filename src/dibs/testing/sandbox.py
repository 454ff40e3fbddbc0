"""The sandbox: an isolated queue in a test, whose tasks the test runs and inspects."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

import msgspec

from dibs import procedures
from dibs.client_base import ClientBase, raise_if_error
from dibs.errors import InvalidValue
from dibs.handlers.handler import Handler
from dibs.model.checks import check_seconds, from_micros, to_micros
from dibs.model.claim import Claim, ClaimRequest, Failed, Outcome, Released
from dibs.model.search import TaskFilter
from dibs.model.task import DEFAULT_QUEUE, WAITING, NewTask, State, Task
from dibs.store.contract import Store
from dibs.store.operation import Operation, drive, drive_async
from dibs.testing.trial import LiveContext, Trial, run, run_async
from dibs.worker.run import AnyHandler, permanent_failure

P = ParamSpec("P")
T = TypeVar("T")
Trials = Generator[Trial, Outcome, T]
"""A generator that yields trials to run and receives their outcomes."""

WORKER = "sandbox"
PAGE = 1000


class Sandbox:
    """The queue of the app inside `isolated`: runs its tasks, and inspects them.

    `run_now` and `drain` run handlers of every lane in this thread. `run_now_async` and `drain_async` run coroutine
    functions on the running event loop and plain functions in a thread, for tests that are coroutines.
    """

    def __init__(self, app: ClientBase[Any], clock: Clock) -> None:
        self.app = app
        self.clock = clock
        self._store: Store = app._store

    # Run

    def run_now(self, handler: Handler[P, Any, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Enqueue a task for the handler, claim it and run it. Returns the stored result, or raises the handler's
        exception.

        The arguments are converted to params, JSON, and back; a context is created from the claim.
        """
        return drive(self._run_now(handler, handler.new(*args, **kwargs)), run)

    async def run_now_async(self, handler: Handler[P, Any, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """`run_now`, on the running event loop."""
        return await drive_async(self._run_now(handler, handler.new(*args, **kwargs)), run_async)

    def drain(self, *, advance: bool = False, raise_errors: bool = False, limit: int = 1000) -> list[Task]:
        """Run all tasks that a worker would claim now, in its order, including tasks that they enqueue. Returns the
        finished tasks.

        A retry that is due later stays scheduled, unless `advance` moves the clock to the next due time, repeatedly.
        `raise_errors`: raise the exception of the first failing handler. More than `limit` attempts raise
        AssertionError: most likely a task enqueues itself for ever.
        """
        return drive(self._drain(advance, raise_errors, limit), run)

    async def drain_async(self, *, advance: bool = False, raise_errors: bool = False, limit: int = 1000) -> list[Task]:
        """`drain`, on the running event loop."""
        return await drive_async(self._drain(advance, raise_errors, limit), run_async)

    # Inspect

    def enqueued(self, which: AnyHandler | str | None = None) -> list[Task]:
        """The waiting tasks, due or not, oldest first; with an argument only those of this handler or task type."""
        name = None if which is None else _name(which)
        return [task for task in self._tasks() if task.state in WAITING and name in (None, task.type)]

    def assert_enqueued(
        self,
        which: AnyHandler | str,
        /,
        *,
        count: int | None = None,
        queue: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        **params: Any,
    ) -> list[Task]:
        """Assert that a task for this handler or task type is waiting, with at least these params. Returns the matches.

        `count`: the exact number of matches. For params named as an option above, use `enqueued`.
        """
        __tracebackhide__ = True  # pytest then shows the line of the test
        wanted = {"queue": queue, "priority": priority, "key": key}
        given = {name: value for name, value in wanted.items() if value is not None}
        found = [task for task in self.enqueued(which) if _matches(task, given, _as_json(params))]
        enough = bool(found) if count is None else len(found) == count
        if not enough:
            number = "a task" if count is None else f"{count} tasks"
            raise AssertionError(
                f"Expected {number} like {_call(_name(which), params, given)} to be waiting, found {len(found)}.\n"
                f"{self._waiting()}"
            )
        return found

    def assert_nothing_enqueued(self) -> None:
        """Assert that no task is waiting."""
        __tracebackhide__ = True
        if self.enqueued():
            raise AssertionError(f"Expected no task to be waiting.\n{self._waiting()}")

    # Internals

    def _run_now(self, handler: AnyHandler, new: NewTask) -> Trials[Any]:
        now = msgspec.structs.replace(new, delay=None, run_at=None)
        [task] = self._run(self._store.queue.enqueue([now]))
        claim = self._run(self._store.queue.claim_by_id(task.id, ClaimRequest(worker_id=WORKER)))
        _, error = yield from self._attempt(handler, claim)
        if error is not None:
            raise error
        return self._get(task.id).result

    def _drain(self, advance: bool, raise_errors: bool, limit: int) -> Trials[list[Task]]:
        finished: list[Task] = []
        for claim in self._claims(advance, limit):
            outcome, error = yield from self._attempt(self.app.handlers[claim.task.type], claim)
            if raise_errors and error is not None and isinstance(outcome, Failed):
                raise error
            task = self._get(claim.task_id)
            if task.finished:
                finished.append(task)
        return finished

    def _attempt(self, handler: AnyHandler, claim: Claim) -> Trials[tuple[Outcome, BaseException | None]]:
        """Run a claimed task and write its outcome. Returns the outcome, and the exception of the handler."""
        trial = Trial(handler, LiveContext(claim, self._store))
        outcome = yield trial
        result = self._run(self._store.queue.finish([(claim, outcome)]))[0]
        if isinstance(result, InvalidValue):  # a result that cannot be stored fails the task, as in a worker
            outcome = permanent_failure(result)
            result = self._run(self._store.queue.finish([(claim, outcome)]))[0]
        raise_if_error(result)
        if trial.error is None and isinstance(outcome, Failed):
            return outcome, InvalidValue(outcome.failure.message)
        return outcome, trial.error

    def _claims(self, advance: bool, limit: int) -> Iterator[Claim]:
        for count in itertools.count():
            claim = self._claim()
            while claim is None and advance and self._advance_clock():
                claim = self._claim()
            if claim is None:
                return
            if count == limit:
                self._run(self._store.queue.finish([(claim, Released())]))
                raise AssertionError(
                    f"Tasks are still pending after {limit} attempts: {_describe(claim.task)}.\n"
                    "hint: A task that enqueues or snoozes itself never ends. Otherwise pass a higher limit."
                )
            yield claim

    def _claim(self) -> Claim | None:
        if not self.app.handlers:
            raise InvalidValue("There is nothing to run: the app has no handlers.", hint="Declare one with @app.task.")
        self._run(self._store.upkeep.promote())  # claims do so now and then; here the order must not depend on when
        self._run(self._store.upkeep.expire_workflows())
        drive(procedures.finalize_due(self._store, WORKER), self._step)
        request = ClaimRequest(worker_id=WORKER, types=list(self.app.handlers))
        claims = self._run(self._store.queue.claim(request))
        return claims[0] if claims else None

    def _advance_clock(self) -> bool:
        """Advance the clock to the next time at which a task becomes due or a lease ends. False if there is none."""
        tasks = self._tasks()
        moments = [task.run_at for task in tasks if task.state is State.SCHEDULED]
        moments += [task.lease_until for task in tasks if task.state is State.CLAIMED and task.lease_until]
        later = [moment for moment in moments if moment > self.clock.now]
        if later:
            self.clock.set(min(later))
        return bool(later)

    def _tasks(self) -> list[Task]:
        """All tasks, oldest first."""
        tasks: list[Task] = []
        while page := self._run(
            self._store.tasks.list_tasks(TaskFilter(limit=PAGE, cursor=tasks[-1].id if tasks else None))
        ).tasks:
            tasks += page
        return tasks[::-1]

    def _get(self, task_id: int) -> Task:
        task = self._run(self._store.tasks.get(task_id))
        assert task is not None
        return task

    def _run(self, operation: Operation[T]) -> T:
        return self._store.run(operation)

    def _step(self, step: Operation[Any] | procedures.WaitForChange) -> Any:
        assert not isinstance(step, procedures.WaitForChange)
        return self._run(step)

    def _waiting(self) -> str:
        waiting = [f"  {_describe(task)}" for task in self.enqueued()]
        others = len(self._tasks()) - len(waiting)
        more = [f"  (started or finished: {others})"] if others else []
        return "\n".join(["Waiting tasks:" if waiting else "No task is waiting.", *waiting, *more])


def _name(which: AnyHandler | str) -> str:
    if isinstance(which, Handler):
        return which.name
    if not isinstance(which, str):
        raise InvalidValue(f"{which!r} is neither a handler nor the name of a task type.")
    return which


def _matches(task: Task, given: dict[str, Any], params: dict[str, Any]) -> bool:
    return all(getattr(task, name) == value for name, value in given.items()) and all(
        name in task.params and task.params[name] == value for name, value in params.items()
    )


def _as_json(params: dict[str, Any]) -> dict[str, Any]:
    """The params as they would be stored: a datetime as text, a tuple as a list."""
    as_json: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(params))
    return as_json


def _describe(task: Task) -> str:
    about: dict[str, Any] = {"queue": task.queue} if task.queue != DEFAULT_QUEUE else {}
    if task.priority:
        about["priority"] = task.priority
    if task.key is not None:
        about["key"] = task.key
    due = f" ({task.state} until {task.run_at.isoformat()})" if task.state is State.SCHEDULED else ""
    return _call(task.type, task.params, about) + due


def _call(name: str, params: dict[str, Any], about: dict[str, Any]) -> str:
    call = f"{name}({', '.join(f'{param}={value!r}' for param, value in params.items())})"
    return ", ".join([call, *(f"{word} {value!r}" for word, value in about.items())])


class Clock:
    """The clock of a sandbox: starts with the real time and changes only when the test changes it."""

    def __init__(self) -> None:
        self._micros = to_micros(datetime.now(UTC))

    @property
    def now(self) -> datetime:
        """The time of the clock."""
        return from_micros(self._micros)

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._micros += check_seconds(seconds, "seconds")

    def set(self, moment: datetime) -> None:
        """Set the clock to this time."""
        if moment.utcoffset() is None:
            raise InvalidValue("The time has no time zone.", hint="Use an aware datetime: datetime(…, tzinfo=UTC).")
        self._micros = to_micros(moment)

    def __call__(self) -> int:
        """The time in microseconds since 1970, for the store."""
        return self._micros

    def __repr__(self) -> str:
        return f"Clock({self.now.isoformat()})"
