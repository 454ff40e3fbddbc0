"""The commands `dibs tasks peek|claim|complete|fail|release`: the calls of a worker, for shell scripts.

Scripts depend on the names of the commands and options, on the exit codes and on the JSON: keep all of these. The JSON
has the shapes of the HTTP API (`dibs.wire`). A claim that finds no task prints `"success": false` and ends with the
exit code REFUSED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.enqueue import read_value
from dibs.cli.options import (
    ORDERS,
    JsonOption,
    TaskIdArgument,
    UrlOption,
    complete_order,
    complete_queue,
    complete_type,
    given,
    split_names,
)
from dibs.cli.output import Output
from dibs.errors import InvalidValue
from dibs.exit_codes import REFUSED

if TYPE_CHECKING:
    from dibs.model.claim import Claim, ClaimRef, Finished

QueueNamesOption = Annotated[
    str | None,
    typer.Option("--queues", metavar="A,B", help="Only tasks of these queues.", autocompletion=complete_queue),
]
TypeNamesOption = Annotated[
    str | None, typer.Option("--types", metavar="A,B", help="Only tasks of these types.", autocompletion=complete_type)
]
OrderOption = Annotated[
    str | None,
    typer.Option("--order", metavar="ORDER", help=f"One of {', '.join(ORDERS)}.", autocompletion=complete_order),
]
CountOption = Annotated[
    int | None, typer.Option("--count", metavar="N", help="Maximum number of tasks (1 to 1000); default: 1.")
]
HoldingWorkerOption = Annotated[
    str, typer.Option("--worker", metavar="NAME", help="The name of the worker that holds the task.")
]
TokenOption = Annotated[int, typer.Option("--token", metavar="N", help="The token that `claim` printed.")]


def peek(
    ctx: typer.Context,
    *,
    queues: QueueNamesOption = None,
    types: TypeNamesOption = None,
    order: OrderOption = None,
    count: CountOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tasks that would be claimed next, without claiming them."""
    options = _claim_filters(queues, types, order)
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.cli.tasks import COLUMNS, row
        from dibs.wire.tasks import ManyTasks

        tasks = client.peek(1 if count is None else count, **options)
        if tasks and not output.as_json:
            output.print_table(COLUMNS, [row(task) for task in tasks])
        elif not output.as_json:
            output.print_to_stderr("No pending tasks.")
        output.print_json(ManyTasks.from_model(tasks))


def claim(
    ctx: typer.Context,
    task_id: Annotated[
        int | None,
        typer.Argument(metavar="[ID]", help="The id of the task to claim; default: the next task.", show_default=False),
    ] = None,
    *,
    worker: Annotated[
        str, typer.Option("--worker", metavar="NAME", help="The name of the worker that claims the task.")
    ],
    queues: QueueNamesOption = None,
    types: TypeNamesOption = None,
    order: OrderOption = None,
    count: CountOption = None,
    lease: Annotated[
        float | None, typer.Option("--lease", metavar="SECONDS", help="Duration of the lease; default: 60.")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="SECONDS", help="Maximum time to wait for a task; default: no wait."),
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Claim the next task, or the task with this id, and print its id, token and params."""
    options = _claim_filters(queues, types, order)
    if task_id is not None and (options or count is not None or wait is not None):
        raise InvalidValue(
            "A task is claimed by its id or by filters, not both.", hint="Remove the id, or the other options."
        )
    with open_client(ctx, url, as_json) as (client, output):
        if task_id is not None:
            claims = [client.claim_by_id(task_id, worker, **given(lease=lease))]
        else:
            options |= given(lease=lease, wait=wait)
            claims = client.claim_many(worker, 1 if count is None else count, **options)
        _print_claims(output, claims, as_list=count is not None)


def complete(
    ctx: typer.Context,
    task_id: TaskIdArgument,
    result: Annotated[
        str, typer.Argument(metavar="[RESULT_JSON]", help="The result, any JSON value; - reads it from stdin.")
    ] = "null",
    *,
    token: TokenOption,
    worker: HoldingWorkerOption,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Complete a claimed task and store its result."""
    value = read_value(result, "The result")
    with open_client(ctx, url, as_json) as (client, output):
        _print_outcome(output, client.complete(_claim_ref(task_id, token, worker), value))


def fail(
    ctx: typer.Context,
    task_id: TaskIdArgument,
    *,
    token: TokenOption,
    worker: HoldingWorkerOption,
    error: Annotated[str, typer.Option("--error", metavar="TEXT", help="The error message.")],
    error_type: Annotated[
        str,
        typer.Option("--error-type", metavar="NAME", help="The type of the error; default: Error.", show_default=False),
    ] = "Error",
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Make no further attempt: the task goes to the dead letter.")
    ] = False,
    retry_in: Annotated[
        float | None,
        typer.Option("--retry-in", metavar="SECONDS", help="Time until the next attempt; default: the task's backoff."),
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report that the attempt of a claimed task failed."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.model.task import Failure

        failure = Failure(error_type, error)
        claim_ref = _claim_ref(task_id, token, worker)
        _print_outcome(output, client.fail(claim_ref, failure, retry_in=retry_in, permanent=permanent))


def release(
    ctx: typer.Context,
    task_id: TaskIdArgument,
    *,
    token: TokenOption,
    worker: HoldingWorkerOption,
    delay: Annotated[
        float,
        typer.Option(
            "--delay", metavar="SECONDS", help="Time until the task can be claimed again.", show_default=False
        ),
    ] = 0.0,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Return a claimed task to its queue; the attempt is not counted."""
    with open_client(ctx, url, as_json) as (client, output):
        _print_outcome(output, client.release(_claim_ref(task_id, token, worker), delay=delay))


def _claim_filters(queues: str | None, types: str | None, order: str | None) -> dict[str, Any]:
    """Return the keyword arguments of `Dibs.claim_many` and `Dibs.peek` for the options that were given."""
    return given(
        queues=None if queues is None else split_names(queues),
        types=None if types is None else split_names(types),
        order=order,
    )


def _claim_ref(task_id: int, token: int, worker: str) -> ClaimRef:
    """Return a reference to the claim that these options identify."""
    from dibs.model.checks import check_integer, check_worker_id
    from dibs.model.claim import ClaimRef

    check_integer(token, "token", 0, 2**63 - 1)
    return ClaimRef(task_id, token, check_worker_id(worker))


def _print_claims(output: Output, claims: list[Claim], *, as_list: bool) -> None:
    """Print the claims. `as_list`: the JSON has a list of tasks, as in the HTTP API for a request with a count."""
    from dibs.wire.claims import Claimed

    if not claims:
        if not output.as_json:
            output.print_to_stderr("No pending tasks available.")
        output.print_json({"success": False, "message": "No pending tasks available"})
        raise typer.Exit(REFUSED)
    for number, claimed in enumerate(claims):
        output.print("") if number else None
        output.print_fields(
            [
                ("id", str(claimed.task.id)),
                ("type", text.line(claimed.task.type)),
                ("token", str(claimed.token)),
                ("lease until", f"{text.exact(claimed.lease_until)} UTC"),
                ("params", text.pretty(claimed.task.params)),
            ]
        )
    output.print_json(Claimed.from_model(claims, as_list))


def _print_outcome(output: Output, finished: Finished) -> None:
    from dibs.wire.claims import Finished as WireFinished

    is_scheduled = finished.will_retry and finished.run_at is not None and finished.state == "scheduled"
    next_attempt = f": the next attempt is at {text.exact(finished.run_at)} UTC" if is_scheduled else ""
    repeated = " (as reported before)" if finished.repeated else ""
    output.print(f"Task {finished.task_id} is {finished.state}{next_attempt}{repeated}.")
    output.print_json(WireFinished.from_model(finished))
