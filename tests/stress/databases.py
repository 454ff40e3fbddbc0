"""The databases of a run: a new database for each stage, and a server before it if the engine is reached over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from pathlib import Path

from tests.helpers import postgres
from tests.helpers.servers import server_process

Serve = Callable[[str], AbstractContextManager[str]]


class Grounds:
    """One PostgreSQL server for the whole run, started when it is first needed."""

    @contextmanager
    def database(self, engine: str, folder: Path) -> Iterator[str]:
        """The URL of a new database."""
        if not engine.endswith("postgres"):
            yield f"sqlite:///{folder}/dibs.db"
            return
        url = postgres.clone(self._server, self._template)
        yield url  # one that a play broke off with is left, to be looked at
        postgres.drop(self._server, url)

    @cached_property
    def _server(self) -> str:
        os.environ.setdefault("DIBS_TEST_PGDATA", postgres.new_data_folder())
        return postgres.start()

    @cached_property
    def _template(self) -> str:
        return postgres.make_template(self._server)


def serving(engine: str, folder: Path) -> Serve | None:
    """How a server is put before a database; None where clients use the database itself."""
    return partial(_served, folder) if engine.startswith("http") else None


@contextmanager
def _served(folder: Path, database: str) -> Iterator[str]:
    with server_process(database, folder, "--no-keys", "--no-access-log") as server:
        yield server.url
