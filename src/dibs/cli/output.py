"""How a command answers: a table for a terminal, aligned plain text for a pipe, one JSON document for a script."""

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

NAMES = 12
"""The width of the names of values, the same for every task."""

PIPE_CLOSED = 141
"""What a shell reports of a program that wrote to a closed pipe."""

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
}
"""The colours of states and verdicts, everywhere the same."""


@dataclass(frozen=True)
class Column:
    """A column of a table. `stretch`: it takes what space is left, and is cut where there is too little."""

    title: str
    right: bool = False
    stretch: bool = False
    by_state: bool = False


Step = Callable[[int], None]


class Output:
    """Standard output and standard error, spoken to in one of three ways."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json

    @property
    def on_terminal(self) -> bool:
        """True where a person is reading."""
        return sys.stdout.isatty() and not self.as_json

    @property
    def width(self) -> int:
        """Characters that fit on a line; a pipe has no end."""
        return self.console.width if self.on_terminal else sys.maxsize

    @cached_property
    def console(self) -> Console:
        """The terminal, which takes text for text: no markup, no emoji codes, no guessed highlights."""
        from rich.console import Console

        return Console(markup=False, highlight=False, emoji=False, soft_wrap=False)

    def answer(self, shape: Any) -> None:
        """The one JSON document of this command. ASCII only, so that every terminal and every locale can hold it."""
        if self.as_json:
            self.write(json.dumps(shape, indent=2, default=_plain))

    def answer_line(self, shape: Any) -> None:
        """One of many JSON documents, each on its line."""
        self.write(json.dumps(shape, default=_plain))

    def say(self, words: str, style: str | None = None) -> None:
        """A sentence for people; nothing where JSON was asked for."""
        if self.as_json:
            return
        if style and self.on_terminal:
            with quiet_if_closed():
                self.console.print(words, style=style)
        else:
            self.write(words)

    def pieces(self, line: Sequence[tuple[str, str]]) -> None:
        """A line for people, in pieces of their own styles."""
        if self.on_terminal:
            from rich.text import Text

            with quiet_if_closed():
                self.console.print(Text.assemble(*line), no_wrap=True, overflow="crop")
        else:
            self.write("".join(piece for piece, _ in line).rstrip())

    def write(self, words: str) -> None:
        """A line on standard output, at once."""
        with quiet_if_closed():
            sys.stdout.write(f"{words}\n")
            sys.stdout.flush()

    def note(self, words: str) -> None:
        """A line on standard error."""
        with quiet_if_closed():
            sys.stderr.write(f"{words}\n")
            sys.stderr.flush()

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """Rows under their titles."""
        if self.on_terminal:
            with quiet_if_closed():
                self.console.print(rich_table(columns, rows))
        else:
            self.write("\n".join(plain_table(columns, rows)))

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names and values, one pair a line; a value of several lines stands below its name."""
        for name, value in pairs:
            if "\n" in value:
                self.say(f"{name}:\n" + "\n".join(f"  {each}" for each in value.split("\n")))
            else:
                self.say(f"{name + ':':<{NAMES}} {value}".rstrip(), STYLES.get(value) if name == "state" else None)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Step]:
        """A progress bar on standard error, where a person can see it; the step says how many more are done."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)


def rich_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], **options: Any) -> Table:
    """A table that fits the terminal: no cell wraps, the stretching column gives way first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, **options)
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.stretch,  # rich takes space from columns that could wrap before it does from others
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
    """Aligned columns, nothing cut and nothing wrapped: a pipe has no width."""
    table = [[column.title for column in columns], *([text.line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in table) for place in range(len(columns))]
    for row in table:
        cells = zip(columns, row, widths, strict=True)
        aligned = (f"{cell:>{width}}" if column.right else f"{cell:<{width}}" for column, cell, width in cells)
        yield "  ".join(aligned).rstrip()


@contextmanager
def quiet_if_closed() -> Iterator[None]:
    """End without a word if the reader has gone (`dibs tasks list | head -1`)."""
    try:
        yield
    except BrokenPipeError:
        _drop_the_rest()
        raise typer.Exit(PIPE_CLOSED) from None
    except OSError as error:  # a full disk, say
        _drop_the_rest()
        raise DibsError(f"The answer could not be written: {error}.") from None


def _drop_the_rest() -> None:
    """What is still buffered has nowhere to go: let it not be told a second time when the program ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(shape: Any) -> Any:
    """What the JSON of the standard library needs to be told about a shape."""
    from msgspec import to_builtins

    return to_builtins(shape)
