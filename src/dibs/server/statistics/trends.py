"""The trend: how it went, from a sample of each minute that is kept in the database, and finer ones of the last quarter
of an hour that this process remembers."""

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
from dibs.server.statistics.queue_depths import FLOWS, STATES, Board, Queue, Reading
from dibs.store.contract import DatabaseStore

MINUTE = 60_000_000
FINE = 15 * MINUTE
"""Microseconds for which this process remembers finer samples."""

NAMED = 100
"""Queues that a sample tells apart, those with the most to do; the whole has all of them."""

CACHED = 64
"""Pairs of a window and some queues of which it is remembered what the database has."""

READ_EVERY = 2.0
"""Seconds for which nobody asks the database again."""

Queues = tuple[str, ...] | None
"""Those that somebody may see; None: all of them."""


class Window(msgspec.Struct, frozen=True):
    """How far to look back, and how much time one point stands for; microseconds."""

    span: int
    bucket: int


WINDOWS = {
    "15m": Window(15 * MINUTE, 5_000_000),
    "1h": Window(60 * MINUTE, MINUTE),
    "24h": Window(24 * 60 * MINUTE, 5 * MINUTE),
    "7d": Window(7 * 24 * 60 * MINUTE, 30 * MINUTE),
}


class Sample(msgspec.Struct):
    """The store at one moment, and what happened in the seconds before it. `wait`, `run`: percentiles 50, 95, 99."""

    seconds: float
    whole: Reading
    wait: list[float] | None = None
    run: list[float] | None = None
    at: int = 0


class FullSample(Sample):
    """A sample that tells queues apart. They come last in the text: `body_without_queues` leaves them out."""

    queues: dict[str, Reading] = {}


class RawSample(Sample):
    """A sample of whose queues nothing is made sense of yet."""

    queues: dict[str, msgspec.Raw] = {}


S = TypeVar("S", bound=Sample)


class Point(msgspec.Struct, array_like=True):
    """A point of the charts: when (seconds since 1970), depth by state, what happened each second, percentiles."""

    at: float
    depth: list[int]
    rates: list[float] | None
    wait: list[float] | None
    run: list[float] | None


class Trend:
    """What is remembered, and what the database knows."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._fine: deque[FullSample] = deque()
        self._kept: dict[tuple[str, Queues], _Kept] = {}

    def remember(self, sample: FullSample) -> None:
        """One more of the fine samples."""
        self._fine.append(sample)
        while self._fine[0].at < sample.at - FINE:
            self._fine.popleft()

    async def keep(self, at: int, sample: FullSample) -> bool:
        """Write down the sample of a minute; False if another server has done so."""
        return await self._store.run_async(self._store.statistics.save_sample(at, msgspec.json.encode(sample).decode()))

    async def newest(self, since: int) -> FullSample | None:
        """The newest sample that is kept, if it is not from before this moment."""
        rows = await self._store.run_async(self._store.statistics.samples_since(since))
        return _at(_full.decode(rows[-1][1]), rows[-1][0]) if rows else None

    async def points(self, name: str, queues: Sequence[str] | None, now: int) -> list[Point]:
        """The points of a window up to now, of all queues or of these."""
        key = (name, None if queues is None else tuple(queues))
        if key not in self._kept and len(self._kept) >= CACHED:
            self._kept.clear()
        kept = self._kept.setdefault(key, _Kept(WINDOWS[name], key[1]))
        async with kept.reading:
            if time.monotonic() - kept.read_at > READ_EVERY:
                await kept.read(self._store, now)
            return _points(kept, [each for each in self._fine if each.at >= now - kept.window.span])


@dataclass(eq=False)
class _Kept:
    """The samples of a window that the database keeps, as far as somebody may see them: those that one point stands
    for added up, so that a sample is read and made sense of only once."""

    window: Window
    queues: Queues
    samples: dict[int, Sample] = field(default_factory=dict)
    until: int = -1
    read_at: float = -1e9
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self, store: DatabaseStore, now: int) -> None:
        """What has come since the last time; forget what is too old."""
        since = max(self.until + 1, now - self.window.span)
        rows = await store.run_async(
            store.statistics.sample_heads(since) if self.queues is None else store.statistics.samples_since(since)
        )
        await asyncio.to_thread(self._add, rows)
        for number in [each for each in self.samples if (each + 1) * self.window.bucket < now - self.window.span]:
            del self.samples[number]
        self.read_at = time.monotonic()

    def _add(self, rows: list[tuple[int, str]]) -> None:
        _put(self.samples, (_at(_decode(body, self.queues), at) for at, body in rows), self.window)
        self.until = rows[-1][0] if rows else self.until


def full_sample(board: Board, flows: dict[Queue, list[int]], seconds: float, latencies: Latencies | None) -> FullSample:
    """A sample of the board."""
    return FullSample(
        seconds=round(seconds, 3),
        whole=_reading(board, None, flows),
        wait=None if latencies is None else _percentiles(latencies.wait),
        run=None if latencies is None else _percentiles(latencies.run),
        at=board.at,
        queues={name: _reading(board, name, flows) for name in board.busiest(NAMED)},
    )


def _reading(board: Board, queue: str | None, flows: dict[Queue, list[int]]) -> Reading:
    only = None if queue is None else [queue]
    flow = _sum(flows.values(), len(FLOWS)) if queue is None else flows.get(queue, [0] * len(FLOWS))
    oldest = board.oldest(only)
    return Reading(list(board.of(only).values()), flow, None if oldest is None else round(oldest, 3))


def _percentiles(values: msgspec.Struct) -> list[float] | None:
    found = [each for each in msgspec.structs.astuple(values) if each is not None]
    return found or None


def readings_of(sample: FullSample) -> dict[Queue, Reading]:
    """What the sample tells of each queue, and under None of the others together."""
    named = list(sample.queues.values())
    depth = _less(sample.whole.depth, _sum((each.depth for each in named), len(STATES)))
    flow = _less(sample.whole.flow, _sum((each.flow for each in named), len(FLOWS)))
    readings: dict[Queue, Reading] = {None: Reading(depth, flow)}
    readings.update(sample.queues)
    return readings


# Points

_head = msgspec.json.Decoder(Sample)
_full = msgspec.json.Decoder(FullSample)
_raw = msgspec.json.Decoder(RawSample)
_reading_in = msgspec.json.Decoder(Reading)


def _decode(body: str, queues: Queues) -> Sample:
    """The sample as somebody sees it who may see these queues; no more of it is made sense of than that."""
    if queues is None:
        return _head.decode(body if body.endswith("}") else f"{body}}}")
    sample = _raw.decode(body)
    return _only(sample, [_reading_in.decode(sample.queues[name]) for name in queues if name in sample.queues])


def _points(kept: _Kept, fine: list[FullSample]) -> list[Point]:
    """Out of what the database has, and what is remembered beside it: before the first fine sample where points are
    fine, else after the last that is kept."""
    samples, window = dict(sorted(kept.samples.items())), kept.window
    if window.bucket < MINUTE and fine:
        began = fine[0].at - int(fine[0].seconds * 1e6)
        samples = {number: each for number, each in samples.items() if each.at < began}
    elif samples:
        last = max(each.at for each in samples.values())
        fine = [each for each in fine if each.at > last]
    _put(samples, (_seen(each, kept.queues) for each in fine), window)
    return [_point(each) for each in samples.values()]


def _put(samples: dict[int, Sample], more: Iterable[Sample], window: Window) -> None:
    """Add each to those that the same point stands for."""
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


def _seen(sample: FullSample, queues: Queues) -> Sample:
    if queues is None:
        return sample
    return _only(sample, [sample.queues[name] for name in queues if name in sample.queues])


def _only(sample: Sample, readings: list[Reading]) -> Sample:
    """The sample of some queues. Percentiles are those of all, and left out."""
    depth = _sum((each.depth for each in readings), len(STATES))
    return Sample(sample.seconds, Reading(depth, _sum((each.flow for each in readings), len(FLOWS))), at=sample.at)


def _point(sample: Sample) -> Point:
    """Without seconds in which something could happen nobody knows how often it does."""
    flow, seconds = sample.whole.flow, sample.seconds
    rates = [round(count / seconds, 3) for count in flow] if seconds else None
    return Point(round(sample.at / 1e6, 1), sample.whole.depth, rates, sample.wait, sample.run)


def _less(whole: list[int], part: list[int]) -> list[int]:
    return [max(a - b, 0) for a, b in zip(whole, part, strict=True)]


def _sum(rows: Iterable[Sequence[int]], width: int) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)] or [0] * width
