"""Print a workflow with its fields and its graph, once or repeatedly until the workflow has ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.cli import text, workflow_text
from dibs.cli.enqueue import read_object
from dibs.cli.output import FIELD_WIDTH, STYLES, Output, exit_if_pipe_closed
from dibs.cli.top import pause_after
from dibs.cli.workflow_text import Signs, StyledLine, format_duration
from dibs.errors import InvalidValue, WorkflowNotFound
from dibs.model.finalization import ExecutionContext
from dibs.model.workflow import FinalizeWhen, NewWorkflow, Step, Workflow
from dibs.wire.fields import readable, whole_numbers
from dibs.wire.finalization import ExecutionContext as WireContext
from dibs.wire.workflows import Step as WireStep
from dibs.wire.workflows import Workflow as WireWorkflow
from dibs.wire.workflows import WorkflowBody
from dibs.workflow.summary import fold

if TYPE_CHECKING:
    from rich.text import Text

    from dibs.client import Dibs

DEPTH = 5
"""Maximum depth of sub-workflows in the drawing. `dibs workflows show` of a sub-workflow shows deeper levels."""


@dataclass(frozen=True)
class WorkflowSnapshot:
    """A workflow at one moment."""

    workflow: Workflow
    context: ExecutionContext
    steps: Sequence[Step]
    inner: Mapping[int, Sequence[Step]]
    at: datetime
    took: float


def take_snapshot(client: Dibs, workflow_id: int, *, unfold: bool = False) -> WorkflowSnapshot:
    """Read the workflow with the steps and sub-workflows that the drawing shows."""
    began = time.monotonic()
    workflow = client.get_workflow(workflow_id)
    if workflow is None:
        raise WorkflowNotFound(workflow_id)
    steps = client.steps(workflow_id)
    inner: dict[int, Sequence[Step]] = {}
    _read_inner_steps(client, steps, inner, DEPTH, unfold)
    context = client.execution_context(workflow_id)
    return WorkflowSnapshot(workflow, context, steps, inner, datetime.now(UTC), time.monotonic() - began)


def _read_inner_steps(
    client: Dibs, steps: Sequence[Step], inner: dict[int, Sequence[Step]], depth: int, unfold: bool
) -> None:
    """Read the steps of sub-workflows, except folded ones: a thousand sub-workflows would need a thousand reads."""
    shown = [step for group in fold(steps) if unfold or not group.folded for step in group.steps]
    for number in [step.workflow_id for step in shown if step.workflow_id is not None] if depth else ():
        inner[number] = client.steps(number)
        _read_inner_steps(client, inner[number], inner, depth - 1, unfold)


def to_json(snapshot: WorkflowSnapshot) -> dict[str, Any]:
    """Return the snapshot for --json, in the format of the API."""
    return {
        "workflow": WireWorkflow.from_model(snapshot.workflow),
        "context": WireContext.from_model(snapshot.context),
        "steps": [WireStep.from_model(step) for step in snapshot.steps],
    }


def watch(client: Dibs, output: Output, workflow_id: int, *, unfold: bool) -> None:
    """Draw the workflow repeatedly until it has ended; the last drawing stays on the screen."""
    from rich.live import Live

    # No redirection: nothing else writes meanwhile, and the replacement of stdout would hide its encoding.
    live = Live(console=output.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with exit_if_pipe_closed(), live:
        while True:
            snapshot = take_snapshot(client, workflow_id, unfold=unfold)
            live.update(_joined(render(snapshot, output, unfold=unfold)), refresh=True)
            if snapshot.workflow.finished:
                return
            time.sleep(pause_after(snapshot.took))


def _joined(lines: Iterator[StyledLine]) -> Text:
    from rich.text import Text

    return Text("\n", no_wrap=True).join(Text.assemble(*line, no_wrap=True, overflow="crop") for line in lines)


def render(snapshot: WorkflowSnapshot, output: Output, *, unfold: bool = False) -> Iterator[StyledLine]:
    """Yield all lines: the fields of the workflow, then its graph."""
    signs = _signs()
    for name, value in _fields(snapshot, signs):
        yield from _pair(name, value)
    yield []
    yield from workflow_text.draw(
        snapshot.steps, snapshot.inner, snapshot.at, width=output.width, signs=signs, fold_equal=not unfold
    )


def _signs() -> Signs:
    """Return the signs that the encoding of standard output supports."""
    try:
        workflow_text.UNICODE.all.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return workflow_text.ASCII
    return workflow_text.UNICODE


def _pair(name: str, value: str | StyledLine) -> Iterator[StyledLine]:
    title = f"{name + ':':<{FIELD_WIDTH}} "
    if isinstance(value, str):
        yield [(title, ""), (value, STYLES.get(value, "") if name == "state" else "")]
    else:
        yield [(title, ""), *value]


def _fields(snapshot: WorkflowSnapshot, signs: Signs) -> Iterator[tuple[str, str | StyledLine]]:
    workflow = snapshot.workflow
    yield "workflow", f"{workflow.id} {text.line(workflow.name)}"
    yield "state", workflow.state.value
    yield "progress", _progress(snapshot, signs)
    if snapshot.steps:
        yield "steps", workflow_text.legend(snapshot.steps, signs)
    if workflow.key:
        yield "key", text.line(workflow.key)
    if workflow.step_of:
        yield "part of", f"workflow {workflow.root_id}, as task {workflow.step_of}"
    yield "created", _format_time(workflow.created_at, snapshot.at)
    if workflow.deadline and not workflow.finished:
        yield "deadline", _format_time(workflow.deadline, snapshot.at)
    if workflow.finished_at:
        duration = format_duration(workflow.finished_at - workflow.created_at)
        yield "finished", f"{_format_time(workflow.finished_at, snapshot.at)}, after {duration}"
    if workflow.stopping and not workflow.finished:
        yield "stopping", f"no further step is started ({workflow.stopping})"
    yield "finalized" if workflow.finished else "finalizing", _finalization(snapshot)
    if workflow.finalizer_id is not None:
        yield "finalizer", _finalizer(workflow)
    if not workflow.finished:
        yield "next", _next(snapshot.context)
    if workflow.error:
        yield "error", text.line(f"{workflow.error.type}: {workflow.error.message}".partition("\n")[0])


def _progress(snapshot: WorkflowSnapshot, signs: Signs) -> str:
    workflow, percent = snapshot.workflow, snapshot.context.completion_percentage
    failed = f", {workflow.failures:,} failed" if workflow.failures else ""
    bar, steps = workflow_text.bar(percent, signs), text.count(workflow.steps, "step")
    return f"{bar} {percent:g} % ({workflow.ended:,} of {steps} ended{failed})"


def _finalization(snapshot: WorkflowSnapshot) -> str:
    """Return the processor that finalizes the workflow, and the end of its lease."""
    workflow = snapshot.workflow
    if workflow.finalization_by and workflow.finalization_until and not workflow.finished:
        held = f"{text.line(workflow.finalization_by)} under token {workflow.finalization_token}"
        if workflow.finalization_until > snapshot.at:
            return f"by {held}, until {_format_time(workflow.finalization_until, snapshot.at)}"
        return f"not claimed: the lease of {held} expired {_format_time(workflow.finalization_until, snapshot.at)}"
    if workflow.state.value == "finalizing":
        return f"by its finalizer, task {workflow.finalizer_id}"
    if workflow.finished:
        return f"under token {workflow.finalization_token}"
    return "not claimed yet"


def _finalizer(workflow: Workflow) -> str:
    """Return the task of the finalizer, and after which end of the steps it runs."""
    return f"task {workflow.finalizer_id}, runs {_RUNS[workflow.finalize_when]}"


_RUNS = {
    FinalizeWhen.SUCCESS: "if all steps have passed",
    FinalizeWhen.FAILURE: "after a failure",
    FinalizeWhen.ALWAYS: "after success and failure",
}


def _next(context: ExecutionContext) -> str:
    action, status = context.recommended_action.value, context.execution_status.value
    return f"{action.replace('_', ' ')} ({status.replace('_', ' ')})"


def _format_time(at: datetime, now: datetime) -> str:
    return f"{text.exact(at)} UTC ({text.relative(at, now)})"


HINT = 'For example {"name": "order", "steps": [{"task_type": "fetch"}, {"task_type": "render", "after": ["fetch"]}]}.'


def read_workflow(file: str) -> NewWorkflow:
    """Read a workflow from a file, or from standard input for `-`."""
    content = read_object(_content(file), "The workflow", HINT)
    try:
        return msgspec.convert(whole_numbers(content), WorkflowBody).to_model()
    except msgspec.ValidationError as error:
        raise InvalidValue(f"The workflow is not valid: {_readable(error)}.", hint=HINT) from None
    except RecursionError:
        raise InvalidValue(
            "The workflow is nested too deeply.", hint="Use dependencies between steps instead of sub-workflows."
        ) from None


def _content(file: str) -> str:
    if file == "-":
        return sys.stdin.buffer.read().decode(errors="surrogateescape")
    try:
        return Path(file).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InvalidValue(
            f"Cannot read {file}: {error.strerror}.", hint="Give the path of a JSON file, or - for stdin."
        ) from None


def _readable(error: msgspec.ValidationError) -> str:
    """Return the error text with `workflow` for the root of the path, and without regular expressions."""
    words = readable(error)
    return words[:1].lower() + words[1:].replace("`$", "`workflow")
