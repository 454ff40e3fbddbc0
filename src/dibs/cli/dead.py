"""`dibs dead`: list, retry and discard the tasks of the dead letter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import (
    CursorOption,
    DryRunOption,
    JsonOption,
    LimitOption,
    QueueOption,
    TagOption,
    TypeOption,
    UrlOption,
    YesOption,
    given,
)
from dibs.cli.output import Column, Output
from dibs.exit_codes import REFUSED

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.task import Task

app = typer.Typer(
    help="List, retry and discard tasks of the dead letter: tasks without attempts left.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

COLUMNS = (
    Column("id", right=True),
    Column("type"),
    Column("queue"),
    Column("attempts", right=True),
    Column("failed (UTC)"),
    Column("tags", optional=True),
    Column("error", stretch=True),
)
BATCH = 500
"""Tasks that are retried or discarded in one transaction."""

PAGE = 1000
"""Tasks that are read at once to count them."""

ErrorTextOption = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only tasks with this text in their error.")
]
MaxCountOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="Maximum number of tasks, oldest first.", min=1)
]


@app.command("list")
def list_dead(
    ctx: typer.Context,
    *,
    type: TypeOption = None,
    queue: QueueOption = None,
    error: ErrorTextOption = None,
    tags: TagOption = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tasks of the dead letter, newest first."""
    criteria = given(type=type, queue=queue, error=error, tags=tags or None, limit=limit, cursor=cursor)
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.tasks import Page

        tasks = client.list_dead(**criteria)
        if output.as_json:
            output.print_json(Page.from_models(tasks, limit))
        elif tasks:
            output.print_table(COLUMNS, [_row(task) for task in tasks])
        else:
            output.print_to_stderr("The dead letter is empty.")


@app.command("redrive")
def redrive(
    ctx: typer.Context,
    *,
    queue: QueueOption = None,
    type: TypeOption = None,
    error: ErrorTextOption = None,
    tags: TagOption = None,
    limit: MaxCountOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retry tasks of the dead letter: they become pending, with all their attempts."""
    with open_client(ctx, url, as_json) as (client, output):
        _apply(
            output,
            REDRIVE,
            DeadTasks(client, given(queue=queue, type=type, error=error, tags=tags or None)),
            DeadLetterRequest(limit, dry_run, yes),
        )


@app.command("discard")
def discard(
    ctx: typer.Context,
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="[ID]...", help="The ids of the tasks; default: all that match.", min=0),
    ] = None,
    *,
    queue: QueueOption = None,
    type: TypeOption = None,
    error: ErrorTextOption = None,
    tags: TagOption = None,
    every: Annotated[bool, typer.Option("--all", help="All tasks of the dead letter.")] = False,
    limit: MaxCountOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove tasks from the dead letter. They stay failed, keep their history, and are pruned as usual."""
    if not (ids or queue or type or error or tags or every):
        raise typer.BadParameter("Give task ids, a filter (--queue, --type, --error, --tag), or --all.")
    with open_client(ctx, url, as_json) as (client, output):
        _apply(
            output,
            DISCARD,
            DeadTasks(client, given(queue=queue, type=type, error=error, tags=tags or None), ids or None),
            DeadLetterRequest(limit, dry_run, yes),
        )


@dataclass(frozen=True)
class DeadLetterRequest:
    """The options of an action on the dead letter: a limit, a dry run, no confirmation."""

    limit: int | None
    dry_run: bool
    yes: bool


@dataclass(frozen=True)
class DeadLetterAction:
    """An action on the dead letter: its words in messages, and the field of the JSON output that holds the count."""

    verb: str
    present: str
    past: str
    field: str


REDRIVE = DeadLetterAction("Retry", "Retrying", "retried", "redriven")
DISCARD = DeadLetterAction("Discard", "Discarding", "discarded", "discarded")


def _apply(output: Output, action: DeadLetterAction, tasks: DeadTasks, request: DeadLetterRequest) -> None:
    """Run the action after confirmation, or only count the tasks (`dry_run`)."""
    if request.dry_run:
        _print_count(output, action, dry_run=True, count=tasks.count(request.limit))
    elif request.yes or not _on_terminal(output) or _confirmed(action, tasks.count(request.limit)):
        _print_count(output, action, dry_run=False, count=tasks.apply(output, action, request.limit))
    else:
        output.print_to_stderr("Nothing was changed.")
        raise typer.Exit(REFUSED)


class DeadTasks:
    """The tasks of the dead letter that match the filters and, if `ids` are given, have one of these ids."""

    def __init__(self, client: Dibs, filters: dict[str, Any], ids: list[int] | None = None) -> None:
        self._client = client
        self._filters = filters
        self._ids = ids

    def count(self, limit: int | None) -> int:
        """Return the number of matching tasks, at most `limit`."""
        if self._filters or self._ids:
            found = sum(1 for task in self._matching() if self._ids is None or task.id in self._ids)
        else:
            found = self._client.stats().dead_letter
        return found if limit is None else min(found, limit)

    def apply(self, output: Output, action: DeadLetterAction, limit: int | None) -> int:
        """Retry or discard the tasks in batches, so that transactions are short and the progress bar advances."""
        if self._ids is not None:  # only `discard` takes ids
            return self._client.discard_dead(ids=self._ids, limit=limit, **self._filters)
        change_batch = self._client.redrive if action is REDRIVE else self._client.discard_dead
        changed_in_total = 0
        with output.progress_bar(action.present, self.count(limit)) as step:
            while limit is None or changed_in_total < limit:
                batch = BATCH if limit is None else min(BATCH, limit - changed_in_total)
                changed = change_batch(limit=batch, **self._filters)
                changed_in_total += changed
                step(changed)
                if changed < batch:
                    break
        return changed_in_total

    def _matching(self) -> Iterator[Task]:
        cursor = None
        while True:
            tasks = self._client.list_dead(**given(limit=PAGE, cursor=cursor, **self._filters))
            yield from tasks
            if len(tasks) < PAGE:
                return
            cursor = tasks[-1].id


def _row(task: Task) -> tuple[object, ...]:
    attempts = f"{task.attempts}/{task.max_attempts}"
    if task.error is not None and task.error.permanent:
        attempts = f"{attempts} permanent"
    failed_at, tags, error = text.exact(task.finished_at), text.tags(task.tags), text.shorten(_error(task), 300)
    return task.id, task.type, task.queue, attempts, failed_at, tags, error


def _error(task: Task) -> str:
    return f"{task.error.type}: {task.error.message}" if task.error else ""


def _on_terminal(output: Output) -> bool:
    return output.on_terminal and sys.stdin.isatty()


def _confirmed(action: DeadLetterAction, count: int) -> bool:
    return count == 0 or typer.confirm(f"{action.verb} {text.count(count, 'task')}?", err=True)


def _print_count(output: Output, action: DeadLetterAction, *, dry_run: bool, count: int) -> None:
    tasks = text.count(count, "task")
    output.print(f"{tasks} would be {action.past}." if dry_run else f"{tasks} {action.past}.")
    output.print_json({"success": True, "dry_run": dry_run, "matching" if dry_run else action.field: count})
