"""A program that traces: `python -m tests.helpers.traced enqueue greet` and `python -m tests.helpers.traced work`.

It uses the store at DIBS_URL and appends its spans to the file TRACED_TO, one JSON object a line, so that the spans of
several processes can be compared. With TRACED_BY=api it has no SDK, with TRACED_BY=nothing no OpenTelemetry at all.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import dibs

BY = os.environ.get("TRACED_BY", "sdk")

app = dibs.Dibs(os.environ["DIBS_URL"])


@app.batch_task(size=10, wait=0)
def greet_all(items: Sequence[dibs.BatchItem[dict[str, Any]]]) -> list[str]:
    for item in items:
        if item.ctx.workflow_id is not None:
            item.ctx.step("greet")
    return ["hello" for _ in items]


def set_up() -> None:
    """Configure tracing from the environment."""
    if BY == "nothing":
        sys.modules["opentelemetry"] = None  # type: ignore[assignment] # importing it now fails
    elif BY == "api":
        import opentelemetry.trace  # noqa: F401
    else:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

        provider = TracerProvider()
        processor = BatchSpanProcessor if BY == "batches" else SimpleSpanProcessor
        provider.add_span_processor(processor(_to_file()))
        trace.set_tracer_provider(provider)


def _to_file() -> Any:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class ToFile(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            lines = b"".join(msgspec.json.encode(_fields_of(span)) + b"\n" for span in spans)
            with Path(os.environ["TRACED_TO"]).open("ab", buffering=0) as file:
                file.write(lines)
            return SpanExportResult.SUCCESS

    return ToFile()


def _fields_of(span: Any) -> dict[str, Any]:
    return {
        "name": span.name,
        "trace": f"{span.context.trace_id:032x}",
        "id": f"{span.context.span_id:016x}",
        "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        "kind": span.kind.name,
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes),
        "events": [event.name for event in span.events],
        "pid": os.getpid(),
    }


def traces() -> Any:
    """A span of the handler's own; nothing where there is no OpenTelemetry."""
    import contextlib

    if BY == "nothing":
        return contextlib.nullcontext()
    from opentelemetry import trace

    return trace.get_tracer("tests").start_as_current_span("inner")


@app.task
def greet() -> None:
    with traces():
        pass


@app.task
async def greet_async() -> None:
    with traces():
        await asyncio.sleep(0)


@app.task(lane="process")
def greet_apart() -> None:
    with traces():
        pass


@app.task(lane="process", timeout=0.5, max_attempts=1)
def hang_apart() -> None:
    import time

    time.sleep(60)


@app.task(backoff=dibs.Backoff(base=0.01))
def stumble(ctx: dibs.Context) -> None:
    if ctx.attempt < 3:
        raise ValueError(f"attempt {ctx.attempt}")


@app.task
def pass_on() -> None:
    greet.enqueue()


@app.task
def start_flow() -> None:
    with app.workflow("inside") as flow:
        flow.step(greet, after=flow.step(fan_out))


@app.task
def fan_out(ctx: dibs.Context) -> None:
    ctx.step(greet)


@app.task(lane="process")
def fan_out_apart(ctx: dibs.Context) -> None:
    ctx.step(greet)


@app.task
def speak(ctx: dibs.Context) -> None:
    ctx.log.warning("hello")


def enqueue(name: str) -> None:
    """Enqueue in a span, as a web application does while it answers a request."""
    if BY == "nothing":
        app.handlers[name].enqueue()
        return
    from opentelemetry import trace

    with trace.get_tracer("tests").start_as_current_span("request"):
        app.handlers[name].enqueue()


async def enqueue_async(name: str) -> None:
    """The same, awaited."""
    from opentelemetry import trace

    async with dibs.AsyncDibs(os.environ["DIBS_URL"]) as other:
        with trace.get_tracer("tests").start_as_current_span("request"):
            await asyncio.gather(*(other.enqueue_many([dibs.NewTask(name)]) for _ in range(2)))


def work() -> None:
    """Work until every task is finished."""
    with app.worker(children=1):
        while waiting := [task.id for task in app.list_tasks() if not task.finished]:
            app.wait(waiting[0], 30)


set_up()

if __name__ == "__main__":
    from dibs.cli.logs import configure

    configure("info", "json")
    match sys.argv[1:]:
        case ["enqueue", which]:
            enqueue(which)
        case ["enqueue_async", which]:
            asyncio.run(enqueue_async(which))
        case ["work"]:
            work()
            loaded = [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]
            sys.exit(BY == "nothing" and loaded != ["opentelemetry"])
