"""The trend: how it went, from a sample of each minute that is kept in the database, and finer ones of the last quarter
of an hour that this process remembers."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from dibs.server.board import FLOWS, STATES, Board, Queue, Reading
from dibs.store.contract import DatabaseStore
from dibs.store.operations.sampling import Latencies

MINUTE = 60_000_000
FINE = 15 * MINUTE
"""Microseconds for which this process remembers finer samples."""

NAMED = 100
"""Queues that a sample tells apart, those with the most to do; the whole has all of them."""

CACHED = 64


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
    """A sample that tells queues apart."""

    queues: dict[str, Reading] = {}


class Point(msgspec.Struct, array_like=True):
    """A point of the charts: when (seconds since 1970), depth by state, what happened each second, percentiles."""

    at: float
    depth: list[int]
    rates: list[float]
    wait: list[float] | None
    run: list[float] | None


class Trend:
    """What is remembered, and what the database knows."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._fine: deque[FullSample] = deque()
        self._kept: dict[tuple[str, tuple[str, ...] | None], tuple[float, list[Point]]] = {}

    def remember(self, sample: FullSample) -> None:
        """One more of the fine samples."""
        self._fine.append(sample)
        while self._fine[0].at < sample.at - FINE:
            self._fine.popleft()

    async def keep(self, at: int, sample: FullSample) -> bool:
        """Write down the sample of a minute; False if another server has done so."""
        return await self._store.run_async(self._store.note_sample(at, msgspec.json.encode(sample).decode()))

    async def points(self, name: str, queues: Sequence[str] | None, now: int) -> list[Point]:
        """The points of a window up to now, of all queues or of these; made anew for every second point at most."""
        key = (name, None if queues is None else tuple(queues))
        made_at, points = self._kept.get(key, (0.0, []))
        if time.monotonic() - made_at > WINDOWS[name].bucket / 2e6:
            points = await self._make(WINDOWS[name], key[1], now)
            if len(self._kept) >= CACHED:
                self._kept.clear()
            self._kept[key] = time.monotonic(), points
        return points

    async def _make(self, window: Window, queues: tuple[str, ...] | None, now: int) -> list[Point]:
        kept = await self._store.run_async(self._store.samples_since(now - window.span))
        fine = [each for each in self._fine if each.at >= now - window.span]
        return await asyncio.to_thread(_points, kept, fine, window, queues)


def full_sample(board: Board, flows: dict[Queue, list[int]], seconds: float, latencies: Latencies | None) -> FullSample:
    """A sample of the board."""
    return FullSample(
        seconds=round(seconds, 3),
        whole=_reading(board, None, flows),
        wait=None if latencies is None else _percentiles(latencies.wait),
        run=None if latencies is None else _percentiles(latencies.run),
        at=board.at,
        queues={name: _reading(board, name, flows) for name in _busiest(board)},
    )


def _reading(board: Board, queue: str | None, flows: dict[Queue, list[int]]) -> Reading:
    only = None if queue is None else [queue]
    flow = _sum(flows.values(), len(FLOWS)) if queue is None else flows.get(queue, [0] * len(FLOWS))
    oldest = board.oldest(only)
    return Reading(list(board.of(only).values()), flow, None if oldest is None else round(oldest, 3))


def _busiest(board: Board) -> list[str]:
    names = board.queues()
    if len(names) <= NAMED:
        return names
    return sorted(names, key=lambda name: -sum(board.depth.get(name, {}).values()))[:NAMED]


def _percentiles(values: msgspec.Struct) -> list[float] | None:
    found = [each for each in msgspec.structs.astuple(values) if each is not None]
    return found or None


# Points

_whole = msgspec.json.Decoder(Sample)
_full = msgspec.json.Decoder(FullSample)


def _points(
    kept: list[tuple[int, str]], fine: list[FullSample], window: Window, queues: tuple[str, ...] | None
) -> list[Point]:
    """Out of what the database has, and what is remembered beside it: before the first fine sample where points are
    fine, else after the last that is kept."""
    decode = _whole.decode if queues is None else _full.decode
    if window.bucket < MINUTE and fine:
        kept = [row for row in kept if row[0] < fine[0].at - int(fine[0].seconds * 1e6)]
    elif kept:
        fine = [each for each in fine if each.at > kept[-1][0]]
    samples = [*(_at(decode(body), at) for at, body in kept), *fine]
    buckets = groupby(samples, key=lambda each: each.at // window.bucket)
    return [_merge([_only(each, queues) for each in bucket], window) for _, bucket in buckets]


def _at(sample: Sample, at: int) -> Sample:
    if not sample.at:
        sample.at = at
    return sample


def _only(sample: Sample, queues: tuple[str, ...] | None) -> Sample:
    """The sample as somebody sees it who may see these queues. Percentiles are those of all."""
    if queues is None:
        return sample
    assert isinstance(sample, FullSample)
    readings = [sample.queues[name] for name in queues if name in sample.queues]
    depth = _sum((each.depth for each in readings), len(STATES))
    return Sample(sample.seconds, Reading(depth, _sum((each.flow for each in readings), len(FLOWS))), at=sample.at)


def _merge(samples: list[Sample], window: Window) -> Point:
    last = samples[-1]
    seconds = sum(each.seconds for each in samples)
    flow = _sum((each.whole.flow for each in samples), len(FLOWS))
    rates = [round(count / seconds, 3) if seconds else 0.0 for count in flow]
    return Point(round(last.at / 1e6, 1), last.whole.depth, rates, last.wait, last.run)


def _sum(rows: Iterable[Sequence[int]], width: int) -> list[int]:
    return list(_totals(rows, width))


def _totals(rows: Iterable[Sequence[int]], width: int) -> Iterator[int]:
    columns = list(zip(*rows, strict=True)) or [(0,)] * width
    for column in columns:
        yield sum(column)
