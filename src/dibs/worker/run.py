"""Run one attempt: convert params to arguments, call the handler, convert what it returned or raised to an outcome.

This module has no threads, stores or leases, so the lanes of a worker, child processes and `dibs.testing` run a
handler in the same way.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from dibs.encoded import MARK
from dibs.errors import CodecFailed, InvalidValue
from dibs.handlers import running, values
from dibs.handlers.context import Context
from dibs.handlers.endings import describe, outcome_of
from dibs.handlers.handler import AnyHandler
from dibs.model.claim import Cancelled, Completed, Failed, Outcome
from dibs.observe import tracing

if TYPE_CHECKING:
    from dibs.handlers.codecs import Codecs

_COMPLETED_WITHOUT_RESULT = Completed(None)


def perform(handler: AnyHandler, context: Context, run_coroutine: Callable[[Any], Any] = asyncio.run) -> Outcome:
    """Run the handler in this thread and return the outcome. `run_coroutine`: runs a coroutine to its end."""
    if not running.is_observed(context):
        return _perform(handler, context, run_coroutine)
    with running.ObservedAttempt(context):
        return _perform(handler, context, run_coroutine)


def _perform(handler: AnyHandler, context: Context, run_coroutine: Callable[[Any], Any]) -> Outcome:
    context._handler = handler
    try:
        if MARK in (params := context.task.params):
            params = context.decode_params()
        arguments = handler.arguments.from_params(params, context)
    except InvalidValue as error:
        return permanent_failure(error)
    except Exception as error:  # raised by a codec, or by a check in the type of an argument
        return outcome_of(error)
    try:
        around = handler.middleware
        result = handler.function(**arguments) if around is None else around.call(context, handler.function, arguments)
        if inspect.iscoroutine(result):
            result = run_coroutine(result)
    except BaseException as error:  # an exception of a handler ends the attempt, never its thread
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # Ctrl-C in a program that runs handlers in its main thread (a poller, a test)
        return raised(handler, context, error)
    return completed(result, context, handler.codecs)


def perform_async(handler: AnyHandler, context: Context) -> Coroutine[Any, Any, Outcome]:
    """`perform`, for a coroutine function, on the running event loop."""
    return (_perform_observed if running.is_observed(context) else _perform_async)(handler, context)


async def _perform_observed(handler: AnyHandler, context: Context) -> Outcome:
    with running.ObservedAttempt(context):
        return await _perform_async(handler, context)


async def _perform_async(handler: AnyHandler, context: Context) -> Outcome:
    context._handler = handler
    try:
        if MARK in (params := context.task.params):
            params = context.decode_params()
        if context.workflow_id is not None and (handler.arguments.context_name or handler.middleware) is not None:
            await asyncio.to_thread(
                lambda: context.results
            )  # read here, because a read on first use would block the event loop
        arguments = handler.arguments.from_params(params, context)
    except InvalidValue as error:
        return permanent_failure(error)
    except Exception as error:
        return outcome_of(error)
    try:
        around = handler.middleware
        result = await (
            handler.function(**arguments) if around is None else around.call(context, handler.function, arguments)
        )
    except asyncio.CancelledError as error:
        return Cancelled() if context.cancelled else raised(handler, context, error)
    except BaseException as error:  # KeyboardInterrupt would end the event loop
        return raised(handler, context, error)
    return completed(result, context, handler.codecs)


def raised(handler: AnyHandler, context: Context, error: BaseException) -> Outcome:
    """The outcome of a handler that raised, after the retry rules of the handler."""
    outcome = outcome_of(error)
    if handler.retry_rules is None or not isinstance(outcome, Failed):
        return outcome
    return handler.retry_rules.applied(outcome, error, context.claim)


def completed(result: Any, context: Context, codecs: Codecs | None = None) -> Outcome:
    """The outcome of a handler that returned `result`. `codecs`: encode the result."""
    try:
        added = context.added
    except InvalidValue as error:  # a sub-workflow is checked as a whole
        return permanent_failure(error)
    if added:  # added steps belong to the trace of the attempt that adds them
        added = tracing.steps_with_trace(added, tracing.traceparent())
    if result is None:
        return Completed(None, added) if added else _COMPLETED_WITHOUT_RESULT
    try:
        plain = values.to_json(result)
        return Completed(plain if codecs is None else codecs.encode(plain, "the result"), added)
    except CodecFailed as error:  # another attempt may succeed: the key of the codec may have been out of reach
        return outcome_of(error)
    except Exception as error:  # RecursionError for a value that contains itself, or any error of the value's type
        return permanent_failure(InvalidValue(f"The handler's result cannot be stored as JSON: {error}."))


def permanent_failure(error: InvalidValue) -> Failed:
    """A failure without a retry: wrong params or a result that cannot be stored would fail in the same way again."""
    return Failed(describe(error), permanent=True)
