"""`manage.py dibs`: the command line of dibs, on the store of the project."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from dibs.django.configuration import location
from dibs.django.databases import url_of
from dibs.django.project_store import migrate_hint
from dibs.exit_codes import WRONG_USAGE

PROGRAM = "dibs.django.project"
OF_DJANGO = ("--settings", "--pythonpath")
"""Options of every management command. Django has read them before the command runs."""


class Command(BaseCommand):
    """Runs a command of dibs with Django set up: worker, top, tasks, dead and so on."""

    help = "Run a command of dibs on the store of this project: worker, top, tasks, dead, …"
    requires_system_checks: Sequence[str] = []

    def add_arguments(self, parser: Any) -> None:
        """See BaseCommand: for `call_command("dibs", "tasks", "list")`."""
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command line and exit: its options are those of dibs, not those of Django."""
        try:
            code = self._run(without_options_of_django(argv[2:]))
        except (ImproperlyConfigured, CommandError) as error:  # a mistake in the settings needs no traceback
            self.stderr.write(f"error: {error}")
            code = WRONG_USAGE
        sys.exit(code)

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """See BaseCommand: `manage.py help dibs`."""
        self._run(["--help"])

    def handle(self, *args: Any, arguments: Sequence[str] = (), **options: Any) -> None:
        """See BaseCommand."""
        if code := self._run(list(arguments)):
            raise CommandError(f"`dibs {' '.join(arguments)}` failed.", returncode=code)

    def _run(self, arguments: list[str]) -> int:
        from dibs.cli import app
        from dibs.cli.context import ProjectContext
        from dibs.cli.errors import run

        place = _place_of_worker(arguments)
        if place is not None:
            self.check()
            _inherit_path()
            arguments = [*arguments[: place + 1], PROGRAM, *arguments[place + 1 :]]
        where = location()
        own_tables = where.database is None
        project = ProjectContext("manage.py dibs", _url, where.api_key, migrate_hint(), may_migrate=own_tables)
        return run(app, arguments, project)


def _url() -> str:
    where = location()
    return where.url or "" if where.database is None else url_of(where.database)


def without_options_of_django(arguments: Sequence[str]) -> list[str]:
    """The arguments without --settings and --pythonpath, before or after the name of a command."""
    kept: list[str] = []
    left = iter(arguments)
    for each in left:
        if each in OF_DJANGO:
            next(left, None)
        elif not each.startswith(tuple(f"{option}=" for option in OF_DJANGO)):
            kept.append(each)
    return kept


def _place_of_worker(arguments: Sequence[str]) -> int | None:
    """The index of the word `worker` if it is the command; None for another command, and for a request for help."""
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        place += 2 if arguments[place] == "--url" else 1
    asks = place < len(arguments) and arguments[place] == "worker"
    return place if asks and not {"-h", "--help"} & set(arguments) else None


def _inherit_path() -> None:
    """Let the processes of a supervisor find the project, wherever manage.py was started."""
    folders = [sys.path[0], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, folders)))
