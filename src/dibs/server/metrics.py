"""Metrics for Prometheus: the store in numbers, read from the database, so that every server process says the same;
and what the processes of this server have counted themselves.

A new metric of the store is one more function in FAMILIES: from a snapshot to a family of samples. What is counted
stands in `dibs.observe`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric

from dibs.observe import sharing
from dibs.observe.page import build_info, counted, render
from dibs.schedule import Schedule
from dibs.step import WorkflowState
from dibs.store.operations.looking import Percentiles
from dibs.store.operations.registering import WorkerInfo, WorkerState
from dibs.store.vitals import Vitals
from dibs.task import FINAL, State

KEPT_FOR = 1.0
"""Seconds for which a snapshot holds: however often it is scraped, the store is read once in this time."""

REST = 20
"""Times as long as a snapshot took, for which it holds: one that takes long is taken more rarely."""

LONG_REST = 60
"""Times as long as counting the workflows took, for which their count holds: it reads all of them."""

Queues = tuple[str, ...] | None
Family = Callable[["Snapshot"], Metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The store at one moment, as far as somebody may see it: the one place where the numbers of the database enter.

    `depth`: tasks by queue and state. `oldest`: by queue, for how long its oldest pending task has waited. `paused`: by
    queue. `house`: what concerns the whole store; None for who may see some queues only.
    """

    depth: Mapping[str, Mapping[str, int]]
    oldest: Mapping[str, float]
    paused: Mapping[str, bool]
    finished_last_minute: Mapping[str, int]
    wait: Percentiles
    run: Percentiles
    workers: Sequence[WorkerInfo]
    house: House | None


@dataclass(frozen=True, slots=True)
class House:
    """What belongs to no queue: schedules, workflows by state, and the vital signs of the database."""

    schedules: Sequence[Schedule]
    workflows: Mapping[str, int]
    vitals: Vitals


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
        return store + render(counted(await asyncio.to_thread(sharing.total)))

    async def workflows(self, count: Callable[[], Awaitable[Mapping[str, int]]]) -> Mapping[str, int]:
        """How many workflows there are in each state, as they were last counted if that was dear."""
        began = time.monotonic()
        if began >= self._workflows_until:
            self._workflows = await count()
            ended = time.monotonic()
            self._workflows_until = ended + LONG_REST * (ended - began)
        return self._workflows


@dataclass(frozen=True, slots=True)
class _Page:
    text: bytes
    until: float

    @property
    def old(self) -> bool:
        return time.monotonic() >= self.until


async def _make(look: Callable[[], Awaitable[Snapshot]]) -> _Page:
    began = time.monotonic()
    text = render(of_store(await look()))
    took = time.monotonic() - began
    return _Page(text, time.monotonic() + max(KEPT_FOR, REST * took))


def of_store(snapshot: Snapshot) -> Iterator[Metric]:
    """Every family that tells of the database."""
    yield build_info()
    yield from (family(snapshot) for family in FAMILIES)
    if snapshot.house is not None:
        yield from _of_house(snapshot.house)


def _tasks(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily("dibs_tasks", "Tasks by queue and state.", labels=["queue", "state"])
    for queue in snapshot.paused:
        for state in State:  # also where there are none, so that a line goes down to zero and does not break off
            family.add_metric([queue, state], snapshot.depth.get(queue, {}).get(state, 0))
    return family


def _oldest(snapshot: Snapshot) -> Metric:
    age = max(snapshot.oldest.values(), default=0.0)
    return GaugeMetricFamily("dibs_oldest_pending_age_seconds", "How long the oldest pending task has waited.", age)


def _oldest_by_queue(snapshot: Snapshot) -> Metric:
    about = "How long the oldest pending task of the queue has waited."
    ages = {queue: snapshot.oldest.get(queue, 0.0) for queue in snapshot.paused}
    return _by_queue("dibs_queue_oldest_pending_age_seconds", about, ages)


def _dead_letter(snapshot: Snapshot) -> Metric:
    failed = {queue: snapshot.depth.get(queue, {}).get(State.FAILED, 0) for queue in snapshot.paused}
    return _by_queue("dibs_dead_letter_tasks", "Tasks in the dead letter, by queue.", failed)


def _queue_workers(snapshot: Snapshot) -> Metric:
    live = [worker for worker in snapshot.workers if worker.state is WorkerState.ACTIVE]
    serving = {queue: sum(_serves(worker, queue) for worker in live) for queue in snapshot.paused}
    return _by_queue("dibs_queue_workers", "Live workers that serve the queue.", serving)


def _serves(worker: WorkerInfo, queue: str) -> bool:
    return worker.queues is None or queue in worker.queues


def _paused(snapshot: Snapshot) -> Metric:
    return _by_queue("dibs_queue_paused", "1 where nobody may claim from the queue.", snapshot.paused)


def _by_queue(name: str, about: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["queue"])
    for queue, value in values.items():
        family.add_metric([queue], value)
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
