"""One attempt under test: run as a worker runs it, with what the handler raised kept for the test."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable
from typing import Any

from dibs.errors import InvalidValue
from dibs.handlers.context import Context
from dibs.handlers.handler import Handler
from dibs.model.claim import Claim, ClaimStatus, Outcome
from dibs.store.contract import Store
from dibs.worker.run import perform, perform_async
from dibs.worker.store_access import StoreShelf

AnyHandler = Handler[..., Any, Any]


class Trial:
    """A handler about to be run under a claim, which keeps what the handler raises."""

    def __init__(self, handler: AnyHandler, context: Context) -> None:
        self.context = context
        self.error: BaseException | None = None
        self.is_async = inspect.iscoroutinefunction(handler.function)
        self.handler = copy.copy(handler)
        self.handler.function = (
            self._keeping_async(handler.function) if self.is_async else self._keeping(handler.function)
        )

    def _keeping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            try:
                return function(**arguments)
            except BaseException as error:
                self.error = error
                raise

        return call

    def _keeping_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(**arguments: Any) -> Any:
            try:
                return await function(**arguments)
            except BaseException as error:
                self.error = error
                raise

        return call


def run(trial: Trial) -> Outcome:
    """Run it in this thread; how it ended."""
    if trial.is_async and _on_a_loop():
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


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class LiveContext(Context):
    """A context that asks and tells the store at once, where in a worker the lease keeper does so now and then."""

    __slots__ = ("_store",)

    def __init__(self, claim: Claim, store: Store) -> None:
        self._store = store
        super().__init__(claim, self._write, StoreShelf(store, store.run))

    @property
    def cancelled(self) -> bool:
        """True when somebody asked the task to stop, or the claim is lost."""
        return self._store.run(self._store.queue.claim_status([self.claim])) != [ClaimStatus.HELD]

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        """The store knows."""

    def _write(self, claim: Claim, percent: int, message: str | None) -> None:
        self._store.run(self._store.queue.progress([(claim, percent, message)]))
