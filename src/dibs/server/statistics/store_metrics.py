"""Metrics for Prometheus: gauges read from the database, equal in every server process, and the counters of the server
processes.

To add a gauge, add a function to FAMILIES that converts a snapshot to a metric family. Counters are defined in
`dibs.observe`. A family has at most MAX_QUEUES queues.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric

from dibs.model.limit import Limit
from dibs.model.registry import WorkerInfo, WorkerState
from dibs.model.schedule import Schedule
from dibs.model.statistics import DatabaseHealth, Percentiles
from dibs.model.task import FINAL, State
from dibs.model.workflow import WorkflowState
from dibs.observe import sharing
from dibs.observe.exposition import build_info, counted, render
from dibs.observe.instruments import OTHER
from dibs.server.statistics.queue_depths import QueueDepths, VisibleQueues

CACHE_SECONDS = 1.0
"""Minimum seconds for which a snapshot is cached, however often the metrics are scraped."""

CACHE_FACTOR = 20
"""The time for which a snapshot is cached, as a multiple of its duration."""

WORKFLOWS_CACHE_FACTOR = 60
"""The time for which the count of workflows is cached, as a multiple of its duration: it reads all of them."""

MAX_QUEUES = 100
"""Maximum number of queues with their own series, those with the most tasks; the others are summed as `other`."""

MAX_LIMITS = 100
"""Maximum number of limits with their own series, those for which most tasks wait; the others are summed as `other`."""

MetricFamily = Callable[["StoreSnapshot"], Metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSnapshot:
    """The numbers of the store at one time that a caller may see.

    `queues`: at most MAX_QUEUES queues by name, and the rest as `other`. `oldest`: the age of the oldest pending task.
    `paused_types`: at most MAX_QUEUES names. `whole_store`: numbers that belong to no queue; None for a caller that is
    limited to queues.
    """

    queues: Mapping[str, QueueNumbers]
    oldest: float
    finished_last_minute: Mapping[str, int]
    wait: Percentiles
    run: Percentiles
    workers: Sequence[WorkerInfo]
    paused_types: Sequence[str]
    whole_store: StoreNumbers | None


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """Tasks by state, age of the oldest pending task, number of active workers that serve the queue, whether it is
    paused, and tasks in the dead letter."""

    depth: Mapping[str, int]
    oldest: float
    workers: int
    paused: bool
    dead: int = 0


@dataclass(frozen=True, slots=True)
class LimitNumbers:
    """Live claims, the maximum (None without one), waiting tasks, and for how many seconds tasks have waited."""

    used: int
    max: int | None
    waiting: int
    exhausted: float


@dataclass(frozen=True, slots=True)
class StoreNumbers:
    """Numbers that belong to no queue, or that only callers of the whole store see: schedules, workflows by state, the
    health of the database, limits by name, and by how many claims a group of each fair queue is behind its share."""

    schedules: Sequence[Schedule]
    workflows: Mapping[str, int]
    database: DatabaseHealth
    limits: Mapping[str, LimitNumbers]
    claims_behind: Mapping[str, float]


class MetricsPages:
    """The cached pages of metrics, one for each set of queues that a key may see.

    Only gauges of the database are cached. Counters are not: of two processes that share a port, the second one to be
    scraped must not report less than the first one.
    """

    def __init__(self) -> None:
        self._pages: dict[VisibleQueues, _Page] = {}
        self._lock = asyncio.Lock()
        self._workflows: Mapping[str, int] = {}
        self._workflows_until = 0.0

    async def page(self, queues: VisibleQueues, take_snapshot: Callable[[], Awaitable[StoreSnapshot]]) -> bytes:
        """Return the page for a caller that may see these queues. `take_snapshot` reads the numbers for it."""
        async with self._lock:  # concurrent requests share one snapshot
            self._pages = {each: page for each, page in self._pages.items() if not page.is_expired}
            if queues not in self._pages:
                self._pages[queues] = await _make(take_snapshot)
            store = self._pages[queues].text
        if queues is not None:  # counters cover all queues: a key that is limited to queues does not get them
            return store
        return store + await asyncio.to_thread(_counted_page)

    async def workflows(self, count: Callable[[], Awaitable[Mapping[str, int]]]) -> Mapping[str, int]:
        """Return the number of workflows in each state, cached if counting is expensive."""
        began = time.monotonic()
        if began >= self._workflows_until:
            self._workflows = await count()
            ended = time.monotonic()
            self._workflows_until = ended + WORKFLOWS_CACHE_FACTOR * (ended - began)
        return self._workflows


def _counted_page() -> bytes:
    return render(counted(sharing.total()))


@dataclass(frozen=True, slots=True)
class _Page:
    text: bytes
    until: float

    @property
    def is_expired(self) -> bool:
        return time.monotonic() >= self.until


async def _make(take_snapshot: Callable[[], Awaitable[StoreSnapshot]]) -> _Page:
    began = time.monotonic()
    snapshot = await take_snapshot()
    text = await asyncio.to_thread(lambda: render(of_store(snapshot)))
    took = time.monotonic() - began
    return _Page(text, time.monotonic() + max(CACHE_SECONDS, CACHE_FACTOR * took))


def by_queue(depths: QueueDepths, names: Sequence[str]) -> dict[str, QueueNumbers]:
    """Return the numbers of these queues, for a snapshot."""
    largest = _largest(depths, names)
    numbers = {name: _numbers(depths, [name]) for name in largest}
    rest = sorted(set(names).difference(largest))
    return {**numbers, OTHER: _numbers(depths, rest)} if rest else numbers


def _largest(depths: QueueDepths, names: Sequence[str]) -> Sequence[str]:
    """Return the queues with the most tasks. Beyond MAX_QUEUES queues, one named `other` belongs to the rest."""
    if len(names) <= MAX_QUEUES:
        return names
    return heapq.nsmallest(MAX_QUEUES, set(names) - {OTHER}, key=lambda name: (-depths.size(name), name))


def _numbers(depths: QueueDepths, names: Sequence[str]) -> QueueNumbers:
    """Return the numbers of one queue, or of several queues together.

    Of several queues, age, workers and pause are those of the worst queue with a pending task, so that an alert on
    `other` covers each of them.
    """
    waiting = [name for name in names if depths.pending(name)] or names
    open_ = [name for name in waiting if name not in depths.paused]
    worst = open_ or waiting
    fewest = min(depths.active_workers.serving(name) for name in worst)
    return QueueNumbers(depths.of(names), depths.oldest(worst) or 0.0, fewest, not open_, depths.dead(names))


def by_limit(limits: Sequence[Limit], now: datetime) -> dict[str, LimitNumbers]:
    """Return the numbers of these limits, for a snapshot. The names beyond MAX_LIMITS are one entry: used and waiting
    are sums, and the time is the longest of all."""
    own = [each for each in limits if each.name != OTHER] if len(limits) > MAX_LIMITS else limits
    largest = heapq.nsmallest(MAX_LIMITS, own, key=lambda limit: (-limit.waiting, -limit.used, limit.name))
    names = {limit.name for limit in largest}
    numbers = {limit.name: _limit_numbers([limit], now) for limit in largest}
    rest = [limit for limit in limits if limit.name not in names]
    return {**numbers, OTHER: _limit_numbers(rest, now)} if rest else numbers


def _limit_numbers(limits: Sequence[Limit], now: datetime) -> LimitNumbers:
    since = [limit.exhausted_since for limit in limits if limit.exhausted_since is not None]
    maxima = [limit.max for limit in limits if limit.max is not None]
    return LimitNumbers(
        used=sum(limit.used for limit in limits),
        max=sum(maxima) if maxima else None,
        waiting=sum(limit.waiting for limit in limits),
        exhausted=max((now - min(since)).total_seconds(), 0.0) if since else 0.0,
    )


def by_fair_queue(fair: Sequence[str], behind: Mapping[str, float]) -> dict[str, float]:
    """Return for each fair queue by how many claims a group is behind, for a snapshot. The queues beyond MAX_QUEUES are
    one entry, with the largest number of them."""
    own = [name for name in fair if name != OTHER] if len(fair) > MAX_QUEUES else fair
    largest = heapq.nsmallest(MAX_QUEUES, own, key=lambda name: (-behind.get(name, 0.0), name))
    numbers = {name: behind.get(name, 0.0) for name in largest}
    rest = [behind.get(name, 0.0) for name in set(fair).difference(largest)]
    return {**numbers, OTHER: max(rest)} if rest else numbers


def of_store(snapshot: StoreSnapshot) -> Iterator[Metric]:
    """Yield all metric families of the database."""
    yield build_info()
    yield from (family(snapshot) for family in FAMILIES)
    if snapshot.whole_store is not None:
        yield from _of_whole_store(snapshot.whole_store)


def _tasks(snapshot: StoreSnapshot) -> Metric:
    family = GaugeMetricFamily("dibs_tasks", "Tasks by queue and state.", labels=["queue", "state"])
    for queue, numbers in snapshot.queues.items():
        for state in State:  # also zeros, so that a series goes down to zero instead of ending
            family.add_metric([queue, state], numbers.depth.get(state, 0))
    return family


def _oldest(snapshot: StoreSnapshot) -> Metric:
    about = "How long the oldest pending task has waited."
    return GaugeMetricFamily("dibs_oldest_pending_age_seconds", about, snapshot.oldest)


def _oldest_by_queue(snapshot: StoreSnapshot) -> Metric:
    about = "How long the oldest pending task of the queue has waited."
    return _by_queue("dibs_queue_oldest_pending_age_seconds", about, snapshot, lambda numbers: numbers.oldest)


def _dead_letter(snapshot: StoreSnapshot) -> Metric:
    about = "Tasks in the dead letter, by queue: failed, and neither ignored by their workflow nor discarded."
    return _by_queue("dibs_dead_letter_tasks", about, snapshot, lambda numbers: numbers.dead)


def _queue_workers(snapshot: StoreSnapshot) -> Metric:
    about = "Live workers that serve the queue."
    return _by_queue("dibs_queue_workers", about, snapshot, lambda numbers: numbers.workers)


def _paused(snapshot: StoreSnapshot) -> Metric:
    about = "1 if the queue is paused."
    return _by_queue("dibs_queue_paused", about, snapshot, lambda numbers: numbers.paused)


def _paused_types(snapshot: StoreSnapshot) -> Metric:
    family = GaugeMetricFamily("dibs_task_type_paused", "1 for each paused task type.", labels=["task_type"])
    for name in snapshot.paused_types:
        family.add_metric([name], 1)
    return family


def _by_queue(name: str, about: str, snapshot: StoreSnapshot, value: Callable[[QueueNumbers], float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["queue"])
    for queue, numbers in snapshot.queues.items():
        family.add_metric([queue], value(numbers))
    return family


def _finished(snapshot: StoreSnapshot) -> Metric:
    about = "Tasks that were finished within the last minute, by the state they ended in."
    return _by_state("dibs_finished_tasks_last_minute", about, sorted(FINAL), snapshot.finished_last_minute)


def _waits(snapshot: StoreSnapshot) -> Metric:
    about = "Seconds from due to claimed, over the last 1,000 completed tasks."
    return _quantiles("dibs_task_wait_seconds", about, snapshot.wait)


def _runs(snapshot: StoreSnapshot) -> Metric:
    about = "Seconds from claimed to completed, over the last 1,000 completed tasks."
    return _quantiles("dibs_task_run_seconds", about, snapshot.run)


def _quantiles(name: str, about: str, values: Percentiles) -> Metric:
    family = Metric(name, about, "summary")
    for quantile, value in (("0.5", values.p50), ("0.95", values.p95), ("0.99", values.p99)):
        if value is not None:  # no task has completed yet
            family.add_sample(name, {"quantile": quantile}, value)
    return family


def _workers(snapshot: StoreSnapshot) -> Metric:
    counts = Counter(str(worker.state) for worker in snapshot.workers)
    return _by_state("dibs_workers", "Workers by state.", WorkerState, counts)


def _of_whole_store(whole_store: StoreNumbers) -> Iterator[Metric]:
    schedules = Counter(schedule.state for schedule in whole_store.schedules)
    yield _by_state("dibs_schedules", "Schedules by state.", ("enabled", "disabled", "ended"), schedules)
    yield _by_state("dibs_workflows", "Workflows by state.", WorkflowState, whole_store.workflows)
    yield from _of_limits(whole_store.limits)
    about = "Claims that the group of a fair queue which is furthest behind its share has missed."
    yield _labelled("dibs_fair_queue_claims_behind", about, "queue", whole_store.claims_behind)
    yield GaugeMetricFamily("dibs_store_size_bytes", "Bytes that the tables of dibs take.", whole_store.database.size)
    if whole_store.database.wal_size is not None:
        about = "Bytes of SQLite's write-ahead log, which grows while a reader holds an old state."
        yield GaugeMetricFamily("dibs_sqlite_wal_size_bytes", about, whole_store.database.wal_size)
    if whole_store.database.oldest_transaction is not None:
        about = "How long the oldest transaction has been open, which keeps PostgreSQL from cleaning up."
        yield GaugeMetricFamily(
            "dibs_postgres_oldest_transaction_age_seconds", about, whole_store.database.oldest_transaction
        )


def _of_limits(limits: Mapping[str, LimitNumbers]) -> Iterator[Metric]:
    used = {name: numbers.used for name, numbers in limits.items()}
    yield _labelled("dibs_limit_used", "Live claims that count towards the limit, of all groups.", "limit", used)
    maxima = {name: numbers.max for name, numbers in limits.items() if numbers.max is not None}
    about = "Live claims that the limit allows, each group of a limit per group; none for a limit that is only a rate."
    yield _labelled("dibs_limit_max", about, "limit", maxima)
    waiting = {name: numbers.waiting for name, numbers in limits.items()}
    yield _labelled("dibs_limit_waiting", "Pending tasks to which the limit applies.", "limit", waiting)
    about = "For how long claims have found the limit used up while tasks wait for it."
    exhausted = {name: numbers.exhausted for name, numbers in limits.items()}
    yield _labelled("dibs_limit_exhausted_seconds", about, "limit", exhausted)


def _labelled(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _by_state(name: str, about: str, states: Iterable[str], counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["state"])
    for state in states:
        family.add_metric([state], counts.get(state, 0))
    return family


FAMILIES: tuple[MetricFamily, ...] = (
    _tasks,
    _oldest,
    _oldest_by_queue,
    _dead_letter,
    _queue_workers,
    _paused,
    _paused_types,
    _finished,
    _waits,
    _runs,
    _workers,
)
