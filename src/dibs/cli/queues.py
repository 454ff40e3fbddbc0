"""`dibs queues`: list, show, pause and resume queues, and change their settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.limits import QueueArgument, carried, note_uncounted, origin
from dibs.cli.options import STATES, JsonOption, LimitNamesOption, NoLimitsOption, UrlOption, given, limit_names
from dibs.cli.output import Column
from dibs.errors import InvalidValue, NotAllowed

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.limit import QueueSettings
    from dibs.model.registry import QueueInfo

app = typer.Typer(
    help="List, show, pause and resume queues, and change their settings.", no_args_is_help=True, rich_markup_mode=None
)

COLUMNS = (
    Column("queue", stretch=True),
    Column("", by_state=True),
    *(Column(state, right=True) for state in STATES),
)


@app.command("list")
def list_queues(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List the queues with their depth by state."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.admin import Queues

        queues = client.queues()
        if output.as_json:
            output.print_json(Queues.from_model(queues))
        elif queues:
            output.print_table(COLUMNS, [row(queue) for queue in queues])
        else:
            output.print_to_stderr("No queues.")


def row(queue: QueueInfo) -> tuple[object, ...]:
    """Return the cells of a queue in a list."""
    return queue.name, queue.condition, *(queue.depth.get(state, 0) for state in STATES)


@app.command("show")
def show(ctx: typer.Context, queue: QueueArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show one queue: its depth by state, its settings, and how far a pause or resume is carried out."""
    with open_client(ctx, url, as_json) as (client, output):
        settings = client.get_queue(queue)
        found = _find(client, queue, settings)
        if output.as_json:
            output.print_json(_as_json(found, settings))
            return
        about = [("queue", text.line(found.name)), ("condition", _condition(found))]
        output.print_fields([*about, *_settings(settings), *_depths(found)])


def _find(client: Dibs, queue: str, settings: QueueSettings) -> QueueInfo:
    """Return the queue, which has no depth if it has only settings."""
    from dibs.model.registry import QueueInfo

    found = next((each for each in client.queues() if each.name == queue), None)
    if found is None and settings.source is None:
        raise InvalidValue(
            f"Queue {text.line(queue)} has no task and no settings, and was never paused.",
            hint="dibs queues list shows all queues.",
        )
    return found or QueueInfo(queue, False, None, {})


def _as_json(queue: QueueInfo, settings: QueueSettings) -> dict[str, Any]:
    import msgspec

    from dibs.wire.admin import Queue
    from dibs.wire.limits import QueueSettings as WireSettings

    return {**msgspec.to_builtins(Queue.from_model(queue)), "settings": WireSettings.from_model(settings)}


def _settings(settings: QueueSettings) -> Iterator[tuple[str, str]]:
    yield "fair", "yes: the groups take turns" if settings.fair else "no"
    yield "limits", carried(settings)
    yield from origin(settings)


def _condition(queue: QueueInfo) -> str:
    """Describe the pause of the queue, and how far upkeep has parked or unparked its tasks."""
    pending = queue.depth.get("pending", 0)
    if queue.paused_at is not None:
        progress = (
            "" if queue.parked == pending else f"; upkeep has parked {queue.parked:,} of {pending:,} pending tasks"
        )
        return f"paused since {text.exact(queue.paused_at)} UTC{progress}"
    if queue.parked:
        return f"resuming: {queue.parked:,} of {pending:,} pending tasks are not claimable yet"
    return "open"


def _depths(queue: QueueInfo) -> list[tuple[str, str]]:
    return [(state, f"{queue.depth.get(state, 0):,}") for state in STATES]


@app.command("set")
def set_queue(
    ctx: typer.Context,
    queue: QueueArgument,
    *,
    fair: Annotated[
        bool | None, typer.Option("--fair/--no-fair", help="The groups of the queue take turns, or not.")
    ] = None,
    limits: LimitNamesOption = None,
    no_limits: NoLimitsOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a queue. Options that are left out stay as they are.

    The settings override those that code declares, until that declaration changes.
    """
    changes = given(fair=fair, limits=limit_names(limits, no_limits))
    if not changes:
        raise InvalidValue("No setting is given.", hint="Give --fair, --no-fair, --limit or --no-limits.")
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.limits import ChangedQueueSettings

        with output.progress_bar("Tasks that obey the settings", None) as step:
            settings = client.set_queue(queue, **changes, note=step)
        output.print_fields([("queue", text.line(queue)), *_settings(settings)])
        note_uncounted(client, output, limits or (), queue=queue)
        output.print_json(ChangedQueueSettings.from_model(settings))


@app.command("pause")
def pause(ctx: typer.Context, queue: QueueArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Pause a queue: its tasks are not claimed; claimed tasks continue."""
    with open_client(ctx, url, as_json) as (client, output):
        others = None if output.as_json else _others(client, queue)
        client.pause(queue)
        output.print(f"Queue {text.line(queue)} is paused.")
        if others is not None:
            listed = f" Queues with tasks: {text.shorten(text.line(', '.join(others)), 200)}." if others else ""
            output.print_to_stderr(f"note: No task, worker or schedule uses queue {text.line(queue)}.{listed}")
        output.print_json({"success": True, "queue": queue, "paused": True})


def _others(client: Dibs, queue: str) -> list[str] | None:
    """Return the queues with tasks if nothing uses this queue; None if something does or the API key may not read.

    A queue that nothing uses is paused as well: it may be paused before its first task is enqueued.
    """
    with contextlib.suppress(NotAllowed):
        if any(queue in (worker.queues or ()) for worker in client.workers()):
            return None
        if any(schedule.queue == queue for schedule in client.schedules()):
            return None
        names = [each.name for each in client.queues() if sum(each.depth.values())]
        return None if queue in names else names
    return None


@app.command("resume")
def resume(ctx: typer.Context, queue: QueueArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Resume a paused queue: its tasks are claimed again."""
    with open_client(ctx, url, as_json) as (client, output):
        paused = output.as_json or any(each.paused for each in client.queues() if each.name == queue)
        client.resume(queue)
        output.print(f"Queue {text.line(queue)} is resumed.")
        if not paused:
            output.print_to_stderr(f"note: Queue {text.line(queue)} was not paused.")
        output.print_json({"success": True, "queue": queue, "paused": False})
