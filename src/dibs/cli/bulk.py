"""Cancel or retry all tasks that match: counted first, asked about on a terminal, then done in batches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from dibs.cli import text
from dibs.cli.output import Output
from dibs.errors import InvalidValue
from dibs.exit_codes import REFUSED

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.task import State

PAGE = 1000
ENOUGH = 10_000
"""Tasks that are counted before a question: a person who is asked about more does not need the exact number."""

EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Bulk:
    """A bulk action: the verb of the client, and its words."""

    act: Callable[..., int]
    states: frozenset[State]
    question: str
    doing: str
    done: str


def run(client: Dibs, output: Output, bulk: Bulk, filters: dict[str, Any], *, dry_run: bool, yes: bool) -> None:
    """Count the tasks, or act on them."""
    filters = filters or {"since": EVER}  # --all alone: every task
    if dry_run:
        matching, _ = count(client, bulk, filters, sys.maxsize)
        output.say(f"{text.count(matching, 'task')} would be {bulk.done}.")
        output.answer({"success": True, "dry_run": True, "matching": matching})
        return
    total = _count_and_ask(client, output, bulk, filters, yes) if output.on_terminal else None
    with output.progress(bulk.doing, total) as step:
        done = bulk.act(note=step, **filters)
    output.say(f"{text.count(done, 'task')} {bulk.done}.")
    output.answer({"success": True, "dry_run": False, "count": done})


def check(task_ids: list[int], every: bool, filters: dict[str, Any], *, dry_run: bool, yes: bool) -> None:
    """Refuse ids together with --all, and filters without it."""
    if every and task_ids:
        raise InvalidValue("Task ids and --all exclude each other.", hint="Give either.")
    if not every and (filters or dry_run or yes):
        raise InvalidValue("Filters, --dry-run and --yes need --all.", hint="Add --all to act on all tasks that match.")
    if not every and not task_ids:
        raise InvalidValue("No task is named.", hint="Give the ids of tasks, or --all with filters.")


def count(client: Dibs, bulk: Bulk, filters: dict[str, Any], enough: int) -> tuple[int, bool]:
    """How many tasks the action would change, counted up to `enough`; True if that is all of them."""
    found, cursor = 0, None
    while True:
        tasks = client.list_tasks(**filters, limit=PAGE, cursor=cursor)
        found += sum(task.state in bulk.states for task in tasks)
        if len(tasks) < PAGE:
            return found, True
        if found >= enough:
            return found, False
        cursor = tasks[-1].id


def _count_and_ask(client: Dibs, output: Output, bulk: Bulk, filters: dict[str, Any], yes: bool) -> int | None:
    """Ask whether to go on, unless --yes was given; the number of tasks for the progress bar, if they are not many."""
    matching, exact = count(client, bulk, filters, ENOUGH)
    tasks = text.count(matching, "task") if exact else f"more than {ENOUGH:,} tasks"
    ask = matching > 0 and not yes and sys.stdin.isatty()
    if ask and not typer.confirm(f"{bulk.question} {tasks}?", err=True):
        output.note("Nothing was changed.")
        raise typer.Exit(REFUSED)
    return matching if exact else None
