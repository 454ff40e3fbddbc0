"""The output of a command: tables on a terminal, aligned plain text in a pipe, or one JSON document."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer

from dibs.cli import text
from dibs.errors import DibsError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FIELD_WIDTH = 12
"""The width of field names, equal for all objects."""

PIPE_CLOSED = 141
"""The exit code that a shell reports for a program that wrote to a closed pipe."""

STYLES = {
    "scheduled": "cyan",
    "blocked": "magenta",
    "pending": "yellow",
    "claimed": "bold blue",
    "completed": "green",
    "failed": "bold red",
    "cancelled": "bright_black",
    "ignored": "yellow",
    "running": "bold blue",
    "finalizing": "cyan",
    "active": "green",
    "stale": "yellow",
    "gone": "bright_black",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "paused": "bold yellow",
    "expired": "yellow",
    "revoked": "bright_black",
    "ended": "bright_black",
}
"""The colours of states and verdicts."""


@dataclass(frozen=True)
class Column:
    """A column of a table. `stretch`: the column fills the remaining width and is cut if the terminal is narrow.
    `optional`: the column is left out if all its cells are empty."""

    title: str
    right: bool = False
    stretch: bool = False
    by_state: bool = False
    optional: bool = False


AdvanceProgress = Callable[[int], None]


class Output:
    """Prints to standard output and standard error, as text or as JSON."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json

    @property
    def on_terminal(self) -> bool:
        """Return True if standard output is a terminal and --json was not given."""
        return sys.stdout.isatty() and not self.as_json

    @property
    def width(self) -> int:
        """Characters that fit on a line; a pipe has no end."""
        return self.console.width if self.on_terminal else sys.maxsize

    @cached_property
    def console(self) -> Console:
        """The rich console. Markup, emoji codes and highlighting are off: user text is printed unchanged."""
        from rich.console import Console

        return Console(markup=False, highlight=False, emoji=False, soft_wrap=False)

    def print_json(self, document: Any) -> None:
        """Print the JSON document of this command if --json was given; ASCII only, for every locale."""
        if self.as_json:
            self.write_line(json.dumps(document, indent=2, default=_to_builtins))

    def print_json_line(self, document: Any) -> None:
        """Print one of many JSON documents, each on its own line."""
        self.write_line(json.dumps(document, default=_to_builtins))

    def print(self, message: str, style: str | None = None) -> None:
        """Print a text; nothing if --json was given."""
        if self.as_json:
            return
        if style and self.on_terminal:
            with exit_if_pipe_closed():
                self.console.print(message, style=style)
        else:
            self.write_line(message)

    def print_styled(self, line: Sequence[tuple[str, str]]) -> None:
        """Print a line of pieces with individual styles."""
        if self.on_terminal:
            from rich.text import Text

            with exit_if_pipe_closed():
                self.console.print(Text.assemble(*line), no_wrap=True, overflow="crop")
        else:
            self.write_line("".join(piece for piece, _ in line).rstrip())

    def write_line(self, message: str) -> None:
        """Write a line to standard output and flush it."""
        with exit_if_pipe_closed():
            sys.stdout.write(f"{message}\n")
            sys.stdout.flush()

    def print_to_stderr(self, message: str) -> None:
        """Write a line to standard error."""
        with exit_if_pipe_closed():
            sys.stderr.write(f"{message}\n")
            sys.stderr.flush()

    def print_table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """Print a table."""
        columns, rows = _without_empty(columns, list(rows))
        if self.on_terminal:
            with exit_if_pipe_closed():
                self.console.print(rich_table(columns, rows))
        else:
            self.write_line("\n".join(plain_table(columns, rows)))

    def print_fields(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Print fields, one a line. A value of several lines is printed below its name."""
        for name, value in pairs:
            if "\n" in value:
                self.print(f"{name}:\n" + "\n".join(f"  {each}" for each in value.split("\n")))
            else:
                self.print(
                    f"{name + ':':<{FIELD_WIDTH}} {value}".rstrip(), STYLES.get(value) if name == "state" else None
                )

    @contextmanager
    def progress_bar(self, what: str, total: int | None) -> Iterator[AdvanceProgress]:
        """Show a progress bar if standard error is a terminal; yield a function that advances it."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)


def _without_empty(columns: Sequence[Column], rows: list[Sequence[object]]) -> tuple[list[Column], list[list[object]]]:
    """Leave out the optional columns without content."""
    kept = [n for n, column in enumerate(columns) if not column.optional or any(row[n] for row in rows)]
    return [columns[n] for n in kept], [[row[n] for n in kept] for row in rows]


def rich_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], **options: Any) -> Table:
    """Return a table that fits the terminal: no cell wraps, and the stretching column is cut first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, **options)
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.stretch,  # rich takes space from columns that can wrap first
            overflow="ellipsis",
            ratio=1 if column.stretch else None,
            min_width=8 if column.stretch else None,
        )
    for row in rows:
        cells = [(column, text.line(cell)) for column, cell in zip(columns, row, strict=True)]
        styles = [STYLES.get(cell, "") if column.by_state else "" for column, cell in cells]
        table.add_row(*(Text(cell, style, no_wrap=True) for (_, cell), style in zip(cells, styles, strict=True)))
    return table


def plain_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table with aligned columns, neither cut nor wrapped, because a pipe has no width."""
    table = [[column.title for column in columns], *([text.line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in table) for place in range(len(columns))]
    for row in table:
        cells = zip(columns, row, widths, strict=True)
        aligned = (f"{cell:>{width}}" if column.right else f"{cell:<{width}}" for column, cell, width in cells)
        yield "  ".join(aligned).rstrip()


@contextmanager
def exit_if_pipe_closed() -> Iterator[None]:
    """End silently if the reader closed the pipe (`dibs tasks list | head -1`)."""
    try:
        yield
    except BrokenPipeError:
        _discard_buffered()
        raise typer.Exit(PIPE_CLOSED) from None
    except OSError as error:  # for example a full disk
        _discard_buffered()
        raise DibsError(f"The output could not be written: {error}.") from None


def _discard_buffered() -> None:
    """Redirect standard output to the null device, so that flushing the buffer at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _to_builtins(document: Any) -> Any:
    """Convert a msgspec struct for the JSON encoder of the standard library."""
    from msgspec import to_builtins

    return to_builtins(document)
