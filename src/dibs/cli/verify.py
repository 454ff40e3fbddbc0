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
    from dibs.observe.verify import VerifyReport

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
    """Check a history: each claim went to one worker, no stale write was accepted, no task was lost."""
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
    with output.progress_bar("Reading", None) as step:
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
