"""Run one action (change, cancel, retry) on many tasks: on each by its id, or in batches on all that match filters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from dibs.cli import text
from dibs.cli.output import Output
from dibs.errors import DibsError, InvalidValue, StoreError
from dibs.exit_codes import REFUSED

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.task import State, Task

PAGE = 1000
"""Tasks that are read at once to count them."""

COUNT_LIMIT = 10_000
"""The count before a confirmation stops here: above this, the question does not need the exact number."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class BulkAction:
    """An action on all tasks that match filters. `act`: the client's method. `states`: the method changes only tasks in
    these states. `verb`, `present`, `past`: Retry, Retrying, retried; the words of the action in messages."""

    act: Callable[..., int]
    states: frozenset[State]
    verb: str
    present: str
    past: str


def run(client: Dibs, output: Output, bulk: BulkAction, filters: dict[str, Any], *, dry_run: bool, yes: bool) -> None:
    """Run the action on the tasks that match, or only count them (`dry_run`)."""
    filters = filters or {"since": EPOCH}  # --all alone: the client requires a filter, and this one lets all tasks pass
    if dry_run:
        matching, _ = count(client, bulk, filters, sys.maxsize)
        output.print(f"{text.count(matching, 'task')} would be {bulk.past}.")
        output.print_json({"success": True, "dry_run": True, "matching": matching})
        return
    total = _count_and_ask(client, output, bulk, filters, yes) if output.on_terminal else None
    with output.progress_bar(bulk.present, total) as step:
        affected = bulk.act(note=step, **filters)
    output.print(f"{text.count(affected, 'task')} {bulk.past}.")
    output.print_json({"success": True, "dry_run": False, "count": affected})


def check(task_ids: list[int], every: bool, filters: dict[str, Any], *, dry_run: bool, yes: bool) -> None:
    """Raise InvalidValue unless the command has either task ids, or --all with optional filters. `every`: --all."""
    if every and task_ids:
        raise InvalidValue("Task ids and --all exclude each other.", hint="Use one of them.")
    if not every and (filters or dry_run or yes):
        raise InvalidValue("Filters, --dry-run and --yes need --all.", hint="Add --all to change all tasks that match.")
    if not every and not task_ids:
        raise InvalidValue("No task is given.", hint="Give task ids, or --all with filters.")


def count(client: Dibs, bulk: BulkAction, filters: dict[str, Any], enough: int) -> tuple[int, bool]:
    """Return the number of tasks that the action would change, and True if the count did not stop at `enough`."""
    found, cursor = 0, None
    while True:
        tasks = client.list_tasks(**filters, limit=PAGE, cursor=cursor)
        found += sum(task.state in bulk.states for task in tasks)
        if len(tasks) < PAGE:
            return found, True
        if found >= enough:
            return found, False
        cursor = tasks[-1].id


def _count_and_ask(client: Dibs, output: Output, bulk: BulkAction, filters: dict[str, Any], yes: bool) -> int | None:
    """Ask for confirmation unless --yes was given; return the number of tasks, or None above the limit."""
    matching, exact = count(client, bulk, filters, COUNT_LIMIT)
    tasks = text.count(matching, "task") if exact else f"more than {COUNT_LIMIT:,} tasks"
    ask = matching > 0 and not yes and sys.stdin.isatty()
    if ask and not typer.confirm(f"{bulk.verb} {tasks}?", err=True):
        output.print_to_stderr("Nothing was changed.")
        raise typer.Exit(REFUSED)
    return matching if exact else None


def each(output: Output, task_ids: list[int], call: Callable[[int], Task], describe: Callable[[Task], str]) -> None:
    """Run the call for each task id, and print each changed task with `describe`. After a refused call the other calls
    still run."""
    results = [_run_one(output, task_id, call, describe) for task_id in task_ids]
    output.print_json({"success": all(result["success"] for result in results), "results": results})
    if not all(result["success"] for result in results):
        raise typer.Exit(REFUSED)


def _run_one(
    output: Output, task_id: int, call: Callable[[int], Task], describe: Callable[[Task], str]
) -> dict[str, Any]:
    from dibs.wire.tasks import Task as WireTask

    try:
        task = call(task_id)
    except StoreError:
        raise  # the other tasks would fail in the same way
    except DibsError as error:
        output.print_to_stderr(f"error: {text.line(error.message)}")
        return {"id": task_id, "success": False, "error": error.message, "code": error.code}
    output.print(describe(task))
    return {"id": task_id, "success": True, "task": WireTask.from_model(task)}
