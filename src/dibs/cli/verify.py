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
"""Tasks that are read at once."""

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
    store is also checked for claims above the limits that tasks name, and for lost permits."""
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
    complete = not pruned and bool(first) and first[0].id == 1  # otherwise upkeep pruned the oldest entries
    limits = _read_limits(client)
    tasks = None if limits is None else _tasks(client)
    with output.progress_bar("Reading", None) as step:
        return checker.verify(_counted(_history(client), step), complete=complete, tasks=tasks, limits=limits)


def _read_limits(client: Dibs) -> LimitsRecord | None:
    """The limits that tasks name themselves, each since its last change; None if the store has no limits. Since when a
    setting of a queue or type holds for a task is not recorded, so settings are left out."""
    from dibs.observe.limits_check import LimitPeriod, LimitsRecord

    limits = client.limits()
    if not limits:
        return None
    carried = {name for queue in client.queue_settings() for name in queue.limits}
    carried |= {name for task_type in client.type_settings() for name in task_type.limits}
    periods = [LimitPeriod(limit.name, limit.values, limit.updated_at) for limit in limits]
    used = {key: count for limit in limits if limit.name not in carried for key, count in _uses(client, limit)}
    return LimitsRecord(limits=periods, used=used)


def _uses(client: Dibs, limit: Limit) -> Iterator[tuple[tuple[str, str | None], int]]:
    """The live claims that the store counts for the limit, or for each of its groups."""
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
    for number, entry in enumerate(entries, 1):
        if number % 1000 == 0:
            step(1000)
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
