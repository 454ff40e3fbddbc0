"""`dibs queues`: list, show, pause and resume queues."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import STATES, JsonOption, UrlOption, complete_queue
from dibs.cli.output import Column
from dibs.errors import InvalidValue, NotAllowed

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.registry import QueueInfo

app = typer.Typer(help="List, show, pause and resume queues.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = (
    Column("queue", stretch=True),
    Column("", by_state=True),
    *(Column(state, right=True) for state in STATES),
)

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=complete_queue)]


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
    """Show one queue: its depth by state, whether it is paused, and how far a pause or resume is carried out."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.admin import Queue

        found = next((each for each in client.queues() if each.name == queue), None)
        if found is None:
            raise InvalidValue(
                f"Queue {text.line(queue)} has no task and was never paused.", hint="dibs queues list shows all queues."
            )
        if output.as_json:
            output.print_json(Queue.from_model(found))
            return
        output.print_fields([("queue", text.line(found.name)), ("condition", _condition(found)), *_depths(found)])


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
