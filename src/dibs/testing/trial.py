"""One attempt in a test: runs as in a worker, and keeps the exception of the handler for the test."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable
from typing import Any

from dibs.errors import InvalidValue
from dibs.handlers.context import Context
from dibs.model.claim import Claim, ClaimStatus, Outcome
from dibs.store.contract import Store
from dibs.worker.run import AnyHandler, perform, perform_async
from dibs.worker.store_access import StoreTaskData


class Trial:
    """One run of a handler under a claim. `error`: the exception that the handler raised."""

    def __init__(self, handler: AnyHandler, context: Context) -> None:
        self.context = context
        self.error: BaseException | None = None
        self.is_async = inspect.iscoroutinefunction(handler.function)
        self.handler = copy.copy(handler)
        self.handler.function = (
            self._recording_async(handler.function) if self.is_async else self._recording(handler.function)
        )

    def _recording(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            try:
                return function(**arguments)
            except BaseException as error:
                self.error = error
                raise

        return call

    def _recording_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(**arguments: Any) -> Any:
            try:
                return await function(**arguments)
            except BaseException as error:
                self.error = error
                raise

        return call


def run(trial: Trial) -> Outcome:
    """Run the trial in this thread and return the outcome."""
    if trial.is_async and _in_event_loop():
        raise InvalidValue(
            f"The coroutine function {trial.handler.name!r} cannot be waited for inside a running event loop.",
            hint="Await it: run_now_async(…), drain_async().",
        )
    return perform(trial.handler, trial.context)


async def run_async(trial: Trial) -> Outcome:
    """Run a coroutine function on the running event loop, and a plain function in a thread."""
    if trial.is_async:
        return await perform_async(trial.handler, trial.context)
    return await asyncio.to_thread(perform, trial.handler, trial.context)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class LiveContext(Context):
    """A context that reads and writes the store directly; in a worker the lease keeper does that periodically."""

    __slots__ = ("_store",)

    def __init__(self, claim: Claim, store: Store) -> None:
        self._store = store
        super().__init__(claim, self._write, StoreTaskData(store, store.run))

    @property
    def cancelled(self) -> bool:
        """True if the cancellation of the task was requested, or the claim is lost."""
        return self._store.run(self._store.queue.claim_status([self.claim])) != [ClaimStatus.HELD]

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        """Ignore the value: the store has the status."""

    def _write(self, claim: Claim, percent: int, message: str | None) -> None:
        self._store.run(self._store.queue.progress([(claim, percent, message)]))
