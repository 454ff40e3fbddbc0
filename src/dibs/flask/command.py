"""`flask dibs`: the command line of dibs, on the store of the Flask application."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
from flask.cli import ScriptInfo

from dibs.flask.applications import url_of

PROGRAM = "dibs.flask.project"
"""The program of a worker. Processes that a supervisor starts find the application by FLASK_APP as well."""


@click.command(
    "dibs",
    short_help="Run a command of dibs: worker, top, tasks, dead, …",
    add_help_option=False,  # all options are those of dibs
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, arguments: Sequence[str]) -> None:
    """Run a command of dibs on the store of the application, and exit with its code."""
    from dibs.cli import app  # noqa: PLC0415 - only this command needs it
    from dibs.cli.errors import run  # noqa: PLC0415

    found = context.ensure_object(ScriptInfo)
    application = found.load_app()
    if found.app_import_path is not None:
        os.environ["FLASK_APP"] = found.app_import_path
    if key := application.config.get("DIBS_API_KEY"):
        os.environ["DIBS_API_KEY"] = key
    sys.exit(run(app, ["--url", url_of(application), *with_program(arguments)]))


def with_program(arguments: Sequence[str]) -> list[str]:
    """The arguments, with the program of a worker: `worker --burst` becomes `worker dibs.flask.project --burst`."""
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        place += 2 if arguments[place] == "--url" else 1
    program = [PROGRAM] if place < len(arguments) and arguments[place] == "worker" else []
    return [*arguments[: place + 1], *program, *arguments[place + 1 :]] or ["--help"]
