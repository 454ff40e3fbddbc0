"""Running one attempt: params to arguments, the call, and whatever it did to an outcome.

Nothing here knows about threads, stores or leases, so a worker's lanes, its child processes and `dibs.testing` run a
handler in exactly the same way.
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

_NOTHING = Completed(None)


def perform(handler: AnyHandler, context: Context) -> Outcome:
    """Run the handler in this thread and say how it ended."""
    try:
        arguments = handler.arguments.from_params(context.task.params, context)
    except InvalidValue as error:
        return misfit(error)
    except Exception as error:  # a check in an argument's own type
        return outcome_of(error)
    try:
        result = handler.function(**arguments)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
    except BaseException as error:  # whatever a handler raises is the end of its attempt, not of its thread
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # Ctrl-C in a program that runs handlers in its main thread (a poller, a test)
        return outcome_of(error)
    return completed(result, context)


async def perform_async(handler: AnyHandler, context: Context) -> Outcome:
    """`perform`, for a coroutine function, on the running event loop."""
    try:
        if context.workflow_id is not None and handler.arguments.context_name is not None:
            await asyncio.to_thread(lambda: context.results)  # to read them on first use would block the event loop
        arguments = handler.arguments.from_params(context.task.params, context)
    except InvalidValue as error:
        return misfit(error)
    except Exception as error:
        return outcome_of(error)
    try:
        result = await handler.function(**arguments)
    except asyncio.CancelledError as error:
        return Cancelled() if context.cancelled else outcome_of(error)
    except BaseException as error:  # nor of the event loop, which KeyboardInterrupt would end
        return outcome_of(error)
    return completed(result, context)


def completed(result: Any, context: Context) -> Outcome:
    """The outcome of a handler that returned this."""
    try:
        added = context.added
    except InvalidValue as error:  # a sub-workflow is checked as a whole
        return misfit(error)
    if added:  # they belong to the trace of the attempt that adds them
        added = tracing.stamped_steps(added, tracing.traceparent())
    if result is None:
        return Completed(None, added) if added else _NOTHING
    try:
        return Completed(msgspec.to_builtins(result, str_keys=True), added)
    except Exception as error:  # several kinds: RecursionError for what contains itself, and any of the value's own
        return misfit(InvalidValue(f"The handler returned what is not JSON: {error}."))


def misfit(error: InvalidValue) -> Failed:
    """Params that do not fit, or a result that cannot be kept: trying again would give the same."""
    return Failed(describe(error), permanent=True)
