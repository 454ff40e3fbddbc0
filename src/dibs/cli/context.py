"""The context of one command: the store that it uses and the output that it prints to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import typer

from dibs.cli.output import Output
from dibs.errors import InvalidValue, SchemaMissing, StoreUnavailable

if TYPE_CHECKING:
    from dibs.client import Dibs

DEFAULT_URL = "sqlite:///dibs.db"


@contextmanager
def open_client(
    ctx: typer.Context, url: str | None, as_json: bool, *, create: bool = False
) -> Iterator[tuple[Dibs, Output]]:
    """Open the client and the output from the options before and after the command name."""
    context = command_context(ctx, url, as_json)
    try:
        with context.open(create=create) as app:
            yield app, context.output
    except SchemaMissing as error:
        raise SchemaMissing(error.message, hint=context.migrate_hint) from None


class ProjectContext(NamedTuple):
    """The command line inside a project of a framework. `command`: its name, for help texts. `url`: returns the URL of
    the project's store. `may_migrate`: False where the framework makes the tables, as `migrate_hint` says."""

    command: str
    url: Callable[[], str]
    api_key: str | None
    migrate_hint: str
    may_migrate: bool


def command_context(ctx: typer.Context, url: str | None, as_json: bool) -> CommandContext:
    """Combine the options before and after the command name; an option after the name takes precedence."""
    root = ctx.find_root()
    given, before = url or root.params.get("url"), bool(root.params.get("as_json"))
    project = root.obj if isinstance(root.obj, ProjectContext) and given is None else None
    return CommandContext(given, as_json or before, project)


class CommandContext:
    """The URL of the store and the output of one command. `project`: that of the store, unless a URL is given."""

    def __init__(self, url: str | None, as_json: bool, project: ProjectContext | None = None) -> None:
        self._given = url
        self._project = project
        self.output = Output(as_json)

    @property
    def url(self) -> str:
        """The URL of the store."""
        if self._project is not None:
            return self._project.url()
        return self._given or os.environ.get("DIBS_URL") or DEFAULT_URL

    @property
    def migrate_hint(self) -> str:
        """How the tables of the store are made."""
        return "Run `dibs migrate` with the same --url first." if self._project is None else self._project.migrate_hint

    def open(self, *, create: bool = False) -> Dibs:
        """Open a client. Without `create` the store must exist and be migrated: reading must not create a store."""
        from dibs.client import Dibs

        if not create:
            self._refuse_if_missing()
        if self._project is None:
            return Dibs(self.url, migrate=create)
        return Dibs(self.url, api_key=self._project.api_key, migrate=create and self._project.may_migrate)

    def check_migrated(self) -> None:
        """Raise SchemaMissing if the framework of the project has not made the tables yet: a server would make them."""
        if self._project is None or self._project.may_migrate:
            return
        try:
            with self.open() as client:
                client.queues()
        except SchemaMissing as error:
            raise SchemaMissing(error.message, hint=self.migrate_hint) from None

    def refuse_to_migrate(self) -> None:
        """Raise InvalidValue if the framework of the project makes the tables."""
        if self._project is not None and not self._project.may_migrate:
            raise InvalidValue("The tables are in a database of the project.", hint=self._project.migrate_hint)

    def _refuse_if_missing(self) -> None:
        from dibs.store.open import sqlite_file

        path = sqlite_file(self.url)
        if path is not None and not path.exists():
            raise StoreUnavailable(
                f"The file {path} does not exist.",
                hint="Create it with `dibs enqueue` or `dibs migrate`, or name another store with --url or DIBS_URL."
                if self._project is None
                else self.migrate_hint,
            )
