"""Traces: whoever enqueues a task and every attempt at it are one trace, whatever processes and servers lie between.

The task carries the W3C `traceparent` of its enqueuer. Nothing is imported for this: a program that traces has imported
OpenTelemetry by itself, and to any other program each function here is one look into a dict.
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

REASON = 500
"""Characters of an error's message that a span tells."""

SYSTEM = {"messaging.system": "dibs"}
ENQUEUE = {**SYSTEM, "messaging.operation.name": "enqueue", "messaging.operation.type": "send"}
ATTEMPT = {**SYSTEM, "messaging.operation.name": "attempt", "messaging.operation.type": "process"}

_ENDINGS: Mapping[type[Any], str] = {
    Completed: "completed",
    Failed: "failed",
    Released: "released",
    Cancelled: "cancelled",
}
_UNTRACED = nullcontext()


def on() -> bool:
    """True where the program has OpenTelemetry in use. To import it here would take 50 ms, for nothing where nobody
    else has: no span could be active, and no provider set."""
    return "opentelemetry.trace" in sys.modules


# Enqueue


class Enqueueing(Generic[T]):
    """What is about to be enqueued, under a span where the program traces: `what` then carries its traceparent."""

    __slots__ = ("_about", "_scope", "_span", "_stamp", "what")

    def __init__(self, what: T, stamp: Any, about: Any) -> None:
        self.what = what
        self._stamp, self._about = stamp, about
        self._span: Span | None = None

    def __enter__(self) -> Self:
        if on():
            self._begin()
        return self

    def stored(self, answer: A) -> A:
        """What the store made of it, which the span then names."""
        if self._span is not None and self._span.is_recording():
            self._span.set_attributes(_attributes_of(answer))
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._scope.__exit__(kind, error, trace)  # ends the span, with the error if there is one

    def _begin(self) -> None:
        if not _provided():
            self._carry(traceparent())
            return
        from opentelemetry.trace import SpanKind

        scope = _tracer().start_as_current_span(
            "dibs.enqueue", kind=SpanKind.PRODUCER, attributes=ENQUEUE | self._about(self.what)
        )
        self._scope: AbstractContextManager[Any] = scope
        self._span = scope.__enter__()
        self._carry(traceparent(self._span))

    def _carry(self, trace: str | None) -> None:
        if trace is not None:
            self.what = self._stamp(self.what, trace)


def enqueueing(tasks: Sequence[NewTask]) -> Enqueueing[Sequence[NewTask]]:
    """Tasks that are about to be enqueued together."""
    return Enqueueing(tasks, stamped_tasks, _about_tasks)


def starting(new: NewWorkflow) -> Enqueueing[NewWorkflow]:
    """A workflow that is about to be started."""
    return Enqueueing(new, stamped_workflow, _about_workflow)


def adding(steps: Sequence[NewStep]) -> Enqueueing[Sequence[NewStep]]:
    """Steps that are about to be added to a workflow."""
    return Enqueueing(steps, stamped_steps, _about_steps)


# Attempts


def begin(claim: Claim) -> Span | None:
    """The span of an attempt, a child of whoever enqueued the task; None where the program does not trace."""
    if not on():
        return None
    if not _provided():
        return _remote(claim.task.trace)
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


def active(span: Span | None) -> AbstractContextManager[Any]:
    """While this holds, the span is the current one: what the handler traces, logs and enqueues belongs to it."""
    if span is None:
        return _UNTRACED
    from opentelemetry.trace import use_span

    return use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)


def end(span: Span | None, outcome: Outcome | None) -> None:
    """The attempt ended so (None: its claim was lost). Only the first word counts."""
    if span is None or not span.is_recording():
        return
    span.set_attribute("dibs.outcome", "lost" if outcome is None else _ENDINGS[type(outcome)])
    if isinstance(outcome, Failed):
        _tell_of_failure(span, outcome)
    span.end()


def inside(trace: str | None) -> AbstractContextManager[Any]:
    """While this holds, whatever is traced here belongs to the span of another process."""
    return active(_remote(trace)) if on() else _UNTRACED


def leave(milliseconds: int) -> None:
    """This process ends without a goodbye: let what it has traced go out first, if that does not take too long."""
    if on():
        from opentelemetry.trace import get_tracer_provider

        flush = getattr(get_tracer_provider(), "force_flush", None)  # a word of the SDK, not of the API
        if flush is not None:
            flush(milliseconds)


# Where we are


def traceparent(span: Span | None = None) -> str | None:
    """The traceparent of the span, or else of the current one; None where there is none."""
    if not on():
        return None
    if span is None:
        span = _api().get_current_span()
    return _written(span.get_span_context())


def ids() -> dict[str, str]:
    """The ids of the current trace and span, for a line of the log; empty where there is none."""
    trace = traceparent()
    return {} if trace is None else {"trace_id": trace_id(trace), "span_id": trace[36:52]}


def trace_id(trace: str) -> str:
    """The id of the trace in a traceparent."""
    return trace[3:35]


# Carrying


def stamped(task: NewTask, trace: str | None) -> NewTask:
    """The task as part of this trace, unless it is part of one already."""
    return task if trace is None or task.trace is not None else msgspec.structs.replace(task, trace=trace)


def stamped_tasks(tasks: Iterable[NewTask], trace: str | None) -> list[NewTask]:
    """The tasks as part of this trace."""
    return [stamped(task, trace) for task in tasks]


def stamped_steps(steps: Sequence[NewStep], trace: str | None) -> Sequence[NewStep]:
    """The steps as part of this trace, those of sub-workflows included."""
    if trace is None:
        return steps
    return [
        msgspec.structs.replace(
            step,
            task=None if step.task is None else stamped(step.task, trace),
            workflow=None if step.workflow is None else stamped_workflow(step.workflow, trace),
        )
        for step in steps
    ]


def stamped_workflow(new: NewWorkflow, trace: str | None) -> NewWorkflow:
    """The workflow as part of this trace."""
    if trace is None:
        return new
    finalizer = None if new.finalizer is None else stamped(new.finalizer, trace)
    return msgspec.structs.replace(new, steps=stamped_steps(new.steps, trace), finalizer=finalizer)


# In the words of OpenTelemetry


def _provided() -> bool:
    """True where somebody wants spans. Without a provider a span would cost 5 us and be nothing; what is carried on,
    from whoever has one to whoever has one, is the trace."""
    api = _api()
    return not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


@cache  # an import statement costs more than all the rest of what is done for nothing
def _api() -> Any:
    from opentelemetry import trace

    return trace


@cache  # one that was made before there is a provider finds it later
def _tracer() -> Tracer:
    from opentelemetry.trace import get_tracer

    return get_tracer("dibs", __version__)


def _parent(trace: str | None) -> Context:
    """A context with nothing in it but the enqueuer's span: what is current in a worker's own threads is not meant."""
    from opentelemetry.context import Context
    from opentelemetry.trace import set_span_in_context

    span = _remote(trace)
    return Context() if span is None else set_span_in_context(span, Context())


def _remote(trace: str | None) -> Span | None:
    """The span that a traceparent names. An odd one (a newer dibs may know other versions) is no reason to fail."""
    if trace is None:
        return None
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

    try:
        _, trace_hex, span_hex, flags = trace.split("-")
        context = SpanContext(int(trace_hex, 16), int(span_hex, 16), True, TraceFlags(int(flags, 16)))
    except ValueError:
        return None
    return NonRecordingSpan(context) if context.is_valid else None


def _written(context: SpanContext) -> str | None:
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _tell_of_failure(span: Span, outcome: Failed) -> None:
    from opentelemetry.trace import StatusCode

    failure = outcome.failure
    message = redact(failure.message)[:REASON]
    span.set_status(StatusCode.ERROR, f"{failure.type}: {message}")
    span.set_attribute("error.type", failure.type)
    about = {"exception.type": failure.type, "exception.message": message}
    if failure.traceback is not None:
        about["exception.stacktrace"] = redact(failure.traceback)
    span.add_event("exception", about)


def _about_tasks(tasks: Sequence[NewTask]) -> dict[str, Any]:
    about: dict[str, Any] = {} if len(tasks) == 1 else {"messaging.batch.message_count": len(tasks)}
    queues, types = {task.queue for task in tasks}, {task.type for task in tasks}
    if len(queues) == 1:
        about["messaging.destination.name"] = queues.pop()
    if len(types) == 1:
        about["dibs.task.type"] = types.pop()
    return about


def _about_workflow(new: NewWorkflow) -> dict[str, Any]:
    return _about_tasks(list(new.tasks())) | {"dibs.workflow.name": new.name}


def _about_steps(steps: Sequence[NewStep]) -> dict[str, Any]:
    return {"messaging.batch.message_count": len(steps)}


def _attributes_of(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Workflow):
        return {"dibs.workflow.id": answer.id, "dibs.deduplicated": answer.deduplicated}
    if isinstance(answer, Task):
        return {"messaging.message.id": str(answer.id), "dibs.deduplicated": answer.deduplicated}
    return {}
