"""`dibs types`: the registered task types, with JSON Schemas and defaults, version by version; limits of types."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.enqueue import read_object
from dibs.cli.limits import carried, note_uncounted, origin
from dibs.cli.options import (
    COMPLETION_SAMPLE,
    JsonOption,
    LimitNamesOption,
    NoLimitsOption,
    UrlOption,
    complete_type,
    given,
    limit_names,
)
from dibs.cli.output import Column
from dibs.errors import InvalidValue, NotAllowed, TaskTypeNotFound

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.limit import TypeSettings
    from dibs.model.registry import PausedType, TaskType

app = typer.Typer(
    help="List, show, register, pause and resume task types, and change their limits.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

COLUMNS = (
    Column("type"),
    Column("version", right=True),
    Column("schema"),
    Column("registered (UTC)"),
    Column("paused (UTC)", optional=True),
    Column("defaults", stretch=True),
)
FIELDS = {"name", "schema", "defaults"}

TypeArgument = Annotated[str, typer.Argument(metavar="NAME", help="The task type.", autocompletion=complete_type)]


@app.command("list")
def list_types(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List all versions of all registered task types, and the paused task types."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.admin import TaskTypes

        types = client.list_types()
        if output.as_json:
            output.print_json(TaskTypes.from_model(types))
            return
        registered = {each.name for each in types}
        rows = [_row(each) for each in types]
        rows += [_row_unregistered(each) for each in client.paused_types() if each.name not in registered]
        if rows:
            output.print_table(COLUMNS, rows)
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
    """Show a task type with its JSON Schema, its defaults and its limits."""
    with open_client(ctx, url, as_json) as (client, output):
        settings = client.get_type_settings(name)
        found = _find(client, name, version, settings)
        output.print_fields([("type", text.line(name)), *_registration(found), *_settings(settings)])
        output.print_json(_as_json(found, settings))


def _find(client: Dibs, name: str, version: int | None, settings: TypeSettings) -> TaskType | None:
    """Return the registered type; None for a type that has only limits."""
    try:
        return client.get_type(name, version)
    except TaskTypeNotFound:
        if version is not None or settings.source is None:
            raise
    return None


def _registration(found: TaskType | None) -> Iterator[tuple[str, str]]:
    if found is None:
        yield "registered", "no"
        return
    yield "version", str(found.version)
    yield "registered", f"{text.exact(found.created_at)} UTC, {_SOURCES[found.source]}"
    yield "condition", f"paused since {text.exact(found.paused_at)} UTC" if found.paused_at else "open"
    yield "defaults", text.pretty(found.defaults)
    yield "schema", "none" if found.schema is None else text.pretty(found.schema)


_SOURCES = {"code": "declared in code", "command": "by hand"}


def _settings(settings: TypeSettings) -> Iterator[tuple[str, str]]:
    yield "limits", carried(settings)
    yield "group by", text.line(settings.group_by or "-")
    if settings.source is not None:
        yield from origin(settings)


def _as_json(found: TaskType | None, settings: TypeSettings) -> dict[str, Any]:
    from dibs.wire.admin import TaskType as WireType
    from dibs.wire.limits import TypeSettings as WireSettings

    registered = None if found is None else WireType.from_model(found)
    return {"task_type": registered, "settings": WireSettings.from_model(settings)}


@app.command("set")
def set_type(
    ctx: typer.Context,
    name: TypeArgument,
    *,
    limits: LimitNamesOption = None,
    no_limits: NoLimitsOption = False,
    group_by: Annotated[
        str | None, typer.Option("--group-by", metavar="PARAM", help="The parameter that names the group of a task.")
    ] = None,
    no_group_by: Annotated[bool, typer.Option("--no-group-by", help="No parameter names the group.")] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the limits of a task type. Options that are left out stay as they are.

    The limits override those that code declares, until that declaration changes.
    """
    changes = given(limits=limit_names(limits, no_limits), group_by="" if no_group_by else group_by)
    if not changes or (no_group_by and group_by is not None):
        hint = "Give --limit or --no-limits, and --group-by or --no-group-by."
        raise InvalidValue("No setting is given, or two that exclude each other.", hint=hint)
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.limits import ChangedTypeSettings

        with output.progress_bar("Tasks that obey the settings", None) as step:
            settings = client.set_type(name, **changes, note=step)
        output.print_fields([("type", text.line(name)), *_settings(settings)])
        note_uncounted(client, output, limits or (), type=name)
        output.print_json(ChangedTypeSettings.from_model(settings))


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


@app.command("pause")
def pause(ctx: typer.Context, name: TypeArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Pause a task type: its tasks are not claimed, in any queue; claimed tasks continue."""
    with open_client(ctx, url, as_json) as (client, output):
        others = None if output.as_json else _others(client, name)
        client.pause_type(name)
        output.print(f"Task type {text.line(name)} is paused.")
        if others is not None:
            listed = f" Known types: {text.shorten(text.line(', '.join(others)), 200)}." if others else ""
            output.print_to_stderr(f"note: No task, worker or schedule has the type {text.line(name)}.{listed}")
        output.print_json({"success": True, "task_type": name, "paused": True})


def _others(client: Dibs, name: str) -> list[str] | None:
    """Return the types of the newest tasks and the registered types if nothing has this type; None if something does or
    the API key may not read.

    A type that nothing has is paused as well: it may be paused before its first task is enqueued.
    """
    with contextlib.suppress(NotAllowed):
        registered = {each.name for each in client.list_types()}
        if name in registered or client.get_type_settings(name).source or client.list_tasks(type=name, limit=1):
            return None
        if any(name in (worker.types or ()) for worker in client.workers()):
            return None
        if any(schedule.type == name for schedule in client.schedules()):
            return None
        return sorted(registered | {task.type for task in client.list_tasks(limit=COMPLETION_SAMPLE)})
    return None


@app.command("resume")
def resume(ctx: typer.Context, name: TypeArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Resume a paused task type: its tasks are claimed again, except from paused queues."""
    with open_client(ctx, url, as_json) as (client, output):
        paused = output.as_json or any(each.name == name for each in client.paused_types())
        client.resume_type(name)
        output.print(f"Task type {text.line(name)} is resumed.")
        if not paused:
            output.print_to_stderr(f"note: Task type {text.line(name)} was not paused.")
        output.print_json({"success": True, "task_type": name, "paused": False})


def _row(each: TaskType) -> tuple[object, ...]:
    schema = "no" if each.schema is None else "yes"
    registered, paused = text.exact(each.created_at), text.exact(each.paused_at) if each.paused_at else ""
    return each.name, each.version, schema, registered, paused, text.shorten(text.compact(each.defaults), 200)


def _row_unregistered(each: PausedType) -> tuple[object, ...]:
    return each.name, "-", "-", "-", text.exact(each.paused_at), ""


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
