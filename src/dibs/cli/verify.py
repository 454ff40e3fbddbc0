"""`dibs verify`: read a history again and look for a broken promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import begin, opened
from dibs.cli.options import Json, Url
from dibs.cli.output import Output
from dibs.errors import InvalidValue
from dibs.exit_codes import REFUSED

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.history import HistoryEntry
    from dibs.observe.verify import Report

HistoryFile = Annotated[
    Path | None, typer.Argument(metavar="[HISTORY]", help="A recorded history; without it, that of the store.")
]
Pruned = Annotated[bool, typer.Option("--pruned", help="The beginning may be missing: old history has been pruned.")]


def verify(
    ctx: typer.Context, history: HistoryFile = None, pruned: Pruned = False, url: Url = None, as_json: Json = False
) -> None:
    """Check a history: each claim went to one worker, no stale write was honoured, no task was lost."""
    if history is not None:
        output = begin(ctx, url, as_json).output
        report = _verify_file(output, history, complete=not pruned)
    else:
        with opened(ctx, url, as_json) as (client, output):
            report = _verify_store(output, client, pruned=pruned)
    _tell(output, report)
    if not report.ok:
        raise typer.Exit(REFUSED)


def _verify_file(output: Output, path: Path, *, complete: bool) -> Report:
    from dibs.observe import verify as checker

    lines = _lines(path)
    with output.progress("Reading", lines) as step:
        return checker.verify(_counted(checker.load(path), step), complete=complete)


def _lines(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    except OSError as error:
        raise InvalidValue(
            f"Cannot read {path}: {error.strerror}.", hint="Give the path of a recorded history."
        ) from None


def _verify_store(output: Output, client: Dibs, *, pruned: bool) -> Report:
    from dibs.observe import verify as checker

    first = client.history_after(0, 1)
    complete = not pruned and bool(first) and first[0].id == 1  # otherwise upkeep has pruned the oldest
    with output.progress("Reading", None) as step:
        return checker.verify(_counted(_history(client), step), complete=complete)


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


def _tell(output: Output, report: Report) -> None:
    for violation in report.violations:
        output.say(text.line(violation), "red")
    output.say(f"{str(report).splitlines()[0]}.")
    output.answer(_shape(report))


def _shape(report: Report) -> dict[str, Any]:
    import msgspec

    counted = {"operations": report.operations, "tasks": report.tasks, "claims": report.claims}
    violations = msgspec.to_builtins(report.violations)
    return {"success": report.ok, **counted, "completions": report.completions, "violations": violations}
