"""The `dibs` command line: its commands print tables for people or JSON for scripts, and return an exit code.

Functions import dibs and rich when they need them, so that --help and shell completion start fast.
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
    limits,
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
from dibs.cli.options import JsonOption, UrlOption
from dibs.version import __version__

app = typer.Typer(
    name="dibs",
    help="A durable task queue: each task is claimed by exactly one worker.",
    rich_markup_mode=None,  # importing rich takes longer than all other imports of --help
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 refused or check failed, 2 wrong usage, 3 the store is unreachable or unusable.",
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
app.add_typer(limits.app, name="limits")
app.add_typer(limits.groups_app, name="groups")
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
    """Run the `dibs` command with the arguments of this process."""
    sys.exit(run(app, sys.argv[1:]))


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"dibs {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    url: UrlOption = None,
    as_json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A durable task queue: each task is claimed by exactly one worker."""
