"""One attempt in a test: runs as in a worker, and keeps the exception of the handler for the test."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dibs.errors import InvalidValue
from dibs.handlers.context import Context
from dibs.handlers.handler import AnyHandler
from dibs.handlers.middleware import is_async, name_of, stack
from dibs.handlers.outcome_hooks import EndedAttempt, OutcomeHook
from dibs.model.claim import MAX_BATCH, Claim, ClaimStatus, Outcome
from dibs.model.logs import LogLine
from dibs.store.contract import Store
from dibs.worker.attempt_log import AttemptLog
from dibs.worker.capturing import captured
from dibs.worker.hook_runner import call_hook, log_hook_failure
from dibs.worker.run import perform, perform_async
from dibs.worker.run_batch import ItemRun, run_items, run_items_async
from dibs.worker.store_access import StoreTaskData
from dibs.workflow.task_data import NO_RESOURCES


class Trial:
    """One run of a handler under a claim. `error`: the exception that the attempt ended with, after its middleware."""

    def __init__(self, handler: AnyHandler, context: Context) -> None:
        self.context = context
        self.error: BaseException | None = None
        self.is_async = inspect.iscoroutinefunction(handler.function)
        self.needs_loop = self.is_async
        self.handler = copy.copy(handler)
        if handler.middleware is None:
            self.handler.function = self._recording(handler.function)
        else:
            outermost, *others = handler.middleware.layers
            self.needs_loop = is_async(outermost)
            self.handler.middleware = stack(handler.name, handler.function, [self._recording(outermost), *others])

    def _recording(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._recording_async(function) if is_async(function) else self._recording_plain(function)

    def _recording_plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **arguments: Any) -> Any:
            try:
                return function(*args, **arguments)
            except BaseException as error:
                self.error = error
                raise

        return call

    def _recording_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **arguments: Any) -> Any:
            try:
                return await function(*args, **arguments)
            except BaseException as error:
                self.error = error
                raise

        return call


class BatchTrial:
    """One call of a batch handler."""

    def __init__(self, handler: AnyHandler, contexts: Sequence[Context]) -> None:
        self.handler = handler
        self._runs = [ItemRun(context) for context in contexts]
        self.is_async = inspect.iscoroutinefunction(handler.function)
        outermost = handler.function if handler.middleware is None else handler.middleware.layers[0]
        self.needs_loop = is_async(outermost)

    @property
    def errors(self) -> list[BaseException | None]:
        """The exception of each attempt."""
        return [run.error for run in self._runs]

    def run(self) -> list[Outcome]:
        """Call the handler in this thread and return the outcomes."""
        return run_items(self.handler, self._runs)

    async def run_async(self) -> list[Outcome]:
        """Call the coroutine function on the running event loop and return the outcomes."""
        return await run_items_async(self.handler, self._runs)


class HookTrial:
    """One call of an outcome hook."""

    def __init__(self, hook: OutcomeHook, ended: EndedAttempt) -> None:
        self._hook, self._ended = hook, ended

    def call(self) -> None:
        """Call the hook in this thread, and log its exception."""
        if is_async(self._hook) and _in_event_loop():
            raise InvalidValue(
                f"The async hook {name_of(self._hook)} cannot be waited for inside a running event loop.",
                hint="Await it: run_now_async(…), drain_async().",
            )
        if (waiting := call_hook(self._hook, self._ended)) is not None:
            asyncio.run(self._wait_for(waiting))

    async def call_async(self) -> None:
        """Call the hook on the running event loop, and log its exception."""
        if (waiting := call_hook(self._hook, self._ended)) is not None:
            await self._wait_for(waiting)

    async def _wait_for(self, waiting: Any) -> None:
        try:
            await waiting
        except Exception as error:
            log_hook_failure(self._hook, self._ended, error)


def run(trial: Trial | BatchTrial | HookTrial) -> Outcome | list[Outcome] | None:
    """Run the trial in this thread and return the outcome; that of each attempt for a batch."""
    if isinstance(trial, HookTrial):
        trial.call()
        return None
    if trial.needs_loop and _in_event_loop():
        raise InvalidValue(
            f"The coroutine function {trial.handler.name!r}, or its middleware, cannot be waited for inside a running "
            "event loop.",
            hint="Await it: run_now_async(…), drain_async().",
        )
    if isinstance(trial, BatchTrial):
        return trial.run()
    return perform(trial.handler, trial.context)


async def run_async(trial: Trial | BatchTrial | HookTrial) -> Outcome | list[Outcome] | None:
    """Run a coroutine function on the running event loop, and a plain function in a thread."""
    if isinstance(trial, HookTrial):
        await trial.call_async()
        return None
    if isinstance(trial, BatchTrial):
        return await (trial.run_async() if trial.is_async else asyncio.to_thread(trial.run))
    if trial.is_async:
        return await perform_async(trial.handler, trial.context)
    return await asyncio.to_thread(perform, trial.handler, trial.context)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class TrialLog:
    """The log lines of one attempt, which are written after it. `sink` is None for a handler that captures none."""

    def __init__(self, handler: AnyHandler, claim: Claim) -> None:
        self._capture = handler.capture
        self._lines: list[LogLine] = []
        self.sink = None if self._capture is None else AttemptLog(claim, self._capture, self._put, _nothing)

    def captured(self) -> AbstractContextManager[None]:
        """A context manager around the attempt."""
        return nullcontext() if self._capture is None else captured(self._capture)

    def write(self, store: Store) -> None:
        """Store the lines."""
        for start in range(0, len(self._lines), MAX_BATCH):
            store.run(store.logs.add_log_lines(self._lines[start : start + MAX_BATCH]))

    def _put(self, line: LogLine, forced: bool) -> bool:
        self._lines.append(line)
        return True


def _nothing() -> None:
    """The lines are written when the attempt has ended anyway."""


class LiveContext(Context):
    """A context that reads and writes the store directly; in a worker the lease keeper does that periodically."""

    __slots__ = ("_store",)

    def __init__(
        self, claim: Claim, store: Store, resources: Any = NO_RESOURCES, sink: AttemptLog | None = None
    ) -> None:
        self._store = store
        task_data = StoreTaskData(store, store.run)
        task_data.resources = resources
        super().__init__(claim, self._write, task_data, sink)

    @property
    def cancelled(self) -> bool:
        """True if the cancellation of the task was requested, or the claim is lost."""
        return self._store.run(self._store.queue.claim_status([self.claim])) != [ClaimStatus.HELD]

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        """Ignore the value: the store has the status."""

    def _write(self, claim: Claim, percent: int, message: str | None) -> None:
        self._store.run(self._store.queue.progress([(claim, percent, message)]))
