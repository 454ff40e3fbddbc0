"""Trends: chart points from the samples of each minute in the database, and from finer samples of the last quarter
of an hour in the memory of this process."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

import msgspec

from dibs.model.statistics import Latencies
from dibs.server.statistics.queue_depths import FLOWS, STATES, QueueDepths, QueueName, Reading, VisibleQueues
from dibs.store.contract import DatabaseStore

MINUTE = 60_000_000
FINE_SPAN = 15 * MINUTE
"""Microseconds for which this process keeps fine samples in memory."""

MAX_QUEUES = 100
"""Maximum number of queues in a sample, those with the most tasks; the totals include all queues."""

MAX_CACHED = 64
"""Maximum number of cached pairs of a window and queues."""

READ_INTERVAL = 2.0
"""Seconds for which stored samples are not read again."""


class Window(msgspec.Struct, frozen=True):
    """The span of a chart and of one point, in microseconds."""

    span: int
    bucket: int


WINDOWS = {
    "15m": Window(15 * MINUTE, 5_000_000),
    "1h": Window(60 * MINUTE, MINUTE),
    "24h": Window(24 * 60 * MINUTE, 5 * MINUTE),
    "7d": Window(7 * 24 * 60 * MINUTE, 30 * MINUTE),
}


class Sample(msgspec.Struct):
    """The numbers of the store at one time, and the events in the `seconds` before it.

    `wait`, `run`: percentiles 50, 95, 99.
    """

    seconds: float
    whole: Reading
    wait: list[float] | None = None
    run: list[float] | None = None
    at: int = 0


class FullSample(Sample):
    """A sample with the numbers of each queue. They are encoded last: `body_without_queues` cuts them off."""

    queues: dict[str, Reading] = {}


class RawSample(Sample):
    """A sample whose queues are not decoded yet."""

    queues: dict[str, msgspec.Raw] = {}


S = TypeVar("S", bound=Sample)


class ChartPoint(msgspec.Struct, array_like=True):
    """A point of the charts: seconds since 1970, depth by state, events per second, percentiles."""

    at: float
    depth: list[int]
    rates: list[float] | None
    wait: list[float] | None
    run: list[float] | None


class Trends:
    """The samples in memory and in the database."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._fine: deque[FullSample] = deque()
        self._stored: dict[tuple[str, VisibleQueues], _StoredSamples] = {}

    def add_fine(self, sample: FullSample) -> None:
        """Add a fine sample."""
        self._fine.append(sample)
        while self._fine[0].at < sample.at - FINE_SPAN:
            self._fine.popleft()

    async def store_sample(self, at: int, sample: FullSample) -> bool:
        """Store the sample of a minute; return False if another server has stored it."""
        return await self._store.run_async(self._store.statistics.save_sample(at, msgspec.json.encode(sample).decode()))

    async def newest(self, since: int) -> FullSample | None:
        """Return the newest stored sample since this time."""
        rows = await self._store.run_async(self._store.statistics.samples_since(since))
        return _at(_full.decode(rows[-1][1]), rows[-1][0]) if rows else None

    async def points(self, name: str, queues: Sequence[str] | None, now: int) -> list[ChartPoint]:
        """Return the points of a window up to now, of all queues or of these."""
        key = (name, None if queues is None else tuple(queues))
        if key not in self._stored and len(self._stored) >= MAX_CACHED:
            self._stored.clear()
        stored = self._stored.setdefault(key, _StoredSamples(WINDOWS[name], key[1]))
        async with stored.reading:
            if time.monotonic() - stored.read_at > READ_INTERVAL:
                await stored.read(self._store, now)
            return _points(stored, [each for each in self._fine if each.at >= now - stored.window.span])


@dataclass(eq=False)
class _StoredSamples:
    """The stored samples of a window for some queues, merged per point. Each sample is read and decoded once."""

    window: Window
    queues: VisibleQueues
    samples: dict[int, Sample] = field(default_factory=dict)
    until: int = -1
    read_at: float = -1e9
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self, store: DatabaseStore, now: int) -> None:
        """Read new samples, and drop samples outside the window."""
        since = max(self.until + 1, now - self.window.span)
        rows = await store.run_async(
            store.statistics.sample_heads(since) if self.queues is None else store.statistics.samples_since(since)
        )
        await asyncio.to_thread(self._add, rows)
        for number in [each for each in self.samples if (each + 1) * self.window.bucket < now - self.window.span]:
            del self.samples[number]
        self.read_at = time.monotonic()

    def _add(self, rows: list[tuple[int, str]]) -> None:
        _merge_into(self.samples, (_at(_decode(body, self.queues), at) for at, body in rows), self.window)
        self.until = rows[-1][0] if rows else self.until


def full_sample(
    depths: QueueDepths, flows: dict[QueueName, list[int]], seconds: float, latencies: Latencies | None
) -> FullSample:
    """Take a sample of the queue depths."""
    return FullSample(
        seconds=round(seconds, 3),
        whole=_reading(depths, None, flows),
        wait=None if latencies is None else _percentiles(latencies.wait),
        run=None if latencies is None else _percentiles(latencies.run),
        at=depths.at,
        queues={name: _reading(depths, name, flows) for name in depths.busiest(MAX_QUEUES)},
    )


def _reading(depths: QueueDepths, queue: str | None, flows: dict[QueueName, list[int]]) -> Reading:
    only = None if queue is None else [queue]
    flow = _sum(flows.values(), len(FLOWS)) if queue is None else flows.get(queue, [0] * len(FLOWS))
    oldest = depths.oldest(only)
    return Reading(list(depths.of(only).values()), flow, None if oldest is None else round(oldest, 3))


def _percentiles(values: msgspec.Struct) -> list[float] | None:
    found = [each for each in msgspec.structs.astuple(values) if each is not None]
    return found or None


def readings_of(sample: FullSample) -> dict[QueueName, Reading]:
    """Return the numbers of each queue of a sample, and under None those of all other queues together."""
    named = list(sample.queues.values())
    depth = _subtract(sample.whole.depth, _sum((each.depth for each in named), len(STATES)))
    flow = _subtract(sample.whole.flow, _sum((each.flow for each in named), len(FLOWS)))
    readings: dict[QueueName, Reading] = {None: Reading(depth, flow)}
    readings.update(sample.queues)
    return readings


# Points

_head = msgspec.json.Decoder(Sample)
_full = msgspec.json.Decoder(FullSample)
_raw = msgspec.json.Decoder(RawSample)
_reading_in = msgspec.json.Decoder(Reading)


def _decode(body: str, queues: VisibleQueues) -> Sample:
    """Decode the part of a sample that concerns these queues."""
    if queues is None:
        return _head.decode(body if body.endswith("}") else f"{body}}}")
    sample = _raw.decode(body)
    return _limited_to(sample, [_reading_in.decode(sample.queues[name]) for name in queues if name in sample.queues])


def _points(stored: _StoredSamples, fine: list[FullSample]) -> list[ChartPoint]:
    """Combine stored and fine samples: for fine points, stored samples before the first fine sample; otherwise fine
    samples after the last stored sample."""
    samples, window = dict(sorted(stored.samples.items())), stored.window
    if window.bucket < MINUTE and fine:
        began = fine[0].at - int(fine[0].seconds * 1e6)
        samples = {number: each for number, each in samples.items() if each.at < began}
    elif samples:
        last = max(each.at for each in samples.values())
        fine = [each for each in fine if each.at > last]
    _merge_into(samples, (_visible(each, stored.queues) for each in fine), window)
    return [_point(each) for each in samples.values()]


def _merge_into(samples: dict[int, Sample], more: Iterable[Sample], window: Window) -> None:
    """Merge each sample into the samples of its point."""
    for number, same in groupby(more, key=lambda each: each.at // window.bucket):
        before = [samples[number]] if number in samples else []
        samples[number] = _merge([*before, *same])


def _merge(samples: list[Sample]) -> Sample:
    last = samples[-1]
    flow = _sum((each.whole.flow for each in samples), len(FLOWS))
    seconds = sum(each.seconds for each in samples)
    return Sample(seconds, Reading(last.whole.depth, flow), last.wait, last.run, last.at)


def _at(sample: S, at: int) -> S:
    if not sample.at:
        sample.at = at
    return sample


def _visible(sample: FullSample, queues: VisibleQueues) -> Sample:
    if queues is None:
        return sample
    return _limited_to(sample, [sample.queues[name] for name in queues if name in sample.queues])


def _limited_to(sample: Sample, readings: list[Reading]) -> Sample:
    """Return the sample for some queues, without percentiles, which exist only for all queues."""
    depth = _sum((each.depth for each in readings), len(STATES))
    return Sample(sample.seconds, Reading(depth, _sum((each.flow for each in readings), len(FLOWS))), at=sample.at)


def _point(sample: Sample) -> ChartPoint:
    """Return the chart point of a sample. A sample without a duration has no rates."""
    flow, seconds = sample.whole.flow, sample.seconds
    rates = [round(count / seconds, 3) for count in flow] if seconds else None
    return ChartPoint(round(sample.at / 1e6, 1), sample.whole.depth, rates, sample.wait, sample.run)


def _subtract(whole: list[int], part: list[int]) -> list[int]:
    return [max(a - b, 0) for a, b in zip(whole, part, strict=True)]


def _sum(rows: Iterable[Sequence[int]], width: int) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)] or [0] * width
