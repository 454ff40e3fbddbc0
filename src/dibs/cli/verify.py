"""`dibs verify`: check a history for violations of the guarantees of dibs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import command_context, open_client
from dibs.cli.options import JsonOption, UrlOption
from dibs.cli.output import Output
from dibs.errors import InvalidValue
from dibs.exit_codes import REFUSED

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.history import HistoryEntry
    from dibs.model.limit import Limit
    from dibs.model.task import Task
    from dibs.observe.limits_check import LimitsRecord
    from dibs.observe.verify import VerifyReport

PAGE = 1000
"""Tasks on a page, and entries between two steps of the progress bar."""

HistoryFileArgument = Annotated[
    Path | None, typer.Argument(metavar="[HISTORY]", help="An exported history; default: the history of the store.")
]
PrunedOption = Annotated[bool, typer.Option("--pruned", help="Accept a history whose oldest entries were pruned.")]


def verify(
    ctx: typer.Context,
    history: HistoryFileArgument = None,
    pruned: PrunedOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a history: each claim went to one worker, no stale write was accepted, no task was lost. The history of the
    store is also checked for claims above the limits that tasks name, and for claims that the store counts wrongly."""
    if history is not None:
        output = command_context(ctx, url, as_json).output
        report = _verify_file(output, history, complete=not pruned)
    else:
        with open_client(ctx, url, as_json) as (client, output):
            report = _verify_store(output, client, pruned=pruned)
    _print_report(output, report)
    if not report.ok:
        raise typer.Exit(REFUSED)


def _verify_file(output: Output, path: Path, *, complete: bool) -> VerifyReport:
    from dibs.observe import verify as checker

    lines = _lines(path)
    with output.progress_bar("Reading", lines) as step:
        return checker.verify(_counted(checker.load(path), step), complete=complete)


def _lines(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    except OSError as error:
        raise InvalidValue(
            f"Cannot read {path}: {error.strerror}.", hint="Give the path of an exported history."
        ) from None


def _verify_store(output: Output, client: Dibs, *, pruned: bool) -> VerifyReport:
    from dibs.observe import verify as checker

    first = client.history_after(0, 1)
    complete = not pruned and bool(first) and first[0].id == 1  # a later first id: upkeep has pruned the oldest entries
    limits = _read_limits(client)
    tasks = None if limits is None else _tasks(client)
    with output.progress_bar("Reading", None) as step:
        return checker.verify(_counted(_history(client), step), complete=complete, tasks=tasks, limits=limits)


def _read_limits(client: Dibs) -> LimitsRecord | None:
    """Return what the check needs to know about limits; None if the store has no limits.

    Each limit is checked from its last change on, and only with the tasks that name it themselves: the history does not
    record when the settings of a queue or type began to name a limit. For the same reason the live claims of a limit
    that settings name cannot be counted from the history, and are not compared.
    """
    from dibs.observe.limits_check import LimitPeriod, LimitsRecord

    limits = client.limits()
    if not limits:
        return None
    in_settings = {name for queue in client.queue_settings() for name in queue.limits}
    in_settings |= {name for task_type in client.type_settings() for name in task_type.limits}
    periods = [LimitPeriod(limit.name, limit.values, limit.updated_at) for limit in limits]
    used = {key: count for limit in limits if limit.name not in in_settings for key, count in _uses(client, limit)}
    return LimitsRecord(limits=periods, used=used)


def _uses(client: Dibs, limit: Limit) -> Iterator[tuple[tuple[str, str | None], int]]:
    """Yield the live claims that the store counts for the limit, or for each of its groups: (limit, group), count."""
    if limit.per is None:
        yield (limit.name, None), limit.used
        return
    after: str | None = None
    while page := client.limit_groups(limit.name, after=after):
        yield from (((limit.name, found.group or ""), found.used) for found in page)
        after = page[-1].group or ""


def _tasks(client: Dibs) -> Iterator[Task]:
    cursor: int | None = None
    while page := client.list_tasks(limit=PAGE, cursor=cursor):
        yield from page
        cursor = page[-1].id


def _history(client: Dibs) -> Iterator[HistoryEntry]:
    after = 0
    while page := client.history_after(after):
        yield from page
        after = page[-1].id


def _counted(entries: Iterable[HistoryEntry], step: Callable[[int], None]) -> Iterator[HistoryEntry]:
    """Yield the entries, and advance the progress bar with `step`."""
    for number, entry in enumerate(entries, 1):
        if number % PAGE == 0:
            step(PAGE)
        yield entry


def _print_report(output: Output, report: VerifyReport) -> None:
    for violation in report.violations:
        output.print(text.line(violation), "red")
    output.print(f"{str(report).splitlines()[0]}.")
    output.print_json(_to_json(report))


def _to_json(report: VerifyReport) -> dict[str, Any]:
    import msgspec

    counted = {"operations": report.operations, "tasks": report.tasks, "claims": report.claims}
    violations = msgspec.to_builtins(report.violations)
    return {"success": report.ok, **counted, "completions": report.completions, "violations": violations}
