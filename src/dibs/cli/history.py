"""`dibs history export`: write the history of all tasks to a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import JsonOption, UrlOption
from dibs.cli.output import Output, exit_if_pipe_closed
from dibs.errors import InvalidValue

if TYPE_CHECKING:
    from dibs.client import Dibs

app = typer.Typer(help="Export the history of all tasks.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Export the history of all tasks."""


@app.command("export")
def export(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The file to write; default: standard output.")
    ] = None,
    after: Annotated[
        int,
        typer.Option(
            "--after", metavar="ID", help="Only entries after the entry with this id.", min=0, show_default=False
        ),
    ] = 0,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the history of all tasks as JSON lines. `dibs verify` reads this format."""
    with open_client(ctx, url, as_json) as (client, output):
        if file is None:
            _print(client, after)
            return
        entries = _write(client, output, file, after)
        counted = "1 entry" if entries == 1 else f"{entries:,} entries"
        output.print(f"{counted} written to {text.line(file)}.")
        output.print_json({"success": True, "file": str(file), "entries": entries})


def _print(client: Dibs, after: int) -> None:
    with exit_if_pipe_closed():
        for _, lines in _pages(client, after):
            sys.stdout.write(lines.decode())
        sys.stdout.flush()


def _write(client: Dibs, output: Output, file: Path, after: int) -> int:
    """Write a partial file and rename it at the end: a file with the final name is a complete export."""
    from dibs.observe.verify import create_for_owner

    partial = file.with_name(f"{file.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # a file left by a crash would keep its mode
        with create_for_owner(partial) as target:
            written = _write_pages(client, output, target, after)
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InvalidValue(
            f"Cannot write {file}: {error.strerror}.", hint="Give a path that you can write to."
        ) from None
    return written


def _write_pages(client: Dibs, output: Output, target: BinaryIO, after: int) -> int:
    written = 0
    with output.progress_bar("Exporting", None) as step:
        for count, lines in _pages(client, after):
            target.write(lines)
            written += count
            step(count)
    return written


def _pages(client: Dibs, after: int) -> Iterator[tuple[int, bytes]]:
    """Yield pages of the history: the number of entries, and the entries as JSON lines."""
    from msgspec.json import Encoder

    encode = Encoder().encode_lines
    while page := client.history_after(after):
        yield len(page), encode(page)
        after = page[-1].id
