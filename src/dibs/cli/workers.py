"""`dibs workers`: list the workers and the tasks that they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import JsonOption, UrlOption
from dibs.cli.output import Column

if TYPE_CHECKING:
    from dibs.model.registry import WorkerInfo

COLUMNS = (
    Column("worker"),
    Column("state", by_state=True),
    Column("queues"),
    Column("heartbeat"),
    Column("started (UTC)"),
    Column("holds", stretch=True),
)


def list_workers(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List the workers and the tasks that each worker holds."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.admin import Workers

        workers = client.workers()
        if output.as_json:
            output.print_json(Workers.from_model(workers))
        elif workers:
            output.print_table(COLUMNS, [_row(worker) for worker in workers])
        else:
            output.print_to_stderr("No workers.")


def _row(worker: WorkerInfo) -> tuple[object, ...]:
    queues = "all" if worker.queues is None else ",".join(worker.queues_with_bounds)
    heartbeat, started = text.relative(worker.heartbeat_at), text.exact(worker.started_at)
    return worker.id, worker.state.value, queues, heartbeat, started, held(worker)


def held(worker: WorkerInfo) -> str:
    """Return the ids of the first 20 tasks that the worker holds."""
    shown = " ".join(str(task_id) for task_id in worker.holds[:20])
    return f"{shown} and {len(worker.holds) - 20} more" if len(worker.holds) > 20 else shown or "-"
