"""`dibs tasks`: look at tasks, stop them, send them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import bulk, claims, text
from dibs.cli.context import opened
from dibs.cli.follow import follow as follow_tasks
from dibs.cli.options import (
    All,
    Cursor,
    DryRun,
    Json,
    Key,
    Limit,
    Queue,
    Since,
    State,
    TaskId,
    TaskIds,
    Text,
    Type,
    Until,
    Url,
    Worker,
    Yes,
    filters,
    given,
)
from dibs.cli.output import Column, Output
from dibs.errors import DibsError, StoreError, TaskNotFound
from dibs.exit_codes import REFUSED

if TYPE_CHECKING:
    from dibs.model.task import Task

app = typer.Typer(
    help="Look at tasks, cancel and retry them, claim and finish them.", no_args_is_help=True, rich_markup_mode=None
)

COLUMNS = (
    Column("id", right=True),
    Column("state", by_state=True),
    Column("type"),
    Column("queue"),
    Column("prio", right=True),
    Column("attempts", right=True),
    Column("created (UTC)"),
    Column("params", stretch=True),
)


@app.command("list")
def list_tasks(
    ctx: typer.Context,
    *,
    state: State = None,
    type: Type = None,
    queue: Queue = None,
    key: Key = None,
    worker: Worker = None,
    since: Since = None,
    until: Until = None,
    content: Text = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with every task that comes or changes, until Ctrl-C.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List tasks, newest first (with --follow: oldest first)."""
    which = filters(state=state, type=type, queue=queue, key=key, worker=worker, since=since, until=until, text=content)
    page = given(limit=limit, cursor=cursor)
    with opened(ctx, url, as_json) as (client, output):
        if follow:
            follow_tasks(client, output, which, page)
        else:
            show_page(output, client.list_tasks(**which, **page), limit)


def show_page(output: Output, tasks: list[Task], limit: int) -> None:
    """A page of tasks, and how to go on."""
    from dibs.wire.tasks import Page

    if output.as_json:
        output.answer(Page.from_models(tasks, limit))
    elif tasks:
        output.table(COLUMNS, [row(task) for task in tasks])
        if len(tasks) == limit:
            output.note(f"These are {limit}; for more: --limit, or --cursor {tasks[-1].id}.")
    else:
        output.note("No tasks.")


def row(task: Task) -> tuple[object, ...]:
    """A task in the columns of a list."""
    attempts = f"{task.attempts}/{task.max_attempts}"
    params = text.shorten(text.compact(task.params), 200)
    created = text.exact(task.created_at)
    return task.id, task.state.value, task.type, task.queue, task.priority, attempts, created, params


@app.command("show")
def show(ctx: typer.Context, task_id: TaskId, url: Url = None, as_json: Json = False) -> None:
    """Show all there is to know about a task."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.cli.task_text import show_task
        from dibs.wire.tasks import OneTask

        task = client.get(task_id)
        if task is None:
            raise TaskNotFound(task_id)
        show_task(output, task)
        output.answer(OneTask.from_model(task))


@app.command("history")
def history(ctx: typer.Context, task_id: TaskId, url: Url = None, as_json: Json = False) -> None:
    """Show everything that happened to a task, even after the task itself is gone."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.cli.task_text import show_history
        from dibs.wire.history import OneHistory

        entries = client.history(task_id)
        if not entries:
            raise TaskNotFound(task_id)
        show_history(output, entries)
        output.answer(OneHistory.from_model(entries))


@app.command("explain")
def explain(ctx: typer.Context, task_id: TaskId, url: Url = None, as_json: Json = False) -> None:
    """Say why a task is not running."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.tasks import Explanation

        why = client.explain(task_id)
        for reason in why.reasons:
            output.say(text.line(reason.message))
        output.answer(Explanation.from_model(why))


@app.command("cancel")
def cancel(
    ctx: typer.Context,
    task_ids: TaskIds = None,
    *,
    every: All = False,
    state: State = None,
    type: Type = None,
    queue: Queue = None,
    key: Key = None,
    worker: Worker = None,
    since: Since = None,
    until: Until = None,
    content: Text = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Cancel waiting tasks at once, and ask running ones to stop: those with these ids, or all that match."""
    which = filters(state=state, type=type, queue=queue, key=key, worker=worker, since=since, until=until, text=content)
    bulk.check(task_ids or [], every, which, dry_run=dry_run, yes=yes)
    with opened(ctx, url, as_json) as (client, output):
        if every:
            from dibs.model.task import CANCELLABLE

            action = bulk.Bulk(client.cancel_matching, CANCELLABLE, "Cancel", "Cancelling", "cancelled")
            bulk.run(client, output, action, which, dry_run=dry_run, yes=yes)
        else:
            _each(output, task_ids or [], client.cancel, _cancelled)


@app.command("retry")
def retry(
    ctx: typer.Context,
    task_ids: TaskIds = None,
    *,
    every: All = False,
    state: State = None,
    type: Type = None,
    queue: Queue = None,
    key: Key = None,
    worker: Worker = None,
    since: Since = None,
    until: Until = None,
    content: Text = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send failed, cancelled or scheduled tasks back to be claimed now, with all their attempts: those with these ids,
    or all that match."""
    which = filters(state=state, type=type, queue=queue, key=key, worker=worker, since=since, until=until, text=content)
    bulk.check(task_ids or [], every, which, dry_run=dry_run, yes=yes)
    with opened(ctx, url, as_json) as (client, output):
        if every:
            from dibs.model.task import RETRYABLE

            action = bulk.Bulk(client.retry_matching, RETRYABLE, "Retry", "Retrying", "retried")
            bulk.run(client, output, action, which, dry_run=dry_run, yes=yes)
        else:
            _each(output, task_ids or [], client.retry, lambda task: f"Task {task.id} is {task.state} again.")


app.command("peek")(claims.peek)
app.command("claim")(claims.claim)
app.command("complete")(claims.complete)
app.command("fail")(claims.fail)
app.command("release")(claims.release)


def _cancelled(task: Task) -> str:
    if task.finished:
        return f"Task {task.id} is {task.state}."
    return f"Task {task.id} is running; {task.worker_id} has been asked to stop."


def _each(output: Output, task_ids: list[int], verb: Callable[[int], Task], said: Callable[[Task], str]) -> None:
    """Each task is answered on its own; a refusal does not keep the others from being done."""
    results = [_answer(output, task_id, verb, said) for task_id in task_ids]
    output.answer({"success": all(result["success"] for result in results), "results": results})
    if not all(result["success"] for result in results):
        raise typer.Exit(REFUSED)


def _answer(output: Output, task_id: int, verb: Callable[[int], Task], said: Callable[[Task], str]) -> dict[str, Any]:
    from dibs.wire.tasks import Task as WireTask

    try:
        task = verb(task_id)
    except StoreError:
        raise  # the others would meet the same
    except DibsError as error:
        output.note(f"error: {text.line(error.message)}")
        return {"id": task_id, "success": False, "error": error.message, "code": error.code}
    output.say(said(task))
    return {"id": task_id, "success": True, "task": WireTask.from_model(task)}
