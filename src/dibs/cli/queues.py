"""`dibs queues`: list, pause and resume queues."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import STATES, JsonOption, UrlOption, complete_queue
from dibs.cli.output import Column
from dibs.errors import NotAllowed

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.registry import QueueInfo

app = typer.Typer(help="List, pause and resume queues.", no_args_is_help=True, rich_markup_mode=None)

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
    return queue.name, "paused" if queue.paused else "", *(queue.depth.get(state, 0) for state in STATES)


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
