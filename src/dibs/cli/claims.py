"""`dibs tasks peek|claim|complete|fail|release`: the verbs of a worker, for scripts that are the worker themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import opened
from dibs.cli.enqueue import read_value
from dibs.cli.options import (
    ORDERS,
    Json,
    TaskId,
    Url,
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

Queues = Annotated[
    str | None,
    typer.Option("--queues", metavar="A,B", help="Only tasks of these queues.", autocompletion=complete_queue),
]
Types = Annotated[
    str | None, typer.Option("--types", metavar="A,B", help="Only tasks of these types.", autocompletion=complete_type)
]
Order = Annotated[
    str | None,
    typer.Option("--order", metavar="ORDER", help=f"One of {', '.join(ORDERS)}.", autocompletion=complete_order),
]
Count = Annotated[int | None, typer.Option("--count", metavar="N", help="Up to N tasks (1 to 1000); default: 1.")]
Worker = Annotated[str, typer.Option("--worker", metavar="NAME", help="The name of the worker that holds the task.")]
Token = Annotated[int, typer.Option("--token", metavar="N", help="The token of the claim, as `claim` printed it.")]


def peek(
    ctx: typer.Context,
    *,
    queues: Queues = None,
    types: Types = None,
    order: Order = None,
    count: Count = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the tasks that would be claimed next, and claim none."""
    options = _filters(queues, types, order)
    with opened(ctx, url, as_json) as (client, output):
        from dibs.cli.tasks import COLUMNS, row
        from dibs.wire.tasks import ManyTasks

        tasks = client.peek(1 if count is None else count, **options)
        if tasks and not output.as_json:
            output.table(COLUMNS, [row(task) for task in tasks])
        elif not output.as_json:
            output.note("No pending tasks.")
        output.answer(ManyTasks.from_model(tasks))


def claim(
    ctx: typer.Context,
    task_id: Annotated[
        int | None, typer.Argument(metavar="[ID]", help="This task; without it, the next one.", show_default=False)
    ] = None,
    *,
    worker: Annotated[str, typer.Option("--worker", metavar="NAME", help="The name of the worker that claims.")],
    queues: Queues = None,
    types: Types = None,
    order: Order = None,
    count: Count = None,
    lease: Annotated[
        float | None, typer.Option("--lease", metavar="SECONDS", help="How long the claim holds; default: 60.")
    ] = None,
    wait: Annotated[
        float | None, typer.Option("--wait", metavar="SECONDS", help="Wait for a task, if there is none.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Claim the next task, or the one with this id, and print its id, token and params."""
    options = _filters(queues, types, order)
    if task_id is not None and (options or count is not None or wait is not None):
        raise InvalidValue(
            "A task is claimed by its id or by filters, not both.", hint="Leave out the id, or the rest."
        )
    with opened(ctx, url, as_json) as (client, output):
        if task_id is not None:
            claims = [client.claim_by_id(task_id, worker, **given(lease=lease))]
        else:
            options |= given(lease=lease, wait=wait)
            claims = client.claim_many(worker, 1 if count is None else count, **options)
        _tell_claims(output, claims, several=count is not None)


def complete(
    ctx: typer.Context,
    task_id: TaskId,
    result: Annotated[
        str, typer.Argument(metavar="[RESULT_JSON]", help="The result, any JSON value; - reads it from stdin.")
    ] = "null",
    *,
    token: Token,
    worker: Worker,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Complete a claimed task, with its result."""
    value = read_value(result, "The result")
    with opened(ctx, url, as_json) as (client, output):
        _tell_outcome(output, client.complete(_claim(task_id, token, worker), value))


def fail(
    ctx: typer.Context,
    task_id: TaskId,
    *,
    token: Token,
    worker: Worker,
    error: Annotated[str, typer.Option("--error", metavar="TEXT", help="What went wrong.")],
    error_type: Annotated[
        str, typer.Option("--error-type", metavar="NAME", help="The kind of error; default: Error.", show_default=False)
    ] = "Error",
    permanent: Annotated[bool, typer.Option("--permanent", help="Do not try again: to the dead letter.")] = False,
    retry_in: Annotated[
        float | None,
        typer.Option("--retry-in", metavar="SECONDS", help="Try again after this time; default: the task's backoff."),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Report that the attempt at a claimed task failed."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.model.task import Failure

        failure = Failure(error_type, error)
        held = _claim(task_id, token, worker)
        _tell_outcome(output, client.fail(held, failure, retry_in=retry_in, permanent=permanent))


def release(
    ctx: typer.Context,
    task_id: TaskId,
    *,
    token: Token,
    worker: Worker,
    delay: Annotated[
        float, typer.Option("--delay", metavar="SECONDS", help="It is not claimed before.", show_default=False)
    ] = 0.0,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Give a claimed task back; this costs no attempt."""
    with opened(ctx, url, as_json) as (client, output):
        _tell_outcome(output, client.release(_claim(task_id, token, worker), delay=delay))


def _filters(queues: str | None, types: str | None, order: str | None) -> dict[str, Any]:
    return given(
        queues=None if queues is None else split_names(queues),
        types=None if types is None else split_names(types),
        order=order,
    )


def _claim(task_id: int, token: int, worker: str) -> ClaimRef:
    from dibs.model.checks import check_integer, check_worker_id
    from dibs.model.claim import ClaimRef

    check_integer(token, "token", 0, 2**63 - 1)
    return ClaimRef(task_id, token, check_worker_id(worker))


def _tell_claims(output: Output, claims: list[Claim], *, several: bool) -> None:
    from dibs.wire.claims import Claimed

    if not claims:
        if not output.as_json:
            output.note("No pending tasks available.")
        output.answer({"success": False, "message": "No pending tasks available"})
        raise typer.Exit(REFUSED)
    for number, each in enumerate(claims):
        output.say("") if number else None
        output.pairs(
            [
                ("id", str(each.task.id)),
                ("type", text.line(each.task.type)),
                ("token", str(each.token)),
                ("lease until", f"{text.exact(each.lease_until)} UTC"),
                ("params", text.pretty(each.task.params)),
            ]
        )
    output.answer(Claimed.from_model(claims, several))


def _tell_outcome(output: Output, finished: Finished) -> None:
    from dibs.wire.claims import Finished as WireFinished

    later = finished.will_retry and finished.run_at is not None and finished.state == "scheduled"
    again = f": it runs again at {text.exact(finished.run_at)} UTC" if later else ""
    known = " (as reported before)" if finished.repeated else ""
    output.say(f"Task {finished.task_id} is {finished.state}{again}{known}.")
    output.answer(WireFinished.from_model(finished))
