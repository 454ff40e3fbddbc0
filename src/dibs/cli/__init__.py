"""The command line: tables for people, JSON for scripts, and an exit code that says how it went.

Modules of the library and of rich are imported where they are used, so that --help and completion answer at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dibs.cli import (
    admin,
    dead,
    demo,
    enqueue,
    history,
    keys,
    queues,
    retention,
    schedules,
    server,
    tasks,
    top,
    types,
    verify,
    worker,
    workers,
    workflows,
)
from dibs.cli.errors import run
from dibs.cli.options import Json, Url
from dibs.version import __version__

app = typer.Typer(
    name="dibs",
    help="A durable task queue: each task is claimed by exactly one worker.",
    rich_markup_mode=None,  # rich would take longer to import than everything else that --help needs
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 refused or found wrong, 2 wrong usage, 3 no store that can be reached and trusted.",
)

app.command("demo")(demo.demo)
app.command("server")(server.server)
app.command("worker")(worker.worker)
app.command("enqueue")(enqueue.enqueue)
app.add_typer(tasks.app, name="tasks")
app.add_typer(dead.app, name="dead")
app.add_typer(types.app, name="types")
app.add_typer(workflows.app, name="workflows")
app.add_typer(queues.app, name="queues")
app.add_typer(schedules.app, name="schedules")
app.add_typer(retention.app, name="retention")
app.add_typer(keys.app, name="keys")
app.add_typer(history.app, name="history")
app.command("workers")(workers.list_workers)
app.command("top")(top.top)
app.command("upkeep")(admin.upkeep)
app.command("migrate")(admin.migrate)
app.command("doctor")(admin.doctor)
app.command("verify")(verify.verify)


def main() -> None:
    """The script `dibs`."""
    sys.exit(run(app, sys.argv[1:]))


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"dibs {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    url: Url = None,
    as_json: Json = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """A durable task queue: each task is claimed by exactly one worker."""
