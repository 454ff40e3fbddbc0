"""`dibs tasks`: list, show, change, cancel and retry tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import bulk, change, claims, task_logs, text
from dibs.cli.context import open_client
from dibs.cli.follow import follow as follow_tasks
from dibs.cli.options import (
    AllOption,
    CursorOption,
    DryRunOption,
    GroupFilterOption,
    JsonOption,
    KeyOption,
    LimitOption,
    QueueOption,
    SinceOption,
    StateOption,
    TagOption,
    TaskIdArgument,
    TaskIdsArgument,
    TextOption,
    TypeOption,
    UntilOption,
    UrlOption,
    WithLimitOption,
    WorkerOption,
    YesOption,
    filters,
    given,
)
from dibs.cli.output import Column, Output
from dibs.errors import TaskNotFound

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.task import Task

app = typer.Typer(
    help="List, show, change, cancel, retry, claim and finish tasks; read their logs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

COLUMNS = (
    Column("id", right=True),
    Column("state", by_state=True),
    Column("type"),
    Column("queue"),
    Column("prio", right=True),
    Column("attempts", right=True),
    Column("created (UTC)"),
    Column("tags", optional=True),
    Column("params", stretch=True),
)


@app.command("list")
def list_tasks(
    ctx: typer.Context,
    *,
    state: StateOption = None,
    type: TypeOption = None,
    queue: QueueOption = None,
    key: KeyOption = None,
    worker: WorkerOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    content: TextOption = None,
    tags: TagOption = None,
    group: GroupFilterOption = None,
    with_limit: WithLimitOption = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Then print each task that is created or changes, until Ctrl-C.")
    ] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tasks, newest first (with --follow: oldest first)."""
    criteria = filters(
        state=state,
        type=type,
        queue=queue,
        key=key,
        worker=worker,
        since=since,
        until=until,
        text=content,
        tags=tags or None,
        group=group,
        with_limit=with_limit,
    )
    page = given(limit=limit, cursor=cursor)
    with open_client(ctx, url, as_json) as (client, output):
        if follow:
            follow_tasks(client, output, criteria, page)
        else:
            show_page(output, client.list_tasks(**criteria, **page), limit)


def show_page(output: Output, tasks: list[Task], limit: int) -> None:
    """Print a page of tasks, and how to get the next page."""
    from dibs.wire.tasks import Page

    if output.as_json:
        output.print_json(Page.from_models(tasks, limit))
    elif tasks:
        output.print_table(COLUMNS, [row(task) for task in tasks])
        if len(tasks) == limit:
            output.print_to_stderr(
                f"{text.count(limit, 'task')} shown. For more use --limit, or --cursor {tasks[-1].id}."
            )
    else:
        output.print_to_stderr("No tasks.")


def row(task: Task) -> tuple[object, ...]:
    """Return the cells of a task in a list."""
    attempts = f"{task.attempts}/{task.max_attempts}"
    params = text.shorten(text.compact(task.params), 200)
    content = task.priority, attempts, text.exact(task.created_at), text.tags(task.tags), params
    return task.id, task.state.value, task.type, task.queue, *content


@app.command("show")
def show(ctx: typer.Context, task_id: TaskIdArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show all fields of a task."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.cli.task_text import show_task
        from dibs.wire.tasks import OneTask

        task = client.get(task_id)
        if task is None:
            raise TaskNotFound(task_id)
        if not as_json:
            show_task(output, task, _limits(client, task), len(client.logs(task_id)) if task.attempts else 0)
        output.print_json(OneTask.from_model(task))


def _limits(client: Dibs, task: Task) -> list[tuple[str, str]]:
    """Return the limits of the task, each with its origin."""
    from dibs.model.limit import limits_with_origin

    return limits_with_origin(task.limits, client.get_type_settings(task.type), client.get_queue(task.queue))


@app.command("history")
def history(ctx: typer.Context, task_id: TaskIdArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show the history of a task, also after the task was pruned."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.cli.task_text import show_history
        from dibs.wire.history import OneHistory

        entries = client.history(task_id)
        if not entries:
            raise TaskNotFound(task_id)
        show_history(output, entries)
        output.print_json(OneHistory.from_model(entries))


@app.command("explain")
def explain(ctx: typer.Context, task_id: TaskIdArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Explain why a task is not running."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.tasks import Explanation

        explanation = client.explain(task_id)
        for reason in explanation.reasons:
            output.print(text.line(reason.message))
        output.print_json(Explanation.from_model(explanation))


@app.command("cancel")
def cancel(
    ctx: typer.Context,
    task_ids: TaskIdsArgument = None,
    *,
    every: AllOption = False,
    state: StateOption = None,
    type: TypeOption = None,
    queue: QueueOption = None,
    key: KeyOption = None,
    worker: WorkerOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    content: TextOption = None,
    tags: TagOption = None,
    group: GroupFilterOption = None,
    with_limit: WithLimitOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel tasks by id, or all that match. Waiting tasks end at once; claimed tasks are asked to stop."""
    criteria = filters(
        state=state,
        type=type,
        queue=queue,
        key=key,
        worker=worker,
        since=since,
        until=until,
        text=content,
        tags=tags or None,
        group=group,
        with_limit=with_limit,
    )
    bulk.check(task_ids or [], every, criteria, dry_run=dry_run, yes=yes)
    with open_client(ctx, url, as_json) as (client, output):
        if every:
            from dibs.model.task import CANCELLABLE

            action = bulk.BulkAction(client.cancel_matching, CANCELLABLE, "Cancel", "Cancelling", "cancelled")
            bulk.run(client, output, action, criteria, dry_run=dry_run, yes=yes)
        else:
            bulk.each(output, task_ids or [], client.cancel, _cancelled)


@app.command("retry")
def retry(
    ctx: typer.Context,
    task_ids: TaskIdsArgument = None,
    *,
    every: AllOption = False,
    state: StateOption = None,
    type: TypeOption = None,
    queue: QueueOption = None,
    key: KeyOption = None,
    worker: WorkerOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    content: TextOption = None,
    tags: TagOption = None,
    group: GroupFilterOption = None,
    with_limit: WithLimitOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retry tasks by id, or all that match: failed, cancelled and scheduled tasks become pending, with all their
    attempts."""
    criteria = filters(
        state=state,
        type=type,
        queue=queue,
        key=key,
        worker=worker,
        since=since,
        until=until,
        text=content,
        tags=tags or None,
        group=group,
        with_limit=with_limit,
    )
    bulk.check(task_ids or [], every, criteria, dry_run=dry_run, yes=yes)
    with open_client(ctx, url, as_json) as (client, output):
        if every:
            from dibs.model.task import RETRYABLE

            action = bulk.BulkAction(client.retry_matching, RETRYABLE, "Retry", "Retrying", "retried")
            bulk.run(client, output, action, criteria, dry_run=dry_run, yes=yes)
        else:
            bulk.each(output, task_ids or [], client.retry, lambda task: f"Task {task.id} is {task.state} again.")


app.command("logs")(task_logs.logs)
app.command("set")(change.set_values)
app.command("peek")(claims.peek)
app.command("claim")(claims.claim)
app.command("complete")(claims.complete)
app.command("fail")(claims.fail)
app.command("release")(claims.release)


def _cancelled(task: Task) -> str:
    if task.finished:
        return f"Task {task.id} is {task.state}."
    return f"Task {task.id} is claimed; worker {task.worker_id} was asked to stop."
