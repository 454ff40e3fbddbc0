"""`dibs tasks logs`: what the handlers of a task have logged, attempt by attempt; with --follow until the task ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import JsonOption, TaskIdArgument, UrlOption

if TYPE_CHECKING:
    from dibs.cli.output import Output
    from dibs.model.logs import LogLine

STYLES = {"debug": "dim", "info": "", "warning": "yellow", "error": "red", "critical": "bold red"}


def logs(
    ctx: typer.Context,
    task_id: TaskIdArgument,
    *,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Then print each new line, until the task or the attempt ends."),
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, metavar="N", help="Only the lines of this attempt.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="LEVEL", help="Only lines of this level and above: debug, info, warning, …"),
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the handlers of a task have logged (handlers with capture_logs)."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.logs import LogLines

        printer = LinePrinter(output)
        if follow:
            for line in client.follow_logs(task_id, attempt=attempt, level=level):
                printer.add(line)
            return
        lines = client.logs(task_id, attempt=attempt, level=level)
        if as_json:
            task = client.get(task_id)
            output.print_json(LogLines.from_models(lines, task is None or task.finished))
            return
        for line in lines:
            printer.add(line)
        if not lines:
            output.print_to_stderr("No log lines.")


class LinePrinter:
    """Prints log lines, each with its time, and a heading before each attempt."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._token: int | None = None

    def add(self, line: LogLine) -> None:
        """Print a line."""
        if self._output.as_json:
            from dibs.wire.logs import LogLine as WireLine

            self._output.print_json_line(WireLine.from_model(line))
            return
        if line.token != self._token:
            self._token = line.token
            self._output.print(heading(line), "bold")
        first, *others = text.lines(line.message).splitlines() or [""]
        self._output.print(f"{line.at:%H:%M:%S.%f}"[:-3] + f"  {line.level:<8}  {first}", STYLES[line.level])
        for other in others:
            self._output.print(f"{'':24}{other}", STYLES[line.level])


def heading(line: LogLine) -> str:
    """The heading of an attempt: its number, the token where it differs, and the day of its first line."""
    token = "" if line.token == line.attempt else f" (token {line.token})"
    return f"Attempt {line.attempt}{token}, {line.at:%Y-%m-%d} UTC"
