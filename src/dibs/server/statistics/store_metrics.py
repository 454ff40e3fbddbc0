"""Metrics for Prometheus: the store in numbers, read from the database, so that every server process says the same;
and what the processes of this server have counted themselves.

A new metric of the store is one more function in FAMILIES: from a snapshot to a family of samples. What is counted
stands in `dibs.observe`. However many queues there are, a family tells no more than NAMED of them apart.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric

from dibs.model.registry import WorkerInfo, WorkerState
from dibs.model.schedule import Schedule
from dibs.model.statistics import DatabaseHealth, Percentiles
from dibs.model.task import FINAL, State
from dibs.model.workflow import WorkflowState
from dibs.observe import sharing
from dibs.observe.exposition import build_info, counted, render
from dibs.observe.instruments import OTHER
from dibs.server.statistics.queue_depths import Board

KEPT_FOR = 1.0
"""Seconds for which a snapshot holds: however often it is scraped, the store is read once in this time."""

REST = 20
"""Times as long as a snapshot took, for which it holds: one that takes long is taken more rarely."""

LONG_REST = 60
"""Times as long as counting the workflows took, for which their count holds: it reads all of them."""

NAMED = 100
"""Queues that are told apart, those that hold the most tasks; the others are one, called `other`."""

Queues = tuple[str, ...] | None
Family = Callable[["Snapshot"], Metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The store at one moment, as far as somebody may see it: the one place where the numbers of the database enter.

    `queues`: at most NAMED of them by name, and those that are left as `other`. `oldest`: how long the oldest pending
    task of all has waited. `house`: what concerns the whole store; None for who may see some queues only.
    """

    queues: Mapping[str, QueueNumbers]
    oldest: float
    finished_last_minute: Mapping[str, int]
    wait: Percentiles
    run: Percentiles
    workers: Sequence[WorkerInfo]
    house: House | None


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """Tasks by state, for how long the oldest pending one has waited, the live workers that serve the queue, and the
    tasks in the dead letter."""

    depth: Mapping[str, int]
    oldest: float
    workers: int
    paused: bool
    dead: int = 0


@dataclass(frozen=True, slots=True)
class House:
    """What belongs to no queue: schedules, workflows by state, and the vital signs of the database."""

    schedules: Sequence[Schedule]
    workflows: Mapping[str, int]
    vitals: DatabaseHealth


class Metrics:
    """The page of metrics, one for each set of queues that a key may see.

    The numbers of the database are kept for a moment. Those that are counted are not: of two processes that share a
    port, the second to be asked must not say less than the first.
    """

    def __init__(self) -> None:
        self._pages: dict[Queues, _Page] = {}
        self._making = asyncio.Lock()
        self._workflows: Mapping[str, int] = {}
        self._workflows_until = 0.0

    async def page(self, queues: Queues, look: Callable[[], Awaitable[Snapshot]]) -> bytes:
        """The page for who may see these queues; `look` takes a snapshot for it."""
        async with self._making:  # of many who ask at once, one looks for all
            self._pages = {each: page for each, page in self._pages.items() if not page.old}
            if queues not in self._pages:
                self._pages[queues] = await _make(look)
            store = self._pages[queues].text
        if queues is not None:  # what is counted does not say whose queues it is about
            return store
        return store + await asyncio.to_thread(_counted_page)

    async def workflows(self, count: Callable[[], Awaitable[Mapping[str, int]]]) -> Mapping[str, int]:
        """How many workflows there are in each state, as they were last counted if that was dear."""
        began = time.monotonic()
        if began >= self._workflows_until:
            self._workflows = await count()
            ended = time.monotonic()
            self._workflows_until = ended + LONG_REST * (ended - began)
        return self._workflows


def _counted_page() -> bytes:
    return render(counted(sharing.total()))


@dataclass(frozen=True, slots=True)
class _Page:
    text: bytes
    until: float

    @property
    def old(self) -> bool:
        return time.monotonic() >= self.until


async def _make(look: Callable[[], Awaitable[Snapshot]]) -> _Page:
    began = time.monotonic()
    snapshot = await look()
    text = await asyncio.to_thread(lambda: render(of_store(snapshot)))
    took = time.monotonic() - began
    return _Page(text, time.monotonic() + max(KEPT_FOR, REST * took))


def by_queue(board: Board, names: Sequence[str]) -> dict[str, QueueNumbers]:
    """The numbers of these queues, for a snapshot."""
    named = _named(board, names)
    numbers = {name: _numbers(board, [name]) for name in named}
    rest = sorted(set(names).difference(named))
    return {**numbers, OTHER: _numbers(board, rest)} if rest else numbers


def _named(board: Board, names: Sequence[str]) -> Sequence[str]:
    """The fullest. A queue whose name is `other` is one of the others as soon as there are some."""
    if len(names) <= NAMED:
        return names
    return heapq.nsmallest(NAMED, set(names) - {OTHER}, key=lambda name: (-board.size(name), name))


def _numbers(board: Board, names: Sequence[str]) -> QueueNumbers:
    """Of one queue, or of several as if they were one. Then it is as badly off as the worst of those in which a task
    waits that somebody may claim, so that an alert on it is one on each of them."""
    waiting = [name for name in names if board.pending(name)] or names
    open_ = [name for name in waiting if name not in board.paused]
    worst = open_ or waiting
    fewest = min(board.living.serving(name) for name in worst)
    return QueueNumbers(board.of(names), board.oldest(worst) or 0.0, fewest, not open_, board.dead(names))


def of_store(snapshot: Snapshot) -> Iterator[Metric]:
    """Every family that tells of the database."""
    yield build_info()
    yield from (family(snapshot) for family in FAMILIES)
    if snapshot.house is not None:
        yield from _of_house(snapshot.house)


def _tasks(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily("dibs_tasks", "Tasks by queue and state.", labels=["queue", "state"])
    for queue, numbers in snapshot.queues.items():
        for state in State:  # also where there are none, so that a line goes down to zero and does not break off
            family.add_metric([queue, state], numbers.depth.get(state, 0))
    return family


def _oldest(snapshot: Snapshot) -> Metric:
    about = "How long the oldest pending task has waited."
    return GaugeMetricFamily("dibs_oldest_pending_age_seconds", about, snapshot.oldest)


def _oldest_by_queue(snapshot: Snapshot) -> Metric:
    about = "How long the oldest pending task of the queue has waited."
    return _by_queue("dibs_queue_oldest_pending_age_seconds", about, snapshot, lambda numbers: numbers.oldest)


def _dead_letter(snapshot: Snapshot) -> Metric:
    about = "Tasks in the dead letter, by queue: failed, and neither ignored by their workflow nor discarded."
    return _by_queue("dibs_dead_letter_tasks", about, snapshot, lambda numbers: numbers.dead)


def _queue_workers(snapshot: Snapshot) -> Metric:
    about = "Live workers that serve the queue."
    return _by_queue("dibs_queue_workers", about, snapshot, lambda numbers: numbers.workers)


def _paused(snapshot: Snapshot) -> Metric:
    about = "1 where nobody may claim from the queue."
    return _by_queue("dibs_queue_paused", about, snapshot, lambda numbers: numbers.paused)


def _by_queue(name: str, about: str, snapshot: Snapshot, value: Callable[[QueueNumbers], float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["queue"])
    for queue, numbers in snapshot.queues.items():
        family.add_metric([queue], value(numbers))
    return family


def _finished(snapshot: Snapshot) -> Metric:
    about = "Tasks that were finished within the last minute, by the state they ended in."
    return _by_state("dibs_finished_tasks_last_minute", about, sorted(FINAL), snapshot.finished_last_minute)


def _waits(snapshot: Snapshot) -> Metric:
    about = "Seconds from due to claimed, over the last 1,000 completed tasks."
    return _quantiles("dibs_task_wait_seconds", about, snapshot.wait)


def _runs(snapshot: Snapshot) -> Metric:
    about = "Seconds from claimed to completed, over the last 1,000 completed tasks."
    return _quantiles("dibs_task_run_seconds", about, snapshot.run)


def _quantiles(name: str, about: str, values: Percentiles) -> Metric:
    family = Metric(name, about, "summary")
    for quantile, value in (("0.5", values.p50), ("0.95", values.p95), ("0.99", values.p99)):
        if value is not None:  # nothing has completed yet
            family.add_sample(name, {"quantile": quantile}, value)
    return family


def _workers(snapshot: Snapshot) -> Metric:
    counts = Counter(str(worker.state) for worker in snapshot.workers)
    return _by_state("dibs_workers", "Workers by whether they can be counted on.", WorkerState, counts)


def _of_house(house: House) -> Iterator[Metric]:
    schedules = Counter("enabled" if schedule.enabled else "disabled" for schedule in house.schedules)
    yield _by_state("dibs_schedules", "Schedules by whether they tick.", ("enabled", "disabled"), schedules)
    yield _by_state("dibs_workflows", "Workflows by state.", WorkflowState, house.workflows)
    yield GaugeMetricFamily("dibs_store_size_bytes", "Bytes that the tables of dibs take.", house.vitals.size)
    if house.vitals.wal_size is not None:
        about = "Bytes of SQLite's write-ahead log, which grows while a reader holds an old state."
        yield GaugeMetricFamily("dibs_sqlite_wal_size_bytes", about, house.vitals.wal_size)
    if house.vitals.oldest_transaction is not None:
        about = "How long the oldest transaction has been open, which keeps PostgreSQL from cleaning up."
        yield GaugeMetricFamily("dibs_postgres_oldest_transaction_age_seconds", about, house.vitals.oldest_transaction)


def _by_state(name: str, about: str, states: Iterable[str], counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["state"])
    for state in states:
        family.add_metric([state], counts.get(state, 0))
    return family


FAMILIES: tuple[Family, ...] = (
    _tasks,
    _oldest,
    _oldest_by_queue,
    _dead_letter,
    _queue_workers,
    _paused,
    _finished,
    _waits,
    _runs,
    _workers,
)
