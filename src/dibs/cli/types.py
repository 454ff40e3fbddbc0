"""`dibs types`: the registered task types, with their JSON Schemas and defaults, version by version."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.enqueue import read_object
from dibs.cli.options import JsonOption, UrlOption
from dibs.cli.output import Column
from dibs.errors import InvalidValue

if TYPE_CHECKING:
    from dibs.model.registry import TaskType

app = typer.Typer(help="List, show and register task types.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = (
    Column("type"),
    Column("version", right=True),
    Column("schema"),
    Column("registered (UTC)"),
    Column("defaults", stretch=True),
)
FIELDS = {"name", "schema", "defaults"}


@app.command("list")
def list_types(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List all versions of all registered task types."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.admin import TaskTypes

        types = client.list_types()
        if output.as_json:
            output.print_json(TaskTypes.from_model(types))
        elif types:
            output.print_table(COLUMNS, [_row(each) for each in types])
        else:
            output.print_to_stderr("No task types.")


@app.command("show")
def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The task type.")],
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", help="The version; default: the newest.")
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a task type with its JSON Schema and its defaults."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.admin import OneType

        found = client.get_type(name, version)
        output.print_fields(
            [
                ("type", text.line(found.name)),
                ("version", str(found.version)),
                ("registered", f"{text.exact(found.created_at)} UTC"),
                ("defaults", text.pretty(found.defaults)),
                ("schema", "none" if found.schema is None else text.pretty(found.schema)),
            ]
        )
        output.print_json(OneType.from_model(found))


@app.command("register")
def register(
    ctx: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The type as JSON, as for POST /api/task-types; - reads stdin.")
    ],
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register a task type from a file; a changed schema or changed defaults make a new version."""
    new = _read(file)
    with open_client(ctx, url, as_json, create=True) as (client, output):
        from dibs.wire.admin import RegisteredType

        registered = client.register_type(new["name"], new.get("schema"), new.get("defaults"))
        output.print(f"Task type {text.line(registered.name)}, version {registered.version}, is registered.")
        output.print_json(RegisteredType.from_model(registered))


def _row(each: TaskType) -> tuple[object, ...]:
    schema = "no" if each.schema is None else "yes"
    return each.name, each.version, schema, text.exact(each.created_at), text.shorten(text.compact(each.defaults), 200)


def _read(file: str) -> dict[str, Any]:
    """Read the fields of the file. The store validates their values."""
    hint = 'Write {"name": "resize", "schema": {…}, "defaults": {…}}.'
    new = read_object(_content(file), "The task type", hint)
    if unknown := sorted(set(new) - FIELDS):
        raise InvalidValue(f"The task type has an unknown field {unknown[0]!r}.", hint=hint)
    if "name" not in new:
        raise InvalidValue("The task type has no name.", hint=hint)
    if not isinstance(new.get("defaults"), dict | None):
        raise InvalidValue("The defaults are not a JSON object.", hint=hint)
    return new


def _content(file: str) -> str:
    if file == "-":
        return sys.stdin.buffer.read().decode(errors="surrogateescape")
    try:
        return Path(file).read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise InvalidValue(f"Cannot read {file}: {error.strerror}.", hint="Give the path of a JSON file.") from None
