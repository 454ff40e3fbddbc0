"""What a measurement needs to know of each queue: how to fill it, how to let it go, what its store says at the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import psycopg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench.databases import COUNTS, EVENTS, FILL, Engine, Fill, fill_dibs
from bench.queues.board import Board
from bench.queues.huey_queue import open_huey
from bench.queues.pgqueuer_queue import ENTRYPOINT
from bench.queues.processes import PATIENCE, Door, Workers
from bench.queues.sides import payload
from dibs import Dibs

QUEUE = "default"
NANO = 1_000_000_000


class System(ABC):
    """A queue. `settings` are those that are tried; the first is how it comes, and `usual` one that often wins."""

    name: str
    program: str
    settings: tuple[str, ...]
    usual: str
    at_once: str
    fill: Fill
    stop_with = signal.SIGTERM
    UNFINISHED: str

    def describe(self, setting: str) -> str:
        """The setting, in words."""
        return setting

    @contextlib.contextmanager
    def door(self, url: str) -> Iterator[Door]:
        """How the workers get to the database, for as long as they need it."""
        yield Door(url)

    def hold(self, url: str) -> None:  # noqa: B027 - most need nothing
        """Before the workers start: let them find nothing to do, if the queue can do that."""

    def until_up(self, url: str, workers: Workers) -> None:
        """Wait until the workers are ready to work."""
        workers.wait_until_ready()

    def release(self, url: str, workers: Workers) -> None:
        """Let them begin."""
        workers.start_together()

    @abstractmethod
    def began(self, released: int, board: Board) -> int:
        """The moment at which the clock starts."""

    @abstractmethod
    def check_completed(self, engine: Engine, url: str, tasks: int) -> None:
        """Raise unless the books say that all are completed."""

    @abstractmethod
    def check_enqueued(self, engine: Engine, url: str, tasks: int) -> None:
        """Raise unless so many wait."""

    @contextlib.contextmanager
    def look(self, url: str):  # type: ignore[no-untyped-def]
        """A function that says whether anything is unfinished, on a connection that is open before it matters."""
        connection = _connect(url)
        try:
            yield lambda: bool(connection.execute(self.UNFINISHED).fetchone()[0])
        finally:
            connection.close()


class DibsSystem(System):
    """dibs: the workers come up and register while the queue is paused, and the clock starts before it is resumed."""

    name = "dibs"
    program = "dibs_queue"
    settings = ("def", "async def")
    usual = "def"
    at_once = "threads"
    fill = staticmethod(fill_dibs)
    UNFINISHED = (
        "SELECT EXISTS (SELECT 1 FROM dibs_tasks WHERE state = 'claimed')"
        " OR EXISTS (SELECT 1 FROM dibs_tasks WHERE state = 'pending')"
    )

    def hold(self, url: str) -> None:
        """See System."""
        with Dibs(url) as app:
            app.pause(QUEUE)

    def until_up(self, url: str, workers: Workers) -> None:
        """See System."""
        super().until_up(url, workers)
        workers.start_together()
        with Dibs(url) as app:
            _until(lambda: len(app.workers()) == len(workers), "the workers are registered")

    def release(self, url: str, workers: Workers) -> None:
        """See System."""
        with Dibs(url) as app:
            app.resume(QUEUE)

    def began(self, released: int, board: Board) -> int:
        """See System."""
        return released

    def check_completed(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        states, events = engine.count(url, COUNTS), engine.count(url, EVENTS)
        _must_be({"completed": tasks}, states)
        _must_be(
            {"enqueued": tasks, "completed": tasks}, {name: events.get(name) for name in ("enqueued", "completed")}
        )

    def check_enqueued(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        _must_be({"pending": tasks}, engine.count(url, COUNTS))


class PeerSystem(System):
    """Another queue: its clock starts when it asks for its first task, so that its start-up costs it nothing."""

    def began(self, released: int, board: Board) -> int:
        """See System."""
        return board.first_asked


class HueySystem(PeerSystem):
    """Huey deletes a task before it runs and keeps no books, so its board is all that says what ran."""

    name = "Huey"
    program = "huey_queue"
    settings = ("1", "2", "4")
    usual = "1"
    at_once = "threads"
    stop_with = signal.SIGINT  # lets what runs end
    UNFINISHED = "SELECT EXISTS (SELECT 1 FROM task)"
    WAITING = "SELECT 'waiting', count(*) FROM task"

    def describe(self, setting: str) -> str:
        """See System."""
        return f"{setting} thread{'s' if setting != '1' else ''}"

    @staticmethod
    def fill(url: str, tasks: int) -> None:
        """See System."""
        huey, task = open_huey(url, fsync=False)
        for number in range(tasks):
            task(number)
        huey.storage.close()

    def check_completed(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        _must_be({"waiting": 0}, engine.count(url, self.WAITING))

    def check_enqueued(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        _must_be({"waiting": tasks}, engine.count(url, self.WAITING))


class PgqueuerSystem(PeerSystem):
    """PGQueuer deletes a job when its log says how it ended; that is the durable end."""

    name = "PGQueuer"
    program = "pgqueuer_queue"
    settings = ("1x10", "5x10", "1x100", "1x500")
    usual = "1x100"
    at_once = "coroutines"
    UNFINISHED = "SELECT EXISTS (SELECT 1 FROM pgqueuer)"
    WAITING = "SELECT status::text, count(*) FROM pgqueuer GROUP BY status"
    LOGGED = "SELECT status::text, count(DISTINCT job_id) FROM pgqueuer_log WHERE status = 'successful' GROUP BY status"

    def describe(self, setting: str) -> str:
        """See System."""
        consumers, batch = setting.split("x")
        return f"batch {batch}" if consumers == "1" else f"{consumers} consumers, batch {batch}"

    @staticmethod
    def fill(url: str, tasks: int) -> None:
        """See System."""
        asyncio.run(_fill_pgqueuer(url, tasks))

    def check_completed(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        _must_be({}, engine.count(url, self.WAITING))
        _must_be({"successful": tasks}, engine.count(url, self.LOGGED))

    def check_enqueued(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        _must_be({"queued": tasks}, engine.count(url, self.WAITING))


DIBS = DibsSystem()
PEERS: dict[str, System] = {"SQLite": HueySystem(), "PostgreSQL": PgqueuerSystem()}


async def _fill_pgqueuer(url: str, tasks: int) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for first in range(0, tasks, FILL):
        numbers = range(first, min(first + FILL, tasks))
        await queries.enqueue([ENTRYPOINT] * len(numbers), [payload(n) for n in numbers], [0] * len(numbers))
    await connection.close()


def _connect(url: str):  # type: ignore[no-untyped-def]
    if url.startswith("sqlite:"):
        return sqlite3.connect(Path(url.removeprefix("sqlite:///")))
    return psycopg.connect(url, autocommit=True)


def _until(true: Callable[[], bool], what: str) -> None:
    patience = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > patience:
            raise RuntimeError(f"Waited {PATIENCE:.0f} seconds in vain until {what}.")
        time.sleep(0.02)


def _must_be(wanted: object, found: object) -> None:
    if wanted != found:
        raise RuntimeError(f"The books say {found}; it should be {wanted}.")
