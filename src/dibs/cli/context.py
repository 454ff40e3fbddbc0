"""The context of one command: the store that it uses and the output that it prints to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from dibs.cli.output import Output
from dibs.errors import SchemaMissing, StoreUnavailable

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
        raise SchemaMissing(error.message, hint="Run `dibs migrate` with the same --url first.") from None


def command_context(ctx: typer.Context, url: str | None, as_json: bool) -> CommandContext:
    """Combine the options before and after the command name; an option after the name takes precedence."""
    before = ctx.find_root().params
    return CommandContext(url or before.get("url"), as_json or bool(before.get("as_json")))


class CommandContext:
    """The URL of the store and the output of one command."""

    def __init__(self, url: str | None, as_json: bool) -> None:
        self.url = url or os.environ.get("DIBS_URL") or DEFAULT_URL
        self.output = Output(as_json)

    def open(self, *, create: bool = False) -> Dibs:
        """Open a client. Without `create` the store must exist and be migrated: reading must not create a store."""
        from dibs.client import Dibs

        if not create:
            self._refuse_if_missing()
        return Dibs(self.url, migrate=create)

    def _refuse_if_missing(self) -> None:
        from dibs.store.open import sqlite_file

        path = sqlite_file(self.url)
        if path is not None and not path.exists():
            raise StoreUnavailable(
                f"The file {path} does not exist.",
                hint="Create it with `dibs enqueue` or `dibs migrate`, or name another store with --url or DIBS_URL.",
            )
