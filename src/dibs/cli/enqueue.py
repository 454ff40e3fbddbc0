"""`dibs enqueue`: store a task from the shell."""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import opened
from dibs.cli.options import Json, Url, complete_queue, complete_type, given
from dibs.cli.output import Output
from dibs.errors import DibsError, InvalidValue

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.task import Task


def enqueue(
    ctx: typer.Context,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="What to run.", autocompletion=complete_type)],
    params: Annotated[
        str, typer.Argument(metavar="[PARAMS_JSON]", help="A JSON object; - reads it from stdin.")
    ] = "{}",
    *,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="QUEUE", help="Default: default.", autocompletion=complete_queue)
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", metavar="N", help="Higher first; default: 0.")] = None,
    delay: Annotated[
        float | None, typer.Option("--delay", metavar="SECONDS", help="Let nobody claim it before.")
    ] = None,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="The same as a time: 2030-01-31T08:00:00Z.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The same key again gives the same task.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="Default: 3.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="The longest one attempt may take.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Store a task."""
    options = given(
        queue=queue,
        priority=priority,
        delay=delay,
        run_at=None if run_at is None else read_moment(run_at),
        key=key,
        max_attempts=max_attempts,
        timeout=timeout,
    )
    read = read_params(params)
    with opened(ctx, url, as_json, create=True) as (app, output):
        from dibs.wire.tasks import Created

        task = app.enqueue(type, read, **options)
        known = " It was there already, under the same key." if task.deduplicated else ""
        output.say(f"Task {task.id} of type {text.line(task.type)} is {task.state}.{known}")
        output.answer(Created.from_model(task))
        if not (output.as_json or task.finished):
            _note_if_unserved(app, output, task)


def _note_if_unserved(client: Dibs, output: Output, task: Task) -> None:
    """A task that no live worker serves may be one whose type is misspelled."""
    from dibs.model.registry import WorkerState

    with contextlib.suppress(DibsError):  # the task is stored; a key that may only enqueue does not see workers
        if not any(worker.state is WorkerState.ACTIVE and worker.serves(task) for worker in client.workers()):
            output.note(f"note: No live worker serves queue {task.queue!r} and type {task.type!r}.")


def read_params(given: str) -> dict[str, Any]:
    """The JSON object of an argument, or of standard input for `-`."""
    content = sys.stdin.buffer.read().decode(errors="surrogateescape") if given == "-" else given
    return read_object(content, "The params", _QUOTES)


def read_value(written: str, what: str) -> Any:
    """The JSON value of an argument, or of standard input for `-`."""
    content = sys.stdin.buffer.read().decode(errors="surrogateescape") if written == "-" else written
    return _read_json(content, what, """Write JSON: null, 7, '"text"', '{"width": 800}'.""")


def read_object(content: str, what: str, hint: str) -> dict[str, Any]:
    """A JSON object, or what is wrong with it and where. `hint`: for text that is no JSON."""
    read = _read_json(content, what, hint)
    if not isinstance(read, dict):
        raise InvalidValue(f"{what} {_are(what)} JSON, but no object.", hint='For one value use {"value": …}.')
    return read


def _read_json(content: str, what: str, hint: str) -> Any:
    try:
        return json.loads(content, parse_constant=lambda name: _refuse_constant(what, name))
    except InvalidValue:
        raise
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidValue(f"{what} {_are(what)} not JSON: {error.msg} at {place}.", hint=hint) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or a thousand brackets
        raise InvalidValue(f"{what} {_are(what)} not JSON that dibs accepts: {error}.") from None


def _are(what: str) -> str:
    return "are" if what.endswith("s") else "is"


_QUOTES = """Put the object in single quotes and its strings in double quotes: '{"image": 7}'."""


def _refuse_constant(what: str, name: str) -> None:
    contain = "contain" if what.endswith("s") else "contains"
    raise InvalidValue(f"{what} {contain} {name}, which JSON cannot hold.", hint="Use null or a string.")


def read_moment(given: str) -> datetime:
    """A time with its time zone, which is checked later."""
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        hint = "Write it like 2030-01-31T08:00:00Z or 2030-01-31T08:00:00+01:00."
        raise InvalidValue(f"{given!r} is no time.", hint=hint) from None
