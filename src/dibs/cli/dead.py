"""`dibs dead`: the tasks whose attempts are spent, how to send them back, and how to discard them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import opened
from dibs.cli.options import Cursor, Json, Limit, Queue, Type, Url, given
from dibs.cli.output import Column, Output
from dibs.exit_codes import REFUSED

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.task import Task

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

ErrorText = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only tasks with this text in their error.")
]
AtMost = Annotated[int | None, typer.Option("--limit", metavar="N", help="At most so many, oldest first.", min=1)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("list")
def list_dead(
    ctx: typer.Context,
    *,
    type: Type = None,
    queue: Queue = None,
    error: ErrorText = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the tasks of the dead letter, newest first."""
    which = given(type=type, queue=queue, error=error, limit=limit, cursor=cursor)
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.tasks import Page

        tasks = client.list_dead(**which)
        if output.as_json:
            output.answer(Page.from_models(tasks, limit))
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
    error: ErrorText = None,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send tasks of the dead letter back to be claimed, with all their attempts."""
    with opened(ctx, url, as_json) as (client, output):
        _deal(output, REDRIVE, Dead(client, queue, type, error), Asked(limit, dry_run, yes))


@app.command("discard")
def discard(
    ctx: typer.Context,
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="None but these tasks.", min=0)] = None,
    *,
    queue: Queue = None,
    type: Type = None,
    error: ErrorText = None,
    every: Annotated[bool, typer.Option("--all", help="The whole dead letter.")] = False,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Take tasks out of the dead letter. They stay failed, keep their history, and are pruned as usual."""
    if not (ids or queue or type or error or every):
        raise typer.BadParameter("Name tasks by their ids, or by --queue, --type or --error, or say --all.")
    with opened(ctx, url, as_json) as (client, output):
        _deal(output, DISCARD, Dead(client, queue, type, error, ids or None), Asked(limit, dry_run, yes))


@dataclass(frozen=True)
class Asked:
    """How many tasks are meant at most, and whether to only count them or not to ask."""

    limit: int | None
    dry_run: bool
    yes: bool


@dataclass(frozen=True)
class Way:
    """A way to deal with the dead letter, in words."""

    do: str
    doing: str
    done: str


REDRIVE = Way("Redrive", "Redriving", "redriven")
DISCARD = Way("Discard", "Discarding", "discarded")


def _deal(output: Output, way: Way, which: Dead, asked: Asked) -> None:
    """Count the tasks, or ask and do it."""
    if asked.dry_run:
        _tell(output, way, dry_run=True, count=which.count(asked.limit))
    elif asked.yes or not _on_terminal(output) or _confirmed(way, which.count(asked.limit)):
        _tell(output, way, dry_run=False, count=which.move(output, way, asked.limit))
    else:
        output.note("Nothing was changed.")
        raise typer.Exit(REFUSED)


class Dead:
    """The tasks of the dead letter that match."""

    def __init__(
        self, client: Dibs, queue: str | None, type: str | None, error: str | None, ids: list[int] | None = None
    ) -> None:
        self._client = client
        self._which = given(queue=queue, type=type, error=error)
        self._ids = ids

    def count(self, limit: int | None) -> int:
        """How many there are, as far as anybody wants to know."""
        if self._which or self._ids:
            found = sum(1 for task in self._matching() if self._ids is None or task.id in self._ids)
        else:
            found = self._client.stats().dead_letter
        return found if limit is None else min(found, limit)

    def move(self, output: Output, way: Way, limit: int | None) -> int:
        """Redrive or discard them, batch by batch, so that no transaction is long and the progress bar moves."""
        if self._ids is not None:
            return self._client.discard_dead(ids=self._ids, limit=limit, **self._which)
        verb = self._client.redrive if way is REDRIVE else self._client.discard_dead
        done = 0
        with output.progress(way.doing, self.count(limit)) as step:
            while limit is None or done < limit:
                batch = BATCH if limit is None else min(BATCH, limit - done)
                moved = verb(limit=batch, **self._which)
                done += moved
                step(moved)
                if moved < batch:
                    break
        return done

    def _matching(self) -> Iterator[Task]:
        cursor = None
        while True:
            tasks = self._client.list_dead(**given(limit=PAGE, cursor=cursor, **self._which))
            yield from tasks
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


def _confirmed(way: Way, count: int) -> bool:
    return count == 0 or typer.confirm(f"{way.do} {text.count(count, 'task')}?", err=True)


def _tell(output: Output, way: Way, *, dry_run: bool, count: int) -> None:
    tasks = text.count(count, "task")
    output.say(f"{tasks} would be {way.done}." if dry_run else f"{tasks} {way.done}.")
    output.answer({"success": True, "dry_run": dry_run, "matching" if dry_run else way.done: count})
