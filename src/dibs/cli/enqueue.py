"""`dibs enqueue`: store a task from the shell."""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import JsonOption, UrlOption, complete_limit, complete_queue, complete_type, given
from dibs.cli.output import Output
from dibs.errors import DibsError, InvalidValue

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.task import Task


def enqueue(
    ctx: typer.Context,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The type of the task.", autocompletion=complete_type)],
    params: Annotated[
        str, typer.Argument(metavar="[PARAMS_JSON]", help="A JSON object; - reads it from stdin.")
    ] = "{}",
    *,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="QUEUE", help="Default: default.", autocompletion=complete_queue)
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", metavar="N", help="Higher first; default: 0.")] = None,
    delay: Annotated[
        float | None, typer.Option("--delay", metavar="SECONDS", help="Time until the task can be claimed.")
    ] = None,
    run_at: Annotated[
        str | None,
        typer.Option("--run-at", metavar="TIME", help="Time from which the task can be claimed: 2030-01-31T08:00:00Z."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="KEY", help="Idempotency key: a second enqueue with the same key returns the same task."
        ),
    ] = None,
    key_scope: Annotated[
        str | None,
        typer.Option(
            "--key-scope",
            metavar="SCOPE",
            help="How long the task has its key: always, until_finished or until_started.",
        ),
    ] = None,
    key_for: Annotated[
        float | None,
        typer.Option("--key-for", metavar="SECONDS", help="Time for which the task has its key, even if it is pruned."),
    ] = None,
    on_conflict: Annotated[
        str | None,
        typer.Option("--on-conflict", metavar="RULE", help="If a task has the key: return, keep, raise or replace."),
    ] = None,
    max_delay: Annotated[
        float | None,
        typer.Option("--max-delay", metavar="SECONDS", help="Longest time for which replacements postpone the task."),
    ] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="Default: 3.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Maximum duration of one attempt.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag of the task; up to 20 of them.")
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", metavar="NAME", help="A limit of the task; up to 8 of them.", autocompletion=complete_limit
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="The group, for limits per group and fair queues.")
    ] = None,
    expires_in: Annotated[
        float | None,
        typer.Option("--expires-in", metavar="SECONDS", help="Cancel the task if it was not started after this time."),
    ] = None,
    expires_at: Annotated[
        str | None,
        typer.Option(
            "--expires-at", metavar="TIME", help="Cancel the task if it was not started by then: 2030-01-31T08:00:00Z."
        ),
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a task."""
    options = given(
        queue=queue,
        priority=priority,
        delay=delay,
        run_at=None if run_at is None else read_time(run_at),
        key=key,
        key_scope=key_scope,
        key_for=key_for,
        on_conflict=on_conflict,
        max_delay=max_delay,
        max_attempts=max_attempts,
        timeout=timeout,
        tags=tags or None,
        limits=limits or None,
        group=group,
        expires_in=expires_in,
        expires_at=None if expires_at is None else read_time(expires_at),
    )
    _check_key_options(options)
    read = read_params(params)
    with open_client(ctx, url, as_json, create=True) as (app, output):
        from dibs.wire.tasks import Created

        task = app.enqueue(type, read, **options)
        existed = " It already existed with this key." if task.deduplicated else ""
        existed = " It already existed with this key, and has the new content." if task.replaced else existed
        output.print(f"Task {task.id} of type {text.line(task.type)} is {task.state}.{existed}")
        output.print_json(Created.from_model(task))
        if not (output.as_json or task.finished):
            _note_if_unserved(app, output, task)


def _check_key_options(options: dict[str, Any]) -> None:
    """Refuse options about a key that need another one, by the names that they have on the command line."""
    about_key = [name for name in ("key_scope", "key_for", "on_conflict", "max_delay") if name in options]
    if "key" not in options and about_key:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in about_key)
        message = f"{names} {'is' if len(about_key) == 1 else 'are'} about the key of a task."
        raise InvalidValue(message, hint="Give --key as well.")
    if {"key_scope", "key_for"} <= options.keys():
        raise InvalidValue("--key-scope and --key-for exclude each other.", hint="Give one of them.")
    if "max_delay" in options and (options.get("on_conflict") != "replace" or "delay" not in options):
        message = "--max-delay limits how long replacements can postpone a task."
        raise InvalidValue(message, hint="Give --delay and --on-conflict replace as well.")


def _note_if_unserved(client: Dibs, output: Output, task: Task) -> None:
    """Print a note if no live worker serves the task: its type may be misspelled."""
    from dibs.model.registry import WorkerState

    with contextlib.suppress(
        DibsError
    ):  # the task is stored; an API key with only the scope enqueue cannot list workers
        if not any(worker.state is WorkerState.ACTIVE and worker.serves(task) for worker in client.workers()):
            output.print_to_stderr(f"note: No live worker serves queue {task.queue!r} and type {task.type!r}.")


def read_params(given: str) -> dict[str, Any]:
    """Read a JSON object from an argument, or from standard input for `-`."""
    content = sys.stdin.buffer.read().decode(errors="surrogateescape") if given == "-" else given
    return read_object(content, "The params", _QUOTING_HINT)


def read_value(written: str, what: str) -> Any:
    """Read a JSON value from an argument, or from standard input for `-`."""
    content = sys.stdin.buffer.read().decode(errors="surrogateescape") if written == "-" else written
    return _read_json(content, what, """Write JSON: null, 7, '"text"', '{"width": 800}'.""")


def read_object(content: str, what: str, hint: str) -> dict[str, Any]:
    """Read a JSON object; the error names the position. `hint`: the hint for text that is not JSON."""
    read = _read_json(content, what, hint)
    if not isinstance(read, dict):
        raise InvalidValue(f"{what} {_are(what)} JSON, but not an object.", hint='For one value use {"value": …}.')
    return read


def _read_json(content: str, what: str, hint: str) -> Any:
    try:
        return json.loads(content, parse_constant=lambda name: _refuse_constant(what, name))
    except InvalidValue:
        raise
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidValue(f"{what} {_are(what)} not JSON: {error.msg} at {place}.", hint=hint) from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or a thousand brackets
        raise InvalidValue(f"{what} {_are(what)} not JSON that dibs accepts: {error}.") from None


def _are(what: str) -> str:
    return "are" if what.endswith("s") else "is"


_QUOTING_HINT = """Put the object in single quotes and its strings in double quotes: '{"image": 7}'."""


def _refuse_constant(what: str, name: str) -> None:
    contain = "contain" if what.endswith("s") else "contains"
    raise InvalidValue(f"{what} {contain} {name}, which is not valid in JSON.", hint="Use null or a string.")


def read_time(given: str) -> datetime:
    """Read a time; the client checks that it has a time zone."""
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        hint = "Write it like 2030-01-31T08:00:00Z or 2030-01-31T08:00:00+01:00."
        raise InvalidValue(f"{given!r} is not a valid time.", hint=hint) from None
