"""`dibs queues`: how deep they are, and which of them are paused."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import opened
from dibs.cli.options import STATES, Json, Url, complete_queue
from dibs.cli.output import Column
from dibs.errors import NotAllowed

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.registry import QueueInfo

app = typer.Typer(help="Look at queues, pause and resume them.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = (
    Column("queue", stretch=True),
    Column("", by_state=True),
    *(Column(state, right=True) for state in STATES),
)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=complete_queue)]


@app.command("list")
def list_queues(ctx: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """List the queues with their depth by state."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.admin import Queues

        queues = client.queues()
        if output.as_json:
            output.answer(Queues.from_model(queues))
        elif queues:
            output.table(COLUMNS, [row(queue) for queue in queues])
        else:
            output.note("No queues.")


def row(queue: QueueInfo) -> tuple[object, ...]:
    """A queue in the columns of a list."""
    return queue.name, "paused" if queue.paused else "", *(queue.depth.get(state, 0) for state in STATES)


@app.command("pause")
def pause(ctx: typer.Context, queue: Name, url: Url = None, as_json: Json = False) -> None:
    """Let nobody claim from a queue; running tasks go on."""
    with opened(ctx, url, as_json) as (client, output):
        others = None if output.as_json else _others(client, queue)
        client.pause(queue)
        output.say(f"The queue {text.line(queue)} is paused.")
        if others is not None:
            listed = f" Queues with tasks: {text.shorten(text.line(', '.join(others)), 200)}." if others else ""
            output.note(f"note: No task, worker or schedule names the queue {text.line(queue)}.{listed}")
        output.answer({"success": True, "queue": queue, "paused": True})


def _others(client: Dibs, queue: str) -> list[str] | None:
    """The queues that hold tasks, if nothing names this one; None if something does, or the key may not look.

    A queue is paused even if nothing names it: it may be paused before its first task comes.
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
def resume(ctx: typer.Context, queue: Name, url: Url = None, as_json: Json = False) -> None:
    """Let a queue be claimed from again."""
    with opened(ctx, url, as_json) as (client, output):
        paused = output.as_json or any(each.paused for each in client.queues() if each.name == queue)
        client.resume(queue)
        output.say(f"The queue {text.line(queue)} is open.")
        if not paused:
            output.note(f"note: The queue {text.line(queue)} was not paused.")
        output.answer({"success": True, "queue": queue, "paused": False})
