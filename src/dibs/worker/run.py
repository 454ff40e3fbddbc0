"""Run one attempt: convert params to arguments, call the handler, convert what it returned or raised to an outcome.

This module has no threads, stores or leases, so the lanes of a worker, child processes and `dibs.testing` run a
handler in the same way.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import msgspec

from dibs.errors import InvalidValue
from dibs.handlers.context import Context
from dibs.handlers.endings import describe, outcome_of
from dibs.handlers.handler import Handler
from dibs.model.claim import Cancelled, Completed, Failed, Outcome
from dibs.observe import tracing

AnyHandler = Handler[..., Any, Any]

_COMPLETED_WITHOUT_RESULT = Completed(None)


def perform(handler: AnyHandler, context: Context) -> Outcome:
    """Run the handler in this thread and return the outcome."""
    try:
        arguments = handler.arguments.from_params(context.task.params, context)
    except InvalidValue as error:
        return permanent_failure(error)
    except Exception as error:  # raised by a check in the type of an argument
        return outcome_of(error)
    try:
        result = handler.function(**arguments)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
    except BaseException as error:  # an exception of a handler ends the attempt, never its thread
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # Ctrl-C in a program that runs handlers in its main thread (a poller, a test)
        return outcome_of(error)
    return completed(result, context)


async def perform_async(handler: AnyHandler, context: Context) -> Outcome:
    """`perform`, for a coroutine function, on the running event loop."""
    try:
        if context.workflow_id is not None and handler.arguments.context_name is not None:
            await asyncio.to_thread(
                lambda: context.results
            )  # read here, because a read on first use would block the event loop
        arguments = handler.arguments.from_params(context.task.params, context)
    except InvalidValue as error:
        return permanent_failure(error)
    except Exception as error:
        return outcome_of(error)
    try:
        result = await handler.function(**arguments)
    except asyncio.CancelledError as error:
        return Cancelled() if context.cancelled else outcome_of(error)
    except BaseException as error:  # KeyboardInterrupt would end the event loop
        return outcome_of(error)
    return completed(result, context)


def completed(result: Any, context: Context) -> Outcome:
    """The outcome of a handler that returned `result`."""
    try:
        added = context.added
    except InvalidValue as error:  # a sub-workflow is checked as a whole
        return permanent_failure(error)
    if added:  # added steps belong to the trace of the attempt that adds them
        added = tracing.steps_with_trace(added, tracing.traceparent())
    if result is None:
        return Completed(None, added) if added else _COMPLETED_WITHOUT_RESULT
    try:
        return Completed(msgspec.to_builtins(result, str_keys=True), added)
    except Exception as error:  # RecursionError for a value that contains itself, or any error of the value's type
        return permanent_failure(InvalidValue(f"The handler's result cannot be stored as JSON: {error}."))


def permanent_failure(error: InvalidValue) -> Failed:
    """A failure without a retry: wrong params or a result that cannot be stored would fail in the same way again."""
    return Failed(describe(error), permanent=True)
