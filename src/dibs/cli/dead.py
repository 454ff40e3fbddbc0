"""`dibs dead`: the tasks whose attempts are spent, and how to send them back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.options import Cursor, Json, Limit, Queue, Type, Url, given
from dibs.cli.output import Column, Output
from dibs.cli.refusing import REFUSED
from dibs.cli.session import opened

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.task import Task

app = typer.Typer(help="The dead letter: tasks that failed for good.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = (
    Column("id", right=True),
    Column("type"),
    Column("queue"),
    Column("attempts", right=True),
    Column("failed (UTC)"),
    Column("error", stretch=True),
)
BATCH = 500
PAGE = 1000


@app.command("list")
def list_dead(
    ctx: typer.Context,
    *,
    type: Type = None,
    queue: Queue = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the tasks of the dead letter, newest first."""
    which = given(state="failed", type=type, queue=queue, limit=limit, cursor=cursor)
    with opened(ctx, url, as_json) as (client, output):
        from dibs import shape

        tasks = client.list_tasks(**which)
        if output.as_json:
            output.answer(shape.page(tasks, limit))
        elif tasks:
            output.table(COLUMNS, [_row(task) for task in tasks])
        else:
            output.note("The dead letter is empty.")


@app.command("redrive")
def redrive(
    ctx: typer.Context,
    *,
    queue: Queue = None,
    type: Type = None,
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="Only tasks with this text in their error.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="At most so many, oldest first.", min=1)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send tasks of the dead letter back to be claimed, with all their attempts."""
    with opened(ctx, url, as_json) as (client, output):
        which = Dead(client, queue, type, error)
        if dry_run:
            _tell(output, dry_run=True, count=which.count(limit))
        elif yes or not _on_terminal(output) or _confirmed(which.count(limit)):
            _tell(output, dry_run=False, count=which.redrive(output, limit))
        else:
            output.note("Nothing was changed.")
            raise typer.Exit(REFUSED)


class Dead:
    """The tasks of the dead letter that match."""

    def __init__(self, client: Dibs, queue: str | None, type: str | None, error: str | None) -> None:
        self._client = client
        self._queue, self._type, self._error = queue, type, error

    def count(self, limit: int | None) -> int:
        """How many there are, as far as anybody wants to know."""
        if self._queue or self._type or self._error:
            found = sum(1 for _ in self._matching())
        else:
            found = self._client.stats().depth.get("failed", 0)
        return found if limit is None else min(found, limit)

    def redrive(self, output: Output, limit: int | None) -> int:
        """Send them back, batch by batch, so that no transaction is long and everybody sees how far it is."""
        done = 0
        with output.progress("Redriving", self.count(limit)) as step:
            while limit is None or done < limit:
                batch = BATCH if limit is None else min(BATCH, limit - done)
                moved = self._client.redrive(queue=self._queue, type=self._type, error=self._error, limit=batch)
                done += moved
                step(moved)
                if moved < batch:
                    break
        return done

    def _matching(self) -> Iterator[Task]:
        cursor = None
        while True:
            which = given(state="failed", type=self._type, queue=self._queue, limit=PAGE, cursor=cursor)
            tasks = self._client.list_tasks(**which)
            yield from (task for task in tasks if self._error is None or self._error in _error(task))
            if len(tasks) < PAGE:
                return
            cursor = tasks[-1].id


def _row(task: Task) -> tuple[object, ...]:
    attempts = f"{task.attempts}/{task.max_attempts}"
    if task.error is not None and task.error.permanent:
        attempts = f"{attempts} permanent"
    return task.id, task.type, task.queue, attempts, text.exact(task.finished_at), text.shorten(_error(task), 300)


def _error(task: Task) -> str:
    return f"{task.error.type}: {task.error.message}" if task.error else ""


def _on_terminal(output: Output) -> bool:
    return output.on_terminal and sys.stdin.isatty()


def _confirmed(count: int) -> bool:
    return count == 0 or typer.confirm(f"Redrive {text.count(count, 'task')}?", err=True)


def _tell(output: Output, *, dry_run: bool, count: int) -> None:
    tasks = text.count(count, "task")
    output.say(f"{tasks} would be redriven." if dry_run else f"{tasks} redriven.")
    output.answer({"success": True, "dry_run": dry_run, "matching" if dry_run else "redriven": count})
