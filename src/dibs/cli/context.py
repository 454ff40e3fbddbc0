"""One run of a command: which store it speaks to, and how it answers."""

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
def opened(
    ctx: typer.Context, url: str | None, as_json: bool, *, create: bool = False
) -> Iterator[tuple[Dibs, Output]]:
    """The client and the way to answer, from the options before and after the command."""
    session = begin(ctx, url, as_json)
    try:
        with session.open(create=create) as app:
            yield app, session.output
    except SchemaMissing as error:
        raise SchemaMissing(error.message, hint="Run `dibs migrate` with the same --url first.") from None


def begin(ctx: typer.Context, url: str | None, as_json: bool) -> Session:
    """What both places for options add up to; the later one wins."""
    before = ctx.find_root().params
    return Session(url or before.get("url"), as_json or bool(before.get("as_json")))


class Session:
    """Where the tasks are, and how to answer."""

    def __init__(self, url: str | None, as_json: bool) -> None:
        self.url = url or os.environ.get("DIBS_URL") or DEFAULT_URL
        self.output = Output(as_json)

    def open(self, *, create: bool = False) -> Dibs:
        """The client. Looking at a store must not make one: without `create` it has to be there, and migrated."""
        from dibs.client import Dibs

        if not create:
            self._refuse_if_missing()
        return Dibs(self.url, migrate=create)

    def _refuse_if_missing(self) -> None:
        from dibs.store.open import sqlite_file

        path = sqlite_file(self.url)
        if path is not None and not path.exists():
            raise StoreUnavailable(
                f"There is no file {path}.",
                hint="`dibs enqueue` or `dibs migrate` creates it; --url or DIBS_URL names another store.",
            )
