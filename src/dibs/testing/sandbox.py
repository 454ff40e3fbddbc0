"""The sandbox: an isolated queue in a test, whose tasks the test runs and inspects."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import msgspec

from dibs import procedures
from dibs.client_base import ClientBase, raise_if_error
from dibs.errors import InvalidValue
from dibs.handlers.batch import AsyncBatchHandler, BatchHandler
from dibs.handlers.handler import AnyHandler, HandlerBase
from dibs.handlers.lifespan import Manager
from dibs.handlers.outcome_hooks import ended_attempt, hooks_after
from dibs.model.claim import Claim, ClaimRequest, Failed, Finished, Outcome, Released
from dibs.model.registry import batches_of_schemas
from dibs.model.search import TaskFilter
from dibs.model.task import DEFAULT_QUEUE, WAITING, NewTask, State, Task
from dibs.store.contract import Store
from dibs.store.operation import Operation, drive, drive_async
from dibs.testing.clock import Clock
from dibs.testing.trial import BatchTrial, HookTrial, LiveContext, Trial, TrialLog, run, run_async
from dibs.worker.declaring import log_refused_schemas, schemas_of
from dibs.worker.run import permanent_failure
from dibs.workflow.task_data import NO_RESOURCES

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")
AnyBatchHandler = BatchHandler[D, R, Any] | AsyncBatchHandler[D, R, Any]
Trials = Generator[Trial | BatchTrial | HookTrial, Any, T]
"""A generator that yields trials to run and receives their outcomes; and calls of hooks, which have none."""

WORKER = "sandbox"
PAGE = 1000


class Sandbox:
    """The queue of the app inside `isolated`: runs its tasks, and inspects them.

    `run_now` and `drain` run handlers of every lane in this thread. `run_now_async` and `drain_async` run coroutine
    functions on the running event loop and plain functions in a thread, for tests that are coroutines.

    The limits and settings of queues that the app declares hold in the sandbox, too. Where a handler has a codec, the
    tasks that `drain`, `enqueued` and `assert_enqueued` return have plain params and a plain result.
    """

    def __init__(self, app: ClientBase[Any], clock: Clock) -> None:
        self.app = app
        self.clock = clock
        self._store: Store = app._store
        self._declare()
        self.resources: Any = NO_RESOURCES
        """What handlers get as `ctx.resources`: set by `lifespan`, or to anything by the test."""

    # Run

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Advance the clock, as `clock.advance`: `box.advance(hours=1)`. Runs nothing; `drain` does."""
        self.clock.advance(seconds, minutes=minutes, hours=hours, days=days)

    def lifespan(self) -> SandboxLifespan:
        """Start the lifespan of the app for a block, as a worker does: `with box.lifespan() as resources`, or
        `async with` on the event loop of the test."""
        return SandboxLifespan(self)

    def run_now(self, handler: HandlerBase[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Enqueue a task for the handler, claim it and run it. Returns the result, or raises the handler's exception.

        The arguments are converted to params, JSON, and back, and so is the result; a context is created from the
        claim. Raises LimitReached if a limit of the task allows no further claim now.
        """
        result: R = drive(self._run_now(handler, handler.new(*args, **kwargs)), run)
        return result

    async def run_now_async(self, handler: HandlerBase[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """`run_now`, on the running event loop."""
        result: R = await drive_async(self._run_now(handler, handler.new(*args, **kwargs)), run_async)
        return result

    def run_batch(self, handler: AnyBatchHandler[D, R], documents: Sequence[D]) -> list[R | BaseException]:
        """Enqueue a task for each document, claim them and run them in one call of the batch handler, however many they
        are. Returns the result of each task, or the exception that failed it."""
        result: list[R | BaseException] = drive(self._run_batch(handler, documents), run)
        return result

    async def run_batch_async(self, handler: AnyBatchHandler[D, R], documents: Sequence[D]) -> list[R | BaseException]:
        """`run_batch`, on the running event loop."""
        result: list[R | BaseException] = await drive_async(self._run_batch(handler, documents), run_async)
        return result

    def drain(self, *, advance: bool = False, raise_errors: bool = False, limit: int = 1000) -> list[Task]:
        """Run all tasks that a worker would claim now, in its order, including tasks that they enqueue. Returns the
        finished tasks.

        A retry that is due later stays scheduled, and a task whose limit is reached stays pending, unless `advance`
        moves the clock to the next time at which a task is due or a rate allows a start, repeatedly.
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
        return [self._plain(task) for task in self._tasks() if task.state in WAITING and name in (None, task.type)]

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

    def _declare(self) -> None:
        """Store what the app declares, as a worker does when it starts."""
        stored = self._run(self._store.limits.declare(self.app._declarations(every_type=True)))
        self.app._note_declared(stored)
        for batch in batches_of_schemas(schemas_of(self.app.handlers.values())):
            log_refused_schemas(self._run(self._store.registry.declare_schemas(batch)))

    def _run_now(self, handler: AnyHandler, new: NewTask) -> Trials[Any]:
        claim = self._claim_new(new)
        [(_, error)] = yield from self._attempt(handler, [claim])
        if error is not None:
            raise error
        return self._result(handler, claim)

    def _run_batch(self, handler: AnyHandler, documents: Sequence[Any]) -> Trials[list[Any]]:
        if handler.batch is None:
            raise InvalidValue(f"{handler.name!r} is no batch handler.", hint="Call run_now for each task.")
        claims = [self._claim_new(handler.new(document)) for document in documents]
        ended = yield from self._attempt(handler, claims)
        return [
            self._result(handler, claim) if error is None else error
            for claim, (_, error) in zip(claims, ended, strict=True)
        ]

    def _claim_new(self, new: NewTask) -> Claim:
        if self.app._must_declare:  # declared inside the block
            self._declare()
        now = msgspec.structs.replace(new, delay=None, run_at=None, expires_in=None, expires_at=None)
        [task] = self._run(self._store.queue.enqueue([now]))
        return self._run(self._store.queue.claim_by_id(task.id, ClaimRequest(worker_id=WORKER)))

    def _result(self, handler: AnyHandler, claim: Claim) -> Any:
        return self._get(claim.task_id).of(self.app, handler.read_result).result

    def _drain(self, advance: bool, raise_errors: bool, limit: int) -> Trials[list[Task]]:
        finished: list[Task] = []
        for claim in self._claims(advance, limit):
            handler = self.app.handlers[claim.task.type]
            claims = [claim, *self._others_of_batch(handler)]
            ended = yield from self._attempt(handler, claims)
            for outcome, error in ended:
                if raise_errors and error is not None and isinstance(outcome, Failed):
                    raise error
            finished += [self._plain(task) for each in claims if (task := self._get(each.task_id)).finished]
        return finished

    def _others_of_batch(self, handler: AnyHandler) -> list[Claim]:
        """The claims that run in one call with a first one: none, except for a batch handler."""
        if handler.batch is None or handler.batch.size == 1:
            return []
        request = ClaimRequest(worker_id=WORKER, types=[handler.name], count=handler.batch.size - 1)
        return self._run(self._store.queue.claim(request))

    def _attempt(
        self, handler: AnyHandler, claims: Sequence[Claim]
    ) -> Trials[list[tuple[Outcome, BaseException | None]]]:
        """Run claimed tasks in one call, one task unless the handler is a batch handler, and write their outcomes.
        Returns each outcome, and the exception of the attempt."""
        if handler.batch is None:
            return [(yield from self._attempt_one(handler, claims[0]))]
        batch = BatchTrial(handler, [LiveContext(claim, self._store, self.resources) for claim in claims])
        outcomes = yield batch
        ended = []
        for claim, outcome, error in zip(claims, outcomes, batch.errors, strict=True):
            ended.append((yield from self._finish(handler, claim, outcome, error)))
        return ended

    def _attempt_one(self, handler: AnyHandler, claim: Claim) -> Trials[tuple[Outcome, BaseException | None]]:
        log = TrialLog(handler, claim)
        trial = Trial(handler, LiveContext(claim, self._store, self.resources, log.sink))
        with log.captured():
            outcome = yield trial
        log.write(self._store)
        return (yield from self._finish(handler, claim, outcome, trial.error))

    def _finish(
        self, handler: AnyHandler, claim: Claim, outcome: Outcome, error: BaseException | None
    ) -> Trials[tuple[Outcome, BaseException | None]]:
        """Write an outcome and call the hooks."""
        result = self._run(self._store.queue.finish([(claim, outcome)]))[0]
        if isinstance(result, InvalidValue):  # a result that cannot be stored fails the task, as in a worker
            outcome = permanent_failure(result)
            result = self._run(self._store.queue.finish([(claim, outcome)]))[0]
        yield from self._call_hooks(handler, claim, outcome, raise_if_error(result))
        if error is None and isinstance(outcome, Failed):
            return outcome, InvalidValue(outcome.failure.message)
        return outcome, error

    def _call_hooks(self, handler: AnyHandler, claim: Claim, outcome: Outcome, finished: Finished) -> Trials[None]:
        """Call the outcome hooks as a worker does, in the order of their declaration."""
        if handler.hooks is None:
            return
        for hook in hooks_after(handler.hooks.outcome_hooks_for(handler.own_outcome_hooks), outcome, finished):
            resources = None if self.resources is NO_RESOURCES else self.resources
            yield HookTrial(hook, ended_attempt(handler, claim, outcome, finished, seconds=None, resources=resources))

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
        if self.app._must_declare:
            self._declare()
        self._run(self._store.upkeep.promote())  # claims do so now and then; here the order must not depend on when
        self._run(self._store.upkeep.expire_tasks())
        self._run(self._store.upkeep.expire_workflows())
        drive(procedures.finalize_due(self._store, WORKER), self._step)
        request = ClaimRequest(worker_id=WORKER, types=list(self.app.handlers))
        claims = self._run(self._store.queue.claim(request))
        return claims[0] if claims else None

    def _advance_clock(self) -> bool:
        """Advance the clock to the next time at which a task becomes due, a lease ends, or a rate allows a start. False
        if there is none."""
        tasks = self._tasks()
        moments = [task.run_at for task in tasks if task.state is State.SCHEDULED]
        moments += [task.lease_until for task in tasks if task.state is State.CLAIMED and task.lease_until]
        moments += self._starts_of_rates()
        later = [moment for moment in moments if moment > self.clock.now]
        if later:
            self.clock.set(min(later))
        return bool(later)

    def _starts_of_rates(self) -> list[datetime]:
        """When the rates allow the next start, where tasks wait for it."""
        rates = [limit.name for limit in self._run(self._store.limits.list_limits()) if limit.rate and limit.waiting]
        groups = [group for name in rates for group in self._run(self._store.limits.limit_groups(name, PAGE))]
        return [group.free_at for group in groups if group.free_at is not None]

    def _tasks(self) -> list[Task]:
        """All tasks, oldest first."""
        tasks: list[Task] = []
        while page := self._run(
            self._store.tasks.list_tasks(TaskFilter(limit=PAGE, cursor=tasks[-1].id if tasks else None))
        ).tasks:
            tasks += page
        return tasks[::-1]

    def _plain(self, task: Task) -> Task:
        """The task with plain params and a plain result, decoded by its handler."""
        handler = self.app.handlers.get(task.type)
        return task if handler is None else handler.plain_task(task)

    def _get(self, task_id: int) -> Task:
        task = self._run(self._store.tasks.get(task_id))
        assert task is not None
        return task

    def _run(self, operation: Operation[T]) -> T:
        return self._store.run(operation)

    def _step(self, step: Operation[Any] | procedures.WaitForChange | procedures.PauseFor) -> Any:
        assert isinstance(step, Operation)
        return self._run(step)

    def _waiting(self) -> str:
        waiting = [f"  {_describe(task)}" for task in self.enqueued()]
        others = len(self._tasks()) - len(waiting)
        more = [f"  (started or finished: {others})"] if others else []
        return "\n".join(["Waiting tasks:" if waiting else "No task is waiting.", *waiting, *more])


class SandboxLifespan:
    """The lifespan of the app, for a block of a test."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box
        lifespan = box.app._hooks.lifespan
        if lifespan is None:
            raise InvalidValue("The app has no lifespan.", hint="Declare one with @app.lifespan.")
        self._manager: Manager = lifespan.manager()

    def __enter__(self) -> Any:
        if not isinstance(self._manager, AbstractContextManager):
            raise InvalidValue("The lifespan of the app is async.", hint="Write `async with box.lifespan()`.")
        self._box.resources = self._manager.__enter__()
        return self._box.resources

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self._box.resources = NO_RESOURCES
        assert isinstance(self._manager, AbstractContextManager)
        self._manager.__exit__(None, None, None)  # the end of a worker, whatever the test has raised

    async def __aenter__(self) -> Any:
        if not isinstance(self._manager, AbstractAsyncContextManager):
            return self.__enter__()
        self._box.resources = await self._manager.__aenter__()
        return self._box.resources

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(self._manager, AbstractAsyncContextManager):
            self.__exit__(kind, error, trace)
            return
        self._box.resources = NO_RESOURCES
        await self._manager.__aexit__(None, None, None)


def _name(which: AnyHandler | str) -> str:
    if isinstance(which, HandlerBase):
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
