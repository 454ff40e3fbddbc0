"""Live statistics: queue depths, rates and latencies, read once for all open pages, with a bounded load on the store.

Counting a million tasks takes a second; counting the transitions since the last read takes milliseconds. So tasks are
counted rarely, and transitions are added. The load is at most about a twentieth of a core: after each read the reader
pauses twenty times as long as the read took. Without an open page it reads every ten seconds, at less than a hundredth
of a core, so that a page that is opened later can show the last quarter of an hour.

Transitions are counted by the database (`changes_since`), from a position that names the gaps in the history. The
reason why the history follower of the event feed is not used here is in `dibs.store.postgres.history_gaps`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from dibs.errors import DibsError, StoreUnavailable
from dibs.model.history import HistoryPosition
from dibs.model.statistics import Latencies, TaskCounts
from dibs.server.statistics.queue_depths import FLOWS, QueueDepths, QueueName, flow_of
from dibs.server.statistics.trends import MINUTE, WINDOWS, ChartPoint, Trends, full_sample, readings_of
from dibs.store.contract import DatabaseStore

logger = logging.getLogger("dibs.server")

INTERVAL = 1.0
"""Seconds between two reads while a page is open and reads are fast."""

PAUSE_FACTOR = 20
"""The pause after a read or a count, as a multiple of its duration."""

IDLE_INTERVAL, IDLE_PAUSE_FACTOR = 10.0, 200
"""The same without an open page: reads and counts take at most half a percent of a core each."""

MAX_PAUSE = 5.0
"""Maximum pause after a read: a longer pause would make the next read more expensive."""

COUNT_TIMEOUT = 0.1
"""Seconds that a read waits for a running count; a longer count continues during the next reads."""

START_DELAY = 1.0
"""Seconds from the start to the first read, so that the first requests are not delayed."""

SEED_MAX_AGE = 300.0
"""Maximum age of the stored sample whose numbers are shown until the first count has ended."""

VIEW_SECONDS = 30.0
"""Seconds for which a page counts as open after it was rendered."""

MAX_GAP = 150.0
"""Seconds since the last read after which tasks are counted again instead of adding transitions."""

PAGE_TIMEOUT = 0.08
"""Seconds that the first page after a pause waits for new numbers."""

WORKERS_INTERVAL, LATENCIES_INTERVAL, FINE_SAMPLE_INTERVAL = 2.0, 5.0, 5.0
RATE_WINDOW = 60.0
"""Seconds over which rates are calculated."""

MAX_SAMPLE_DELAY = 8.0
"""Maximum delay in seconds before an idle server takes the sample of a minute. The delay is random for each server: the
server with the shortest delay takes all samples, and the others need not."""


@dataclass(eq=False, slots=True)
class StatsSubscriber:
    """A subscriber to updates of the statistics."""

    ended: bool = False
    _updated: asyncio.Event = field(default_factory=asyncio.Event)

    def notify(self) -> None:
        """Notify the subscriber of an update."""
        self._updated.set()

    def end(self) -> None:
        """End the subscription."""
        self.ended = True
        self._updated.set()

    async def wait(self, timeout: float) -> bool:
        """Wait for an update; return False after `timeout` seconds or at the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._updated.wait()
        updated = self._updated.is_set() and not self.ended
        self._updated.clear()
        return updated


@dataclass(frozen=True)
class StatsInterval:
    """The events between two reads."""

    until: float
    seconds: float
    flows: dict[QueueName, list[int]]

    @cached_property
    def whole(self) -> list[int]:
        """The events of all queues together."""
        return _sum_flows(self.flows.values())


def _sum_flows(flows: Iterable[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*flows, strict=True)] or [0] * len(FLOWS)


class LiveStats:
    """Reads the statistics for one server process."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self.depths = QueueDepths()
        self.trends = Trends(store)
        self.latencies: Latencies | None = None
        self.reads = self.counts = 0
        """The number of reads and counts."""

        self._subscribers: set[StatsSubscriber] = set()
        self._watched_until = 0.0
        self._wake = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._preloading: asyncio.Task[None] | None = None
        self._position: HistoryPosition | None = None
        self._read_at = self._began_at = self._took = 0.0
        self._counting: asyncio.Task[TaskCounts] | None = None
        self._counted_at = self._counting_took = 0.0
        self._intervals: deque[StatsInterval] = deque()
        self._last = _LastReads()
        self._fine = _FlowTotals()
        self._minute = _FlowTotals()
        self._sampled: int | None = None
        self._delay = random.uniform(0.5, MAX_SAMPLE_DELAY)
        self._prefix = secrets.token_hex(4)

    def start(self) -> None:
        """Start reading."""
        self._task = asyncio.create_task(self._run())
        self._preloading = asyncio.create_task(self._preload())

    def close(self) -> None:
        """End all subscriptions and stop reading."""
        self._closed = True
        self._wake.set()
        _resolve(self._waiting, StoreUnavailable("The server is stopping."))
        for subscriber in self._subscribers:
            subscriber.end()

    async def closed(self) -> None:
        """Wait for the end of the reader."""
        tasks = [task for task in (self._task, self._preloading, self._counting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # For pages and subscribers

    async def for_page(self) -> QueueDepths:
        """Return the queue depths for a page: new ones if they are read fast, otherwise the last ones."""
        was_watched = self.watched
        self._watched_until = time.monotonic() + VIEW_SECONDS
        if not was_watched:
            with contextlib.suppress(TimeoutError, DibsError):
                async with asyncio.timeout(PAGE_TIMEOUT):
                    await self.refreshed()
        return self.depths

    async def refreshed(self) -> QueueDepths:
        """Read the statistics now and return the queue depths. This does not count as an open page."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._wake.set()
        await done
        return self.depths

    async def refresh_workers(self) -> QueueDepths:
        """Read the workers and paused queues now and return the queue depths."""
        self._last.workers = time.monotonic()
        self.depths.update_workers(await self._store.run_async(self._store.statistics.workers_and_pauses()))
        return self.depths

    @contextmanager
    def follow(self) -> Iterator[StatsSubscriber]:
        """Yield a subscriber that is notified of every read until the block ends."""
        subscriber = StatsSubscriber(ended=self._closed)
        self._subscribers.add(subscriber)
        self._wake.set()
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)

    @property
    def watched(self) -> bool:
        """True while a page may be open."""
        return bool(self._subscribers) or time.monotonic() < self._watched_until

    def version(self, queues: Sequence[str] | None = None) -> str:
        """Return a text that changes whenever a page may look different. It is unique to this server."""
        return f"{self._prefix}-{self.depths.version(queues)}"

    @property
    def age(self) -> float:
        """Seconds since the numbers were read; grows while the store does not answer."""
        return time.monotonic() - self._read_at

    def rates(self, queues: Sequence[str] | None = None) -> dict[str, float]:
        """Return the events per second, over the last minute."""
        seconds = sum(interval.seconds for interval in self._intervals)
        totals = _sum_flows(flow for interval in self._intervals for flow in _flows(interval, queues))
        return {name: total / seconds if seconds else 0.0 for name, total in zip(FLOWS, totals, strict=True)}

    async def history(self, window: str, queues: Sequence[str] | None = None) -> list[ChartPoint]:
        """Return the chart points of a window, one of WINDOWS."""
        return await self.trends.points(window, queues, self.depths.at or int(time.time() * 1e6))

    # The reader

    async def _run(self) -> None:
        failing = False
        await self._seed()
        await self._sleep(START_DELAY)
        while not self._closed:
            try:
                await self._round()
                failing = False
            except Exception as error:
                _resolve(self._waiting, StoreUnavailable("The statistics cannot be read now."))
                if not failing:
                    logger.warning(
                        "the statistics cannot be read: %s", error, exc_info=not isinstance(error, DibsError)
                    )
                failing, self._took = True, MAX_PAUSE / PAUSE_FACTOR
            await self._sleep(self._pause())

    async def _round(self) -> None:
        """Read the statistics, and take the sample of the minute if it is due."""
        self._wake.clear()
        requested = self.watched or bool(self._waiting)
        if not requested and self._is_expensive and await self._others_sample():
            return
        waiting, self._waiting = self._waiting, []
        try:
            await self._read(PAUSE_FACTOR if requested else IDLE_PAUSE_FACTOR)
        except DibsError as error:
            _resolve(waiting, error)
            raise
        _resolve(waiting)
        for subscriber in self._subscribers:
            subscriber.notify()
        await self._sample()

    async def _sleep(self, seconds: float) -> None:
        """Sleep, or wake up when a page is opened."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _pause(self) -> float:
        """Return the seconds until the next read, at most until the sample of the next minute is due."""
        if self.watched:
            return min(max(INTERVAL, PAUSE_FACTOR * self._took), MAX_PAUSE)
        to_minute = 60 - time.time() % 60 + self._delay
        return min(max(IDLE_INTERVAL, IDLE_PAUSE_FACTOR * self._took), to_minute)

    @property
    def _is_expensive(self) -> bool:
        """True if one read a minute is expensive: then one of several servers takes the samples for all."""
        return IDLE_PAUSE_FACTOR * self._took > 60

    async def _read(self, ratio: float) -> None:
        """Read the statistics. `ratio`: count again if the last count is older than this multiple of its duration."""
        self.reads += 1
        counts = await self._finished_count(ratio)
        position = None if time.monotonic() - self._read_at > MAX_GAP else self._position
        if position is None and counts is None:
            counts = await self._count_now()
        began = time.monotonic()
        await self._read_workers()
        if position is not None:
            await self._add_transitions(position, counts)
        elif counts is not None:
            self._start_from(counts)
        self._read_at, self._took = began, time.monotonic() - began

    def _start_from(self, counts: TaskCounts) -> None:
        """Start from a count. Events before it are unknown."""
        self.depths.count(counts)
        self._position = counts.position
        self._intervals.clear()
        self._began_at = time.monotonic()
        self._fine, self._minute = _FlowTotals(), _FlowTotals()
        self._add_fine_sample()

    async def _add_transitions(self, position: HistoryPosition, counts: TaskCounts | None) -> None:
        """Add the transitions since the last read; to a new count, the transitions since that count."""
        positions = [position] if counts is None else [position, counts.position]
        changes = await self._store.run_async(self._store.statistics.changes_since(positions))
        own, latest = changes.progress[0], changes.progress[-1]
        if counts is not None:
            self.depths.count(counts)
        self.depths.move(latest.moves, changes.at)
        self._position = latest.position if latest.whole else None
        self._add_interval(flow_of(own.moves))

    def _add_interval(self, flows: dict[QueueName, list[int]]) -> None:
        now = time.monotonic()
        interval = StatsInterval(now, now - (self._intervals[-1].until if self._intervals else self._began_at), flows)
        self._intervals.append(interval)
        while len(self._intervals) > 1 and self._intervals[0].until < now - RATE_WINDOW:
            self._intervals.popleft()
        self._fine.add(interval)
        self._minute.add(interval)
        if self._fine.seconds >= FINE_SAMPLE_INTERVAL:
            self._add_fine_sample()

    def _add_fine_sample(self) -> None:
        self.trends.add_fine(full_sample(self.depths, self._fine.flows, self._fine.seconds, self.latencies))
        self._fine = _FlowTotals()

    async def _read_workers(self) -> None:
        now = time.monotonic()
        if now - self._last.workers >= WORKERS_INTERVAL:
            await self.refresh_workers()
        if now - self._last.latencies >= LATENCIES_INTERVAL:
            self._last.latencies = now
            self.latencies = await self._store.run_async(self._store.statistics.latencies())

    # Counts

    async def _finished_count(self, ratio: float) -> TaskCounts | None:
        """Return a finished count. Start a new count when it is due, and wait for it shortly."""
        if self._counting is None and time.monotonic() >= self._counted_at + ratio * self._counting_took:
            self._counting = asyncio.create_task(self._count())
        if self._counting is None:
            return None
        await asyncio.wait({self._counting}, timeout=COUNT_TIMEOUT)
        if not self._counting.done():
            return None
        counted, self._counting = self._counting, None
        return counted.result()

    async def _count(self) -> TaskCounts:
        began = time.monotonic()
        try:
            counts = await self._store.run_async(self._store.statistics.count_tasks())
        finally:
            self._counted_at = time.monotonic()
            self._counting_took = self._counted_at - began
        self.counts += 1
        return counts

    async def _count_now(self) -> TaskCounts:
        if self._counting is None:
            self._counting = asyncio.create_task(self._count())
        counting, self._counting = self._counting, None
        return await counting

    # Samples

    async def _seed(self) -> None:
        """Start with the newest stored sample: with many tasks, the first count takes long."""
        with contextlib.suppress(DibsError):  # the first read will log the error
            sample = await self.trends.newest(int((time.time() - SEED_MAX_AGE) * 1e6))
            if sample is not None:
                readings = readings_of(sample)
                self.depths.update_workers(await self._store.run_async(self._store.statistics.workers_and_pauses()))
                self.depths.seed(sample.at, readings)
                self._intervals.append(
                    StatsInterval(time.monotonic(), sample.seconds, {name: r.flow for name, r in readings.items()})
                )

    async def _others_sample(self) -> bool:
        """Return True if another server has taken the sample of this minute."""
        minute = int(time.time() * 1e6) // MINUTE * MINUTE
        if self._position is None or self._sampled == minute:
            return False
        taken = await self._store.run_async(self._store.statistics.samples_since(minute))
        return len(taken) > 0

    async def _preload(self) -> None:
        """Read the stored samples of the last days in advance: it takes a tenth of a second, once."""
        await asyncio.sleep(START_DELAY)
        for window in WINDOWS:
            with contextlib.suppress(DibsError):  # a request for the window will report the error
                await self.history(window)

    async def _sample(self) -> None:
        minute = self.depths.at // MINUTE * MINUTE
        if self._sampled in (None, minute):
            self._sampled = minute  # the first minute is incomplete
            return
        self._sampled = minute
        collected, self._minute = self._minute, _FlowTotals()
        sample = full_sample(self.depths, collected.flows, collected.seconds, self.latencies)
        await self.trends.store_sample(minute, sample)


def _flows(interval: StatsInterval, queues: Sequence[str] | None) -> Iterable[list[int]]:
    if queues is None:
        return [interval.whole]
    return [interval.flows[queue] for queue in set(queues) if queue in interval.flows]


def _resolve(waiting: list[asyncio.Future[None]], error: DibsError | None = None) -> None:
    for done in waiting:
        if done.done():  # the request was cancelled
            continue
        done.set_result(None) if error is None else done.set_exception(error)


@dataclass(slots=True)
class _LastReads:
    workers: float = -1e9
    latencies: float = -1e9


@dataclass(slots=True)
class _FlowTotals:
    """The sum of the events of several intervals."""

    seconds: float = 0.0
    flows: dict[QueueName, list[int]] = field(default_factory=dict)

    def add(self, interval: StatsInterval) -> None:
        """Add an interval."""
        self.seconds += interval.seconds
        for queue, flow in interval.flows.items():
            total = self.flows.get(queue, [0] * len(FLOWS))
            self.flows[queue] = [a + b for a, b in zip(total, flow, strict=True)]
