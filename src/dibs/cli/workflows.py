"""`dibs workflows`: start graphs of steps, see how far they are, stop them, send them on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import opened
from dibs.cli.options import Json, Limit, Url, given
from dibs.cli.output import Column, Output
from dibs.errors import WorkflowNotFound

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.finalization import FinalizationAttempt
    from dibs.model.workflow import Workflow

app = typer.Typer(help="Look at workflows, start, cancel and retry them.", no_args_is_help=True, rich_markup_mode=None)

STATES = ("running", "finalizing", "completed", "failed", "cancelled")
COLUMNS = (
    Column("id", right=True),
    Column("state", by_state=True),
    Column("workflow"),
    Column("ended", right=True),
    Column("failed", right=True),
    Column("created (UTC)"),
    Column("finished (UTC)"),
    Column("error", stretch=True),
)
ATTEMPTS = (
    Column("at (UTC)"),
    Column("processor"),
    Column("reason"),
    Column("token", right=True),
    Column("execution"),
    Column("held by"),
    Column("message", stretch=True),
)


def complete_state(incomplete: str) -> list[str]:
    """The states a workflow can be in."""
    return [state for state in STATES if state.startswith(incomplete)]


WorkflowId = Annotated[int, typer.Argument(metavar="ID", help="The id of the workflow.")]


@app.command("list")
def list_workflows(
    ctx: typer.Context,
    *,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE", help=f"One of {', '.join(STATES)}.", autocompletion=complete_state),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only workflows of this name.")] = None,
    limit: Limit = 50,
    cursor: Annotated[
        int | None, typer.Option("--cursor", metavar="ID", help="Go on after the workflow with this id.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List workflows, newest first; sub-workflows are shown with the one that they are part of."""
    which = given(state=state, name=name, limit=limit, cursor=cursor)
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.workflows import WorkflowPage

        workflows = client.list_workflows(**which)
        if output.as_json:
            output.answer(WorkflowPage.from_models(workflows, limit))
        elif workflows:
            output.table(COLUMNS, [_row(each) for each in workflows])
            if len(workflows) == limit:
                output.note(f"These are {limit}; for more: --limit, or --cursor {workflows[-1].id}.")
        else:
            output.note("No workflows.")


@app.command("show")
def show(
    ctx: typer.Context,
    workflow_id: WorkflowId,
    *,
    unfold: Annotated[bool, typer.Option("--unfold", help="Draw every step, also where many are equal.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Until it has ended; without a terminal: wait, then draw once.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Draw the graph of a workflow, and say how each step and the whole are."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.cli import workflow_view

        if watch and output.on_terminal:
            workflow_view.watch(client, output, workflow_id, unfold=unfold)
            return
        if watch:
            client.wait_workflow(workflow_id)
        seen = workflow_view.look(client, workflow_id, unfold=unfold)
        for line in workflow_view.picture(seen, output, unfold=unfold) if not output.as_json else ():
            output.pieces(line)
        output.answer(workflow_view.shaped(seen))


@app.command("start")
def start(
    ctx: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The graph as JSON, as for POST /api/workflows; - reads stdin.")
    ],
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Start a workflow: the whole graph is stored, or nothing."""
    from dibs.cli.workflow_view import read_workflow

    new = read_workflow(file)
    with opened(ctx, url, as_json, create=True) as (client, output):
        from dibs.wire.workflows import StartedWorkflow

        workflow = client.start_workflow(new)
        known = " It was there already, under the same key." if workflow.deduplicated else ""
        output.say(f"{_called(workflow)} is {workflow.state}, with {text.count(workflow.steps, 'step')}.{known}")
        output.answer(StartedWorkflow.from_model(workflow))


@app.command("cancel")
def cancel(ctx: typer.Context, workflow_id: WorkflowId, url: Url = None, as_json: Json = False) -> None:
    """Begin nothing more of a workflow, and ask its running steps to stop."""
    with opened(ctx, url, as_json) as (client, output):
        _tell(output, client.cancel_workflow(workflow_id))


@app.command("retry")
def retry(ctx: typer.Context, workflow_id: WorkflowId, url: Url = None, as_json: Json = False) -> None:
    """Let a failed or cancelled workflow go on from where it stopped; what was completed stays."""
    with opened(ctx, url, as_json) as (client, output):
        _tell(output, client.retry_workflow(workflow_id))


@app.command("attempts")
def attempts(ctx: typer.Context, workflow_id: WorkflowId, url: Url = None, as_json: Json = False) -> None:
    """Show who wanted to finalize a workflow, and how each was answered."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.finalization import Attempts

        found = client.finalization_attempts(workflow_id)
        if not found:
            _refuse_if_missing(client, workflow_id)
        if output.as_json:
            output.answer(Attempts.from_model(found))
        elif found:
            output.table(ATTEMPTS, [_attempt(each) for each in found])
        else:
            output.note(f"Nobody has tried to finalize workflow {workflow_id} yet.")


def _refuse_if_missing(client: Dibs, workflow_id: int) -> None:
    if client.get_workflow(workflow_id) is None:
        raise WorkflowNotFound(workflow_id)


def _tell(output: Output, workflow: Workflow) -> None:
    from dibs.wire.workflows import ChangedWorkflow

    output.say(f"{_called(workflow)} is {_standing(workflow)}.")
    output.answer(ChangedWorkflow.from_model(workflow))


def _standing(workflow: Workflow) -> str:
    if workflow.stopping and not workflow.finished:
        return f"{workflow.state}; nothing more is begun, and running steps have been asked to stop"
    return workflow.state.value


def _called(workflow: Workflow) -> str:
    return f"Workflow {workflow.id} ({text.line(workflow.name)})"


def _row(workflow: Workflow) -> tuple[object, ...]:
    ended = f"{workflow.ended:,}/{workflow.steps:,}"
    when = text.exact(workflow.created_at), text.exact(workflow.finished_at)
    error = f"{workflow.error.type}: {workflow.error.message}" if workflow.error else ""
    return workflow.id, workflow.state.value, workflow.name, ended, workflow.failures, *when, text.shorten(error, 200)


def _attempt(attempt: FinalizationAttempt) -> tuple[object, ...]:
    at = f"{attempt.at:%Y-%m-%d %H:%M:%S.%f}"
    token = "" if attempt.token is None else attempt.token
    answer = attempt.reason.value, token, attempt.state, attempt.already_claimed_by or "", attempt.message
    return at, attempt.processor, *answer
