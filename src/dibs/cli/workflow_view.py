"""One workflow in full, for people: what it is, how far it is, and its graph; once, or until it has ended."""

from __future__ import annotations

import re
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
from dibs.cli.output import NAMES, STYLES, Output, quiet_if_closed
from dibs.cli.top import pause_after
from dibs.cli.workflow_text import Line, Signs
from dibs.errors import InvalidValue, WorkflowNotFound
from dibs.model.finalization import ExecutionContext
from dibs.model.workflow import NewWorkflow, Step, Workflow
from dibs.wire.fields import whole_numbers
from dibs.wire.finalization import Context
from dibs.wire.workflows import Step as WireStep
from dibs.wire.workflows import Workflow as WireWorkflow
from dibs.wire.workflows import WorkflowBody
from dibs.workflow.summary import fold

if TYPE_CHECKING:
    from rich.text import Text

    from dibs.client import Dibs

DEPTH = 5
"""Workflows in workflows are drawn so deep; `dibs workflows show` of one further down goes on."""


@dataclass(frozen=True)
class Seen:
    """A workflow at one moment."""

    workflow: Workflow
    context: ExecutionContext
    steps: Sequence[Step]
    inner: Mapping[int, Sequence[Step]]
    at: datetime
    took: float


def look(client: Dibs, workflow_id: int, *, unfold: bool = False) -> Seen:
    """The workflow with all that is drawn of it."""
    began = time.monotonic()
    workflow = client.get_workflow(workflow_id)
    if workflow is None:
        raise WorkflowNotFound(workflow_id)
    steps = client.steps(workflow_id)
    inner: dict[int, Sequence[Step]] = {}
    _look_inside(client, steps, inner, DEPTH, unfold)
    context = client.execution_context(workflow_id)
    return Seen(workflow, context, steps, inner, datetime.now(UTC), time.monotonic() - began)


def _look_inside(
    client: Dibs, steps: Sequence[Step], inner: dict[int, Sequence[Step]], depth: int, unfold: bool
) -> None:
    """What folds into one line is not looked into: a thousand sub-workflows are a thousand questions."""
    shown = [step for group in fold(steps) if unfold or not group.folded for step in group.steps]
    for number in [step.workflow_id for step in shown if step.workflow_id is not None] if depth else ():
        inner[number] = client.steps(number)
        _look_inside(client, inner[number], inner, depth - 1, unfold)


def shaped(seen: Seen) -> dict[str, Any]:
    """The same in the API's shapes."""
    return {
        "workflow": WireWorkflow.from_model(seen.workflow),
        "context": Context.from_model(seen.context),
        "steps": [WireStep.from_model(step) for step in seen.steps],
    }


def watch(client: Dibs, output: Output, workflow_id: int, *, unfold: bool) -> None:
    """Draw it again and again; the last picture stays."""
    from rich.live import Live

    # Nothing else writes while it draws; a stand-in for standard output would not say which characters it can show.
    live = Live(console=output.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with quiet_if_closed(), live:
        while True:
            seen = look(client, workflow_id, unfold=unfold)
            live.update(_joined(picture(seen, output, unfold=unfold)), refresh=True)
            if seen.workflow.finished:
                return
            time.sleep(pause_after(seen.took))


def _joined(lines: Iterator[Line]) -> Text:
    from rich.text import Text

    return Text("\n", no_wrap=True).join(Text.assemble(*line, no_wrap=True, overflow="crop") for line in lines)


def picture(seen: Seen, output: Output, *, unfold: bool = False) -> Iterator[Line]:
    """All lines: what it is, then the graph."""
    signs = _signs()
    for name, value in _about(seen, signs):
        yield from _pair(name, value)
    yield []
    yield from workflow_text.draw(
        seen.steps, seen.inner, seen.at, width=output.width, signs=signs, fold_equal=not unfold
    )


def _signs() -> Signs:
    """The signs that the terminal, or whoever reads the pipe, can show."""
    try:
        workflow_text.UNICODE.all.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return workflow_text.ASCII
    return workflow_text.UNICODE


def _pair(name: str, value: str | Line) -> Iterator[Line]:
    title = f"{name + ':':<{NAMES}} "
    if isinstance(value, str):
        yield [(title, ""), (value, STYLES.get(value, "") if name == "state" else "")]
    else:
        yield [(title, ""), *value]


def _about(seen: Seen, signs: Signs) -> Iterator[tuple[str, str | Line]]:
    one = seen.workflow
    yield "workflow", f"{one.id} {text.line(one.name)}"
    yield "state", one.state.value
    yield "progress", _progress(seen, signs)
    if seen.steps:
        yield "steps", workflow_text.legend(seen.steps, signs)
    if one.key:
        yield "key", text.line(one.key)
    if one.step_of:
        yield "part of", f"workflow {one.root_id}, as task {one.step_of}"
    yield "created", _moment(one.created_at, seen.at)
    if one.deadline and not one.finished:
        yield "deadline", _moment(one.deadline, seen.at)
    if one.finished_at:
        yield (
            "finished",
            f"{_moment(one.finished_at, seen.at)}, after {workflow_text.took(one.finished_at - one.created_at)}",
        )
    if one.stopping and not one.finished:
        yield "stopping", f"nothing more is begun ({one.stopping})"
    yield "finalized" if one.finished else "finalizing", _finalization(seen)
    if not one.finished:
        yield "next", _next(seen.context)
    if one.error:
        yield "error", text.line(f"{one.error.type}: {one.error.message}".partition("\n")[0])


def _progress(seen: Seen, signs: Signs) -> str:
    one, percent = seen.workflow, seen.context.completion_percentage
    failed = f", {one.failures:,} failed" if one.failures else ""
    bar, steps = workflow_text.bar(percent, signs), text.count(one.steps, "step")
    return f"{bar} {percent:g} % ({one.ended:,} of {steps} ended{failed})"


def _finalization(seen: Seen) -> str:
    """Who may say how the workflow ends, and until when."""
    one = seen.workflow
    if one.finalization_by and one.finalization_until and not one.finished:
        held = f"{text.line(one.finalization_by)} under token {one.finalization_token}"
        if one.finalization_until > seen.at:
            return f"by {held}, until {_moment(one.finalization_until, seen.at)}"
        return f"by nobody: the lease of {held} ended {_moment(one.finalization_until, seen.at)}"
    if one.state.value == "finalizing":
        return f"by its finalizer, task {one.finalizer_id}"
    if one.finished:
        return f"under token {one.finalization_token}"
    return "by nobody yet"


def _next(context: ExecutionContext) -> str:
    action, status = context.recommended_action.value, context.execution_status.value
    return f"{action.replace('_', ' ')} ({status.replace('_', ' ')})"


def _moment(at: datetime, now: datetime) -> str:
    return f"{text.exact(at)} UTC ({text.relative(at, now)})"


HINT = 'Such as {"name": "order", "steps": [{"task_type": "fetch"}, {"task_type": "render", "after": ["fetch"]}]}.'


def read_workflow(file: str) -> NewWorkflow:
    """The workflow in this file, or in standard input for `-`."""
    content = read_object(_content(file), "The workflow", HINT)
    try:
        return msgspec.convert(whole_numbers(content), WorkflowBody).to_model()
    except msgspec.ValidationError as error:
        raise InvalidValue(f"The workflow is not as it should be: {_said(error)}.", hint=HINT) from None
    except RecursionError:
        raise InvalidValue(
            "The workflow is nested too deeply.", hint="Let steps wait for each other instead."
        ) from None


def _content(file: str) -> str:
    if file == "-":
        return sys.stdin.buffer.read().decode(errors="surrogateescape")
    try:
        return Path(file).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InvalidValue(f"{file} cannot be read: {error.strerror}.", hint="Name a file, or - for stdin.") from None


def _said(error: msgspec.ValidationError) -> str:
    """Its words as people would say them: the root of the path by its name, and no pattern."""
    words = re.sub(r"`str` matching regex '[^']*'", "one line without control characters", str(error))
    return words[:1].lower() + words[1:].replace("`$", "`workflow")
