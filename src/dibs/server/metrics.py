"""Metrics for Prometheus: the store in numbers, read from the database, so that every server process says the same;
and how the finalization claims of this process fare, which only it can tell.

A new metric is one more function in FAMILIES: from a snapshot of the store to a family of samples.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from dibs.observe import finalization
from dibs.store.operations.looking import Percentiles, QueueInfo, Stats
from dibs.store.operations.registering import WorkerInfo, WorkerState
from dibs.task import FINAL, State
from dibs.version import __version__

KEPT_FOR = 1.0
"""Seconds for which a page holds: however often it is scraped, the store is read once in this time."""

Queues = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The store at one moment, as far as somebody may see it. `whole`: that is all of it."""

    stats: Stats
    workers: Sequence[WorkerInfo]
    queues: Sequence[QueueInfo]
    whole: bool


class Metrics:
    """The page of metrics, one for each set of queues that a key may see, made anew when it is old."""

    def __init__(self) -> None:
        self._pages: dict[Queues, tuple[float, bytes]] = {}
        self._making = asyncio.Lock()

    async def page(self, queues: Queues, look: Callable[[], Awaitable[Snapshot]]) -> bytes:
        """The page for who may see these queues; `look` takes a snapshot for it."""
        async with self._making:  # of many who ask at once, one looks for all
            now = time.monotonic()
            self._pages = {each: kept for each, kept in self._pages.items() if now - kept[0] < KEPT_FOR}
            if queues not in self._pages:
                self._pages[queues] = (now, render(await look()))
            return self._pages[queues][1]


def render(snapshot: Snapshot) -> bytes:
    """A page in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Collector(snapshot))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            yield family(self._snapshot)
        if self._snapshot.whole:  # the counts of a process do not tell one queue from another
            yield from _finalization()


def _build_info(_: Snapshot) -> Metric:
    return InfoMetricFamily("dibs_build", "The dibs that answers.", {"version": __version__})


def _tasks(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily("dibs_tasks", "Tasks by queue and state.", labels=["queue", "state"])
    for queue in snapshot.queues:
        for state in State:  # also where there are none, so that a line goes down to zero and does not break off
            family.add_metric([queue.name, state], queue.depth.get(state, 0))
    return family


def _oldest(snapshot: Snapshot) -> Metric:
    age = snapshot.stats.oldest_pending_age or 0.0
    return GaugeMetricFamily("dibs_oldest_pending_age_seconds", "How long the oldest pending task has waited.", age)


def _finished(snapshot: Snapshot) -> Metric:
    about = "Tasks that were finished within the last minute, by the state they ended in."
    family = GaugeMetricFamily("dibs_finished_tasks_last_minute", about, labels=["state"])
    for state in sorted(FINAL):
        family.add_metric([state], snapshot.stats.finished_last_minute.get(state, 0))
    return family


def _waits(snapshot: Snapshot) -> Metric:
    about = "Seconds from due to claimed, over the last 1,000 completed tasks."
    return _quantiles("dibs_task_wait_seconds", about, snapshot.stats.wait)


def _runs(snapshot: Snapshot) -> Metric:
    about = "Seconds from claimed to completed, over the last 1,000 completed tasks."
    return _quantiles("dibs_task_run_seconds", about, snapshot.stats.run)


def _quantiles(name: str, about: str, values: Percentiles) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["quantile"])
    for quantile, value in (("0.5", values.p50), ("0.95", values.p95), ("0.99", values.p99)):
        if value is not None:  # nothing has completed yet
            family.add_metric([quantile], value)
    return family


def _workers(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily("dibs_workers", "Workers by whether they can be counted on.", labels=["state"])
    counts = Counter(worker.state for worker in snapshot.workers)
    for state in WorkerState:
        family.add_metric([state], counts[state])
    return family


def _paused(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily("dibs_queue_paused", "1 where nobody may claim from the queue.", labels=["queue"])
    for queue in snapshot.queues:
        family.add_metric([queue.name], int(queue.paused))
    return family


def _finalization() -> Iterator[Metric]:
    for histogram in finalization.histograms():
        buckets, seconds = histogram.read()
        yield HistogramMetricFamily(histogram.name, histogram.about, buckets, seconds)
    for counter in finalization.counters():
        family = CounterMetricFamily(counter.name, counter.about, labels=[counter.label] if counter.label else [])
        for value, count in counter.read():
            family.add_metric([value] if counter.label else [], count)
        yield family


FAMILIES: tuple[Callable[[Snapshot], Metric], ...] = (
    _build_info,
    _tasks,
    _oldest,
    _finished,
    _waits,
    _runs,
    _workers,
    _paused,
)
