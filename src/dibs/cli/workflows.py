"""`dibs workflows`: start, list, show, cancel and retry workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import JsonOption, LimitOption, UrlOption, given
from dibs.cli.output import Column, Output
from dibs.errors import WorkflowNotFound

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.finalization import FinalizationAttempt
    from dibs.model.workflow import Workflow

app = typer.Typer(help="List, show, start, cancel and retry workflows.", no_args_is_help=True, rich_markup_mode=None)

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
    """Complete the state of a workflow."""
    return [state for state in STATES if state.startswith(incomplete)]


WorkflowIdArgument = Annotated[int, typer.Argument(metavar="ID", help="The id of the workflow.")]


@app.command("list")
def list_workflows(
    ctx: typer.Context,
    *,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE", help=f"One of {', '.join(STATES)}.", autocompletion=complete_state),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only workflows of this name.")] = None,
    limit: LimitOption = 50,
    cursor: Annotated[
        int | None, typer.Option("--cursor", metavar="ID", help="Continue after the workflow with this id.")
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List workflows, newest first, without sub-workflows."""
    criteria = given(state=state, name=name, limit=limit, cursor=cursor)
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.workflows import WorkflowPage

        workflows = client.list_workflows(**criteria)
        if output.as_json:
            output.print_json(WorkflowPage.from_models(workflows, limit))
        elif workflows:
            output.print_table(COLUMNS, [_row(each) for each in workflows])
            if len(workflows) == limit:
                output.print_to_stderr(
                    f"{text.count(limit, 'workflow')} shown. For more use --limit, or --cursor {workflows[-1].id}."
                )
        else:
            output.print_to_stderr("No workflows.")


@app.command("show")
def show(
    ctx: typer.Context,
    workflow_id: WorkflowIdArgument,
    *,
    unfold: Annotated[
        bool, typer.Option("--unfold", help="Draw every step, also equal steps that are folded by default.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", "-w", help="Draw until the workflow has ended; without a terminal: wait, then draw once."
        ),
    ] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a workflow: its fields, and its graph with the state of each step."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.cli import workflow_view

        if watch and output.on_terminal:
            workflow_view.watch(client, output, workflow_id, unfold=unfold)
            return
        if watch:
            client.wait_workflow(workflow_id)
        snapshot = workflow_view.take_snapshot(client, workflow_id, unfold=unfold)
        for line in workflow_view.render(snapshot, output, unfold=unfold) if not output.as_json else ():
            output.print_styled(line)
        output.print_json(workflow_view.to_json(snapshot))


@app.command("start")
def start(
    ctx: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The graph as JSON, as for POST /api/workflows; - reads stdin.")
    ],
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a workflow. The graph is stored in one transaction."""
    from dibs.cli.workflow_view import read_workflow

    new = read_workflow(file)
    with open_client(ctx, url, as_json, create=True) as (client, output):
        from dibs.wire.workflows import StartedWorkflow

        workflow = client.start_workflow(new)
        known = " It already existed with this key." if workflow.deduplicated else ""
        output.print(f"{_title(workflow)} is {workflow.state}, with {text.count(workflow.steps, 'step')}.{known}")
        output.print_json(StartedWorkflow.from_model(workflow))


@app.command("cancel")
def cancel(
    ctx: typer.Context, workflow_id: WorkflowIdArgument, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Cancel a workflow: no further step is started, and claimed steps are asked to stop."""
    with open_client(ctx, url, as_json) as (client, output):
        _print_workflow(output, client.cancel_workflow(workflow_id))


@app.command("retry")
def retry(
    ctx: typer.Context, workflow_id: WorkflowIdArgument, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Retry a failed or cancelled workflow from where it stopped; completed steps stay completed."""
    with open_client(ctx, url, as_json) as (client, output):
        _print_workflow(output, client.retry_workflow(workflow_id))


@app.command("attempts")
def attempts(
    ctx: typer.Context, workflow_id: WorkflowIdArgument, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Show the attempts to claim the finalization of a workflow, with their results."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.finalization import FinalizationAttempts

        found = client.finalization_attempts(workflow_id)
        if not found:
            _refuse_if_missing(client, workflow_id)
        if output.as_json:
            output.print_json(FinalizationAttempts.from_model(found))
        elif found:
            output.print_table(ATTEMPTS, [_attempt(each) for each in found])
        else:
            output.print_to_stderr(f"Workflow {workflow_id} has no finalization attempts yet.")


def _refuse_if_missing(client: Dibs, workflow_id: int) -> None:
    if client.get_workflow(workflow_id) is None:
        raise WorkflowNotFound(workflow_id)


def _print_workflow(output: Output, workflow: Workflow) -> None:
    from dibs.wire.workflows import ChangedWorkflow

    output.print(f"{_title(workflow)} is {_describe_state(workflow)}.")
    output.print_json(ChangedWorkflow.from_model(workflow))


def _describe_state(workflow: Workflow) -> str:
    if workflow.stopping and not workflow.finished:
        return f"{workflow.state}; no further step is started, and claimed steps were asked to stop"
    return workflow.state.value


def _title(workflow: Workflow) -> str:
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
