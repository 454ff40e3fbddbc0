"""What a measurement needs from each queue: how to fill it, how to start it, how to check its store at the end."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from bench.databases import COUNTS, EVENTS, Engine, Fill, fill_dibs, number
from bench.queues.mix import MixTask
from bench.queues.peers import Count, Peer
from bench.queues.processes import PATIENCE, Door, Program, Workers
from bench.queues.run_counts import RunCounts
from bench.queues.venvs import python_for
from bench.scenarios import Verb
from dibs import Dibs

QUEUE = "default"
NANO = 1_000_000_000


class System(ABC):
    """A queue. `settings`, in words, are those with which it drains; the first is how it comes."""

    name: str
    settings: dict[str, str]
    program: Program
    fill: Fill
    unfinished: Count
    mix_unfinished: Count
    mix_lacks: tuple[str, ...] = ()
    processes: tuple[int, ...] = (1, 2)
    waits = True
    polls = False

    def share(self, tasks: int) -> int:
        """The number of tasks for this queue where dibs gets `tasks`: a slow queue gets fewer."""
        return tasks

    def can(self, verb: Verb, batch: int) -> bool:
        """Whether it can enqueue like that."""
        return True

    @contextlib.contextmanager
    def door(self, url: str) -> Iterator[Door]:
        """How the workers get to the database, for as long as they need it."""
        yield Door(url)

    def hold(self, url: str) -> None:  # noqa: B027 - most need nothing
        """Before the workers start: let them find nothing to do, if the queue can do that."""

    def until_up(self, url: str, workers: Workers) -> None:
        """Wait until the workers are ready to work."""
        workers.wait_until_ready()

    @contextlib.contextmanager
    def start_signal(self, url: str, workers: Workers) -> Iterator[Callable[[], None]]:
        """What lets them begin, made ready."""
        yield workers.start_work

    @abstractmethod
    def began(self, released: int, run_counts: RunCounts) -> int:
        """The moment at which the clock starts."""

    @abstractmethod
    def check_completed(self, engine: Engine, url: str, tasks: int) -> None:
        """Raise unless all tasks are completed in the store."""

    @abstractmethod
    def check_mixed(self, engine: Engine, url: str, tasks: int) -> None:
        """Raise unless all tasks of the mix are completed in the store."""

    @abstractmethod
    def check_enqueued(self, engine: Engine, url: str, tasks: int) -> None:
        """Raise unless this number of tasks is waiting."""


class DibsSystem(System):
    """dibs: the workers come up and register while the queue is paused, and the clock starts before it is resumed."""

    name = "dibs"
    program = Program("dibs_queue")
    settings: ClassVar = {"def": "def", "async def": "async def"}
    fill = staticmethod(fill_dibs)
    unfinished = (
        "SELECT EXISTS (SELECT 1 FROM dibs_tasks WHERE state = 'claimed')"
        " OR EXISTS (SELECT 1 FROM dibs_tasks WHERE state = 'pending')"
    )

    mix_unfinished = (
        "SELECT EXISTS (SELECT 1 FROM dibs_tasks WHERE state = 'claimed')"
        " OR EXISTS (SELECT 1 FROM dibs_tasks WHERE state = 'pending')"
        " OR EXISTS (SELECT 1 FROM dibs_tasks WHERE state = 'scheduled')"
    )

    def hold(self, url: str) -> None:
        """See System."""
        with Dibs(url) as app:
            app.pause(QUEUE)

    def until_up(self, url: str, workers: Workers) -> None:
        """See System."""
        super().until_up(url, workers)
        workers.start_work()
        with Dibs(url) as app:
            _until(lambda: len(app.workers()) == len(workers), "the workers are registered")

    @contextlib.contextmanager
    def start_signal(self, url: str, workers: Workers) -> Iterator[Callable[[], None]]:
        """See System. The connection is open before it is used: what a gatekeeper costs is not the workers'."""
        with Dibs(url) as app:
            app.queues()
            yield partial(app.resume, QUEUE)

    def began(self, released: int, run_counts: RunCounts) -> int:
        """See System."""
        return released

    def check_completed(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        states, events = engine.count(url, COUNTS), engine.count(url, EVENTS)
        _must_be({"completed": tasks}, states)
        _must_be(
            {"enqueued": tasks, "completed": tasks}, {name: events.get(name) for name in ("enqueued", "completed")}
        )

    def check_mixed(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        self.check_completed(engine, url, tasks)
        failures = sum(MixTask(number).fails for number in range(tasks))
        _must_be(failures, engine.count(url, EVENTS).get("failed", 0))

    def check_enqueued(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        _must_be({"pending": tasks}, engine.count(url, COUNTS))


class PeerSystem(System):
    """Another queue: its clock starts when it asks for its first task, so that its start-up costs it nothing."""

    def __init__(self, peer: Peer, settings: int | None = None) -> None:
        self.peer = peer
        self.name, self.unfinished = peer.name, peer.unfinished
        self.mix_unfinished = peer.mix.unfinished or peer.unfinished
        self.mix_lacks = peer.mix.lacks
        self.settings = dict(list(peer.settings.items())[:settings])
        self.processes, self.waits, self.polls = peer.processes, peer.waits, peer.polls
        self.program = Program(peer.module, str(python_for(peer.venv, peer.python)), peer.stop_with)

    def share(self, tasks: int) -> int:
        """See System."""
        return max(1, round(tasks * self.peer.share))

    def can(self, verb: Verb, batch: int) -> bool:
        """See System."""
        if verb is Verb.ENQUEUE:
            return batch == 1 or self.peer.bulk
        return self.peer.at_once == ("threads" if verb is Verb.THREADS else "coroutines")

    def fill(self, url: str, tasks: int) -> None:
        """See System."""
        self.program.run("fill", url, tasks)

    def began(self, released: int, run_counts: RunCounts) -> int:
        """See System."""
        return run_counts.first_request

    def check_completed(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        _must_be(0, number(url, self.peer.unfinished))
        if self.peer.completed:
            _must_be(tasks, number(url, self.peer.completed))

    def check_mixed(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        _must_be(0, number(url, self.mix_unfinished))
        if completed := self.peer.mix.completed or self.peer.completed:
            _must_be(tasks, number(url, completed))

    def check_enqueued(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        _must_be(tasks, number(url, self.peer.unfinished))


DIBS = DibsSystem()


def _until(true: Callable[[], bool], what: str) -> None:
    patience = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > patience:
            raise RuntimeError(f"Waited {PATIENCE:.0f} seconds in vain until {what}.")
        time.sleep(0.02)


def _must_be(wanted: object, found: object) -> None:
    if wanted != found:
        raise RuntimeError(f"The books say {found}; it should be {wanted}.")
