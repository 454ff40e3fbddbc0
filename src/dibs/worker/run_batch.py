"""Run one call of a batch handler: convert params to items, call the handler, convert its outcomes.

Each attempt of the call has an outcome of its own, by the same rules as the attempt of an ordinary handler (run.py):
an exception among the outcomes is the exception of one attempt, an exception that the function raises is that of all.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dibs.encoded import MARK
from dibs.errors import InvalidValue
from dibs.handlers.context import Context
from dibs.handlers.endings import outcome_of
from dibs.handlers.handler import AnyHandler
from dibs.model.claim import Cancelled, Outcome
from dibs.observe import tracing
from dibs.worker.run import completed, permanent_failure, raised


@dataclass(slots=True)
class ItemRun:
    """The attempt of one item in a call. `trace`: of its span. `error`: the exception with which it ended."""

    context: Context
    trace: str | None = None
    item: Any = None
    outcome: Outcome | None = None
    error: BaseException | None = None

    def ended(self, outcome: Outcome) -> Outcome:
        """Set the outcome, and return it."""
        self.outcome = outcome
        return outcome


def run_items(
    handler: AnyHandler, runs: Sequence[ItemRun], run_coroutine: Callable[[Any], Any] = asyncio.run
) -> list[Outcome]:
    """Call the handler in this thread and return the outcome of each attempt."""
    if called := _begin(handler, runs):
        try:
            returned = _call(handler, called)
            if inspect.iscoroutine(returned):
                returned = run_coroutine(returned)
            _end(handler, called, returned)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C in a program that runs handlers in its main thread (a test)
            _fail(handler, called, error)
    return _outcomes(runs)


async def run_items_async(handler: AnyHandler, runs: Sequence[ItemRun]) -> list[Outcome]:
    """`run_items`, for a coroutine function, on the running event loop."""
    called = _begin(handler, runs)
    for run in called:
        if run.context.workflow_id is not None:
            # read here, because a read on first use would block the event loop
            await asyncio.to_thread(getattr, run.context, "results")
    if called:
        try:
            _end(handler, called, await _call(handler, called))
        except asyncio.CancelledError as error:
            for run in called:
                run.error = error
                run.ended(Cancelled() if run.context.cancelled else raised(handler, run.context, error))
        except BaseException as error:  # KeyboardInterrupt would end the event loop
            _fail(handler, called, error)
    return _outcomes(runs)


def _begin(handler: AnyHandler, runs: Sequence[ItemRun]) -> list[ItemRun]:
    """The attempts whose params fit: the others fail alone."""
    for run in runs:
        run.context._handler = handler
        try:
            if MARK in (params := run.context.task.params):
                params = run.context.decode_params()
            run.item = handler.arguments.from_params(params, run.context)["item"]
        except InvalidValue as error:
            run.ended(permanent_failure(error))
        except Exception as error:  # raised by a codec, or by a check in the class of the document
            run.ended(outcome_of(error))
    return [run for run in runs if run.outcome is None]


def _call(handler: AnyHandler, called: Sequence[ItemRun]) -> Any:
    items = [run.item for run in called]
    if handler.middleware is None:
        return handler.function(items)
    return handler.middleware.call(items, lambda: handler.function(items), {})


def _end(handler: AnyHandler, called: Sequence[ItemRun], returned: Any) -> None:
    """Give each attempt its outcome."""
    if not isinstance(returned, Sequence) or isinstance(returned, (str, bytes, bytearray)):
        _fail(handler, called, _not_outcomes(handler, called, type(returned).__name__))
    elif len(returned) != len(called):
        _fail(handler, called, _not_outcomes(handler, called, f"a sequence of {len(returned)}"))
    else:
        for run, outcome in zip(called, returned, strict=True):
            _end_item(handler, run, outcome)


def _end_item(handler: AnyHandler, run: ItemRun, returned: Any) -> None:
    if isinstance(returned, BaseException):
        run.error = returned
        run.ended(raised(handler, run.context, returned))
    else:
        with tracing.remote_parent(run.trace):  # to which the steps belong that the item has added
            run.ended(completed(returned, run.context, handler.codecs))


def _fail(handler: AnyHandler, called: Sequence[ItemRun], error: BaseException) -> None:
    """Fail each attempt, with the retry rules of the handler."""
    for run in called:
        run.error = error
        run.ended(raised(handler, run.context, error))


def _not_outcomes(handler: AnyHandler, called: Sequence[ItemRun], given: str) -> InvalidValue:
    return InvalidValue(
        f"The batch handler {handler.name!r} returned {given} for {len(called)} items.",
        hint="Return a list with one outcome for each item, in their order: a result, or an exception.",
    )


def _outcomes(runs: Sequence[ItemRun]) -> list[Outcome]:
    outcomes = [run.outcome for run in runs if run.outcome is not None]
    assert len(outcomes) == len(runs)
    return outcomes
