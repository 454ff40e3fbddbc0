"""`dibs history`: the history of all tasks, to be kept or checked elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from dibs.cli import text
from dibs.cli.context import opened
from dibs.cli.options import Json, Url
from dibs.cli.output import Output, quiet_if_closed
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
        Path | None, typer.Argument(metavar="[FILE]", help="Where to write it; without it, standard output.")
    ] = None,
    after: Annotated[
        int, typer.Option("--after", metavar="ID", help="Only entries after this one.", min=0, show_default=False)
    ] = 0,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Write the history of all tasks as JSON lines, which `dibs verify` reads."""
    with opened(ctx, url, as_json) as (client, output):
        if file is None:
            _print(client, after)
            return
        entries = _write(client, output, file, after)
        counted = "1 entry" if entries == 1 else f"{entries:,} entries"
        output.say(f"{counted} written to {text.line(file)}.")
        output.answer({"success": True, "file": str(file), "entries": entries})


def _print(client: Dibs, after: int) -> None:
    with quiet_if_closed():
        for _, lines in _pages(client, after):
            sys.stdout.write(lines.decode())
        sys.stdout.flush()


def _write(client: Dibs, output: Output, file: Path, after: int) -> int:
    """Write the file under another name first: a file of the right name is a whole export."""
    from dibs.observe.verify import create_for_owner

    partial = file.with_name(f"{file.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # one that a crash left behind keeps its mode
        with create_for_owner(partial) as target:
            written = _write_pages(client, output, target, after)
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InvalidValue(f"Cannot write {file}: {error.strerror}.", hint="Give a path that can be written.") from None
    return written


def _write_pages(client: Dibs, output: Output, target: BinaryIO, after: int) -> int:
    written = 0
    with output.progress("Exporting", None) as step:
        for count, lines in _pages(client, after):
            target.write(lines)
            written += count
            step(count)
    return written


def _pages(client: Dibs, after: int) -> Iterator[tuple[int, bytes]]:
    """Entries as JSON lines, a page at a time, and how many."""
    from msgspec.json import Encoder

    encode = Encoder().encode_lines
    while page := client.history_after(after):
        yield len(page), encode(page)
        after = page[-1].id
