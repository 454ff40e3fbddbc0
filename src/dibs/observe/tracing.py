"""Traces with OpenTelemetry: the enqueue and every attempt of a task belong to one trace, across processes and servers.

The task stores the W3C `traceparent` of the enqueuing span. This module does not import OpenTelemetry at import time: a
program that uses tracing has already imported it, and in any other program each function costs one dict lookup.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from dibs.model.claim import Cancelled, Claim, Completed, Failed, Outcome, Released
from dibs.model.task import NewTask, Task
from dibs.model.workflow import NewStep, NewWorkflow, Workflow
from dibs.redaction import redact
from dibs.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, Tracer

T = TypeVar("T")
A = TypeVar("A")

MAX_MESSAGE = 500
"""The largest number of characters of an error message in a span."""

SYSTEM = {"messaging.system": "dibs"}
ENQUEUE = {**SYSTEM, "messaging.operation.name": "enqueue", "messaging.operation.type": "send"}
ATTEMPT = {**SYSTEM, "messaging.operation.name": "attempt", "messaging.operation.type": "process"}

_OUTCOME_NAMES: Mapping[type[Any], str] = {
    Completed: "completed",
    Failed: "failed",
    Released: "released",
    Cancelled: "cancelled",
}
_UNTRACED = nullcontext()


def is_traced() -> bool:
    """True if the program has imported OpenTelemetry. Otherwise no span can be active and no provider can be set, and
    an import here would take 50 ms for nothing."""
    return "opentelemetry.trace" in sys.modules


# Enqueue


class EnqueueSpan(Generic[T]):
    """A context manager around an enqueue: opens a span if the program uses tracing. `what`: the tasks with the
    traceparent of that span."""

    __slots__ = ("_about", "_scope", "_span", "_stamp", "what")

    def __init__(self, what: T, stamp: Any, about: Any) -> None:
        self.what = what
        self._stamp, self._about = stamp, about
        self._span: Span | None = None

    def __enter__(self) -> Self:
        if is_traced():
            self._begin()
        return self

    def stored(self, result: A) -> A:
        """Add the stored task or workflow to the attributes of the span, and return it."""
        if self._span is not None and self._span.is_recording():
            self._span.set_attributes(_attributes_of(result))
        return result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._scope.__exit__(kind, error, trace)  # ends the span, with the error if there is one

    def _begin(self) -> None:
        if not _has_provider():
            self._stamp_with(traceparent())
            return
        from opentelemetry.trace import SpanKind

        scope = _tracer().start_as_current_span(
            "dibs.enqueue", kind=SpanKind.PRODUCER, attributes=ENQUEUE | self._about(self.what)
        )
        self._scope: AbstractContextManager[Any] = scope
        self._span = scope.__enter__()
        self._stamp_with(traceparent(self._span))

    def _stamp_with(self, trace: str | None) -> None:
        if trace is not None:
            self.what = self._stamp(self.what, trace)


def enqueue_span(tasks: Sequence[NewTask]) -> EnqueueSpan[Sequence[NewTask]]:
    """The span for an enqueue of tasks."""
    return EnqueueSpan(tasks, tasks_with_trace, _task_attributes)


def start_workflow_span(new: NewWorkflow) -> EnqueueSpan[NewWorkflow]:
    """The span for the start of a workflow."""
    return EnqueueSpan(new, workflow_with_trace, _workflow_attributes)


def add_steps_span(steps: Sequence[NewStep]) -> EnqueueSpan[Sequence[NewStep]]:
    """The span for the addition of steps to a workflow."""
    return EnqueueSpan(steps, steps_with_trace, _step_attributes)


# Attempts


def begin_attempt(claim: Claim) -> Span | None:
    """Start the span of an attempt, a child of the span that enqueued the task. None if the program does not use
    tracing."""
    if not is_traced():
        return None
    if not _has_provider():
        return _remote_span(claim.task.trace)
    from opentelemetry.trace import SpanKind

    task = claim.task
    about: dict[str, str | int] = {
        **ATTEMPT,
        "messaging.destination.name": task.queue,
        "messaging.message.id": str(task.id),
        "messaging.client.id": claim.worker_id,
        "dibs.task.type": task.type,
        "dibs.task.attempt": claim.attempt,
        "dibs.task.token": claim.token,
    }
    if task.workflow_id is not None:
        about["dibs.workflow.id"] = task.workflow_id
    return _tracer().start_span("dibs.attempt", _parent(task.trace), SpanKind.CONSUMER, about)


def activate(span: Span | None) -> AbstractContextManager[Any]:
    """A context manager that makes the span current: spans, log entries and tasks of the handler belong to it."""
    if span is None:
        return _UNTRACED
    from opentelemetry.trace import use_span

    return use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)


def end_attempt(span: Span | None, outcome: Outcome | None) -> None:
    """End the span with the outcome of the attempt (None: the claim was lost). A second call does nothing."""
    if span is None or not span.is_recording():
        return
    span.set_attribute("dibs.outcome", "lost" if outcome is None else _OUTCOME_NAMES[type(outcome)])
    if isinstance(outcome, Failed):
        _record_failure(span, outcome)
    span.end()


def remote_parent(trace: str | None) -> AbstractContextManager[Any]:
    """A context manager that makes a span of another process current."""
    return activate(_remote_span(trace)) if is_traced() else _UNTRACED


def flush(milliseconds: int) -> None:
    """Export the remaining spans before the process ends, for up to `milliseconds`."""
    if is_traced():
        from opentelemetry.trace import get_tracer_provider

        flush = getattr(get_tracer_provider(), "force_flush", None)  # a method of the SDK, not of the API
        if flush is not None:
            flush(milliseconds)


# The current span


def traceparent(span: Span | None = None) -> str | None:
    """The traceparent of the given span, or of the current one; None without a span."""
    if not is_traced():
        return None
    if span is None:
        span = _trace_api().get_current_span()
    return _to_traceparent(span.get_span_context())


def current_ids() -> dict[str, str]:
    """The ids of the current trace and span, for log entries; empty without a span."""
    trace = traceparent()
    return {} if trace is None else {"trace_id": trace_id(trace), "span_id": trace[36:52]}


def trace_id(trace: str) -> str:
    """The id of the trace in a traceparent."""
    return trace[3:35]


# Adding the traceparent to tasks


def with_trace(task: NewTask, trace: str | None) -> NewTask:
    """The task with this traceparent, unless it already has one."""
    return task if trace is None or task.trace is not None else msgspec.structs.replace(task, trace=trace)


def tasks_with_trace(tasks: Iterable[NewTask], trace: str | None) -> list[NewTask]:
    """The tasks with this traceparent."""
    return [with_trace(task, trace) for task in tasks]


def steps_with_trace(steps: Sequence[NewStep], trace: str | None) -> Sequence[NewStep]:
    """The steps with this traceparent, including those of sub-workflows."""
    if trace is None:
        return steps
    return [
        msgspec.structs.replace(
            step,
            task=None if step.task is None else with_trace(step.task, trace),
            workflow=None if step.workflow is None else workflow_with_trace(step.workflow, trace),
        )
        for step in steps
    ]


def workflow_with_trace(new: NewWorkflow, trace: str | None) -> NewWorkflow:
    """The workflow with this traceparent in all its tasks."""
    if trace is None:
        return new
    finalizer = None if new.finalizer is None else with_trace(new.finalizer, trace)
    return msgspec.structs.replace(new, steps=steps_with_trace(new.steps, trace), finalizer=finalizer)


# OpenTelemetry


def _has_provider() -> bool:
    """True if the program has set a tracer provider. Without one a span costs 5 us and is discarded, so only the
    traceparent is passed on."""
    api = _trace_api()
    return not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


@cache  # an import statement takes longer than the rest of an untraced call
def _trace_api() -> Any:
    from opentelemetry import trace

    return trace


@cache  # a tracer that was created before the provider finds it later
def _tracer() -> Tracer:
    from opentelemetry.trace import get_tracer

    return get_tracer("dibs", __version__)


def _parent(trace: str | None) -> Context:
    """A context with only the enqueuing span: the current span of a worker thread is not the parent of an attempt."""
    from opentelemetry.context import Context
    from opentelemetry.trace import set_span_in_context

    span = _remote_span(trace)
    return Context() if span is None else set_span_in_context(span, Context())


def _remote_span(trace: str | None) -> Span | None:
    """The span of a traceparent; None for an unknown format, which a newer version of dibs may have stored."""
    if trace is None:
        return None
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

    try:
        _, trace_hex, span_hex, flags = trace.split("-")
        context = SpanContext(int(trace_hex, 16), int(span_hex, 16), True, TraceFlags(int(flags, 16)))
    except ValueError:
        return None
    return NonRecordingSpan(context) if context.is_valid else None


def _to_traceparent(context: SpanContext) -> str | None:
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _record_failure(span: Span, outcome: Failed) -> None:
    from opentelemetry.trace import StatusCode

    failure = outcome.failure
    message = redact(failure.message)[:MAX_MESSAGE]
    span.set_status(StatusCode.ERROR, f"{failure.type}: {message}")
    span.set_attribute("error.type", failure.type)
    about = {"exception.type": failure.type, "exception.message": message}
    if failure.traceback is not None:
        about["exception.stacktrace"] = redact(failure.traceback)
    span.add_event("exception", about)


def _task_attributes(tasks: Sequence[NewTask]) -> dict[str, Any]:
    about: dict[str, Any] = {} if len(tasks) == 1 else {"messaging.batch.message_count": len(tasks)}
    queues, types = {task.queue for task in tasks}, {task.type for task in tasks}
    if len(queues) == 1:
        about["messaging.destination.name"] = queues.pop()
    if len(types) == 1:
        about["dibs.task.type"] = types.pop()
    return about


def _workflow_attributes(new: NewWorkflow) -> dict[str, Any]:
    return _task_attributes(list(new.tasks())) | {"dibs.workflow.name": new.name}


def _step_attributes(steps: Sequence[NewStep]) -> dict[str, Any]:
    return {"messaging.batch.message_count": len(steps)}


def _attributes_of(result: Any) -> dict[str, Any]:
    if isinstance(result, Workflow):
        return {"dibs.workflow.id": result.id, "dibs.deduplicated": result.deduplicated}
    if isinstance(result, Task):
        return {"messaging.message.id": str(result.id), "dibs.deduplicated": result.deduplicated}
    return {}
