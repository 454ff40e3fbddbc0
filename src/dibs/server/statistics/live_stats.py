"""The pulse: how full the store is and what goes on in it, read once for all who watch, without slowing anybody.

Counting a million tasks takes a second; what happened since the last look is counted in milliseconds. So the pulse
counts rarely and adds what moved. It never takes more than about a twentieth of a core: after each look it rests twenty
times as long as that took. While nobody watches it looks every ten seconds, at less than a hundredth of a core, so that
whoever comes sees how the last quarter of an hour went.
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
from dibs.server.statistics.queue_depths import FLOWS, Board, Queue, flow_of
from dibs.server.statistics.trends import MINUTE, WINDOWS, Point, Trend, full_sample, readings_of
from dibs.store.contract import DatabaseStore

logger = logging.getLogger("dibs.server")

EVERY = 1.0
"""Seconds from one look to the next while somebody watches and looking is cheap."""

RATIO = 20
"""How many times as long as a look or a count took it rests afterwards."""

EVERY_ALONE, RATIO_ALONE = 10.0, 200
"""The same while nobody watches: looks and counts take at most half a hundredth of a core each."""

AT_MOST = 5.0
"""Seconds that it rests at most after a look: the longer it rests, the more there is to look at."""

AT_ONCE = 0.1
"""Seconds for which a look waits for a count that has begun; a longer one goes on beside the next looks."""

FIRST_AFTER = 1.0
"""Seconds from the start to the first look: let those who wait for the server go first."""

SEED_FOR = 300.0
"""Seconds for which a sample that is kept tells how it is, until the first count has ended."""

WATCHED_FOR = 30.0
"""Seconds after a page was shown for which somebody may still look at it."""

OLD = 150.0
"""Seconds after which what moved since the last look is not counted any more: it counts anew."""

PATIENCE = 0.08
"""Seconds for which the first page after a while waits for fresh numbers."""

ROLL_EVERY, LATENCIES_EVERY, REMEMBER_EVERY = 2.0, 5.0, 5.0
RECENT = 60.0
"""Seconds over which what happens is told."""

JITTER = 8.0
"""Seconds into a minute up to which a server that nobody watches waits before it takes the minute's sample: whichever
waits least does it every time, and the others are spared."""


@dataclass(eq=False, slots=True)
class Follower:
    """One who watches for as long as it likes."""

    ended: bool = False
    _beat: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self) -> None:
        """There is something new."""
        self._beat.set()

    def end(self) -> None:
        """There will be nothing more."""
        self.ended = True
        self._beat.set()

    async def wait(self, timeout: float) -> bool:
        """True once there is something new; False after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._beat.wait()
        beat = self._beat.is_set() and not self.ended
        self._beat.clear()
        return beat


@dataclass(frozen=True)
class Lap:
    """What happened between two looks."""

    until: float
    seconds: float
    flows: dict[Queue, list[int]]

    @cached_property
    def whole(self) -> list[int]:
        """What happened in all queues together."""
        return _add_up(self.flows.values())


def _add_up(flows: Iterable[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*flows, strict=True)] or [0] * len(FLOWS)


class Pulse:
    """One for each server process."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self.board = Board()
        self.trend = Trend(store)
        self.latencies: Latencies | None = None
        self.looks = self.counts = 0
        """How often it looked and counted."""

        self._followers: set[Follower] = set()
        self._watched_until = 0.0
        self._wanted = asyncio.Event()
        self._asking: list[asyncio.Future[None]] = []
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._reading_up: asyncio.Task[None] | None = None
        self._position: HistoryPosition | None = None
        self._looked_at = self._began_at = self._took = 0.0
        self._counting: asyncio.Task[TaskCounts] | None = None
        self._counted_at = self._counting_took = 0.0
        self._laps: deque[Lap] = deque()
        self._last = _Clocks()
        self._fine = _Collected()
        self._minute = _Collected()
        self._sampled: int | None = None
        self._delay = random.uniform(0.5, JITTER)
        self._edition = secrets.token_hex(4)

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())
        self._reading_up = asyncio.create_task(self._read_up())

    def close(self) -> None:
        """Let everybody go who follows."""
        self._closed = True
        self._wanted.set()
        _settle(self._asking, StoreUnavailable("The server is stopping."))
        for follower in self._followers:
            follower.end()

    async def closed(self) -> None:
        """Once it has ended."""
        tasks = [task for task in (self._task, self._reading_up, self._counting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # For those who watch

    async def look_in(self) -> Board:
        """The board, for a page: fresh if that takes no time, else as it was."""
        was_watched = self.watched
        self._watched_until = time.monotonic() + WATCHED_FOR
        if not was_watched:
            with contextlib.suppress(TimeoutError, DibsError):
                async with asyncio.timeout(PATIENCE):
                    await self.refreshed()
        return self.board

    async def refreshed(self) -> Board:
        """The board after a look that began just now, or the error that it met. Whoever asks does not watch."""
        looked = asyncio.get_running_loop().create_future()
        self._asking.append(looked)
        self._wanted.set()
        await looked
        return self.board

    async def call_roll(self) -> Board:
        """The board with who is there and what is paused as it is just now."""
        self._last.roll = time.monotonic()
        self.board.call(await self._store.run_async(self._store.statistics.workers_and_pauses()))
        return self.board

    @contextmanager
    def follow(self) -> Iterator[Follower]:
        """A follower, told of every look for as long as the block lasts."""
        follower = Follower(ended=self._closed)
        self._followers.add(follower)
        self._wanted.set()
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    @property
    def watched(self) -> bool:
        """True while somebody may see what it finds."""
        return bool(self._followers) or time.monotonic() < self._watched_until

    def version(self, queues: Sequence[str] | None = None) -> str:
        """Another one whenever a page may look different; no two servers have the same."""
        return f"{self._edition}-{self.board.version(queues)}"

    @property
    def age(self) -> float:
        """Seconds since the look from which the numbers are: more and more while the store does not answer."""
        return time.monotonic() - self._looked_at

    def rates(self, queues: Sequence[str] | None = None) -> dict[str, float]:
        """What happened each second, over the last minute."""
        seconds = sum(lap.seconds for lap in self._laps)
        totals = _add_up(flow for lap in self._laps for flow in _flows(lap, queues))
        return {name: total / seconds if seconds else 0.0 for name, total in zip(FLOWS, totals, strict=True)}

    async def history(self, window: str, queues: Sequence[str] | None = None) -> list[Point]:
        """How it went: the points of a window, one of WINDOWS."""
        return await self.trend.points(window, queues, self.board.at or int(time.time() * 1e6))

    # Beating

    async def _run(self) -> None:
        failing = False
        await self._seed()
        await self._rest(FIRST_AFTER)
        while not self._closed:
            try:
                await self._beat()
                failing = False
            except Exception as error:
                _settle(self._asking, StoreUnavailable("The store cannot be looked at now."))
                if not failing:
                    logger.warning("the pulse rests: %s", error, exc_info=not isinstance(error, DibsError))
                failing, self._took = True, AT_MOST / RATIO
            await self._rest(self._pause())

    async def _beat(self) -> None:
        """Look, and take the sample of the minute if it is time."""
        self._wanted.clear()
        called_for = self.watched or bool(self._asking)
        if not called_for and self._is_dear and await self._others_sample():
            return
        asking, self._asking = self._asking, []
        try:
            await self._look(RATIO if called_for else RATIO_ALONE)
        except DibsError as error:
            _settle(asking, error)
            raise
        _settle(asking)
        for follower in self._followers:
            follower.tell()
        await self._sample()

    async def _rest(self, seconds: float) -> None:
        """For so long, or until somebody comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()

    def _pause(self) -> float:
        """Seconds until the next look; no longer than until the sample of the next minute has to be taken."""
        if self.watched:
            return min(max(EVERY, RATIO * self._took), AT_MOST)
        to_minute = 60 - time.time() % 60 + self._delay
        return min(max(EVERY_ALONE, RATIO_ALONE * self._took), to_minute)

    @property
    def _is_dear(self) -> bool:
        """True where so much happens that to look once a minute is much: then one of many servers does it for all."""
        return RATIO_ALONE * self._took > 60

    async def _look(self, ratio: float) -> None:
        """Look; count, too, if the last count is so many times as long ago as it took."""
        self.looks += 1
        tally = await self._tally(ratio)
        position = None if time.monotonic() - self._looked_at > OLD else self._position
        if position is None and tally is None:
            tally = await self._count_now()
        began = time.monotonic()
        await self._call()
        if position is not None:
            await self._go_on(position, tally)
        elif tally is not None:
            self._begin(tally)
        self._looked_at, self._took = began, time.monotonic() - began

    def _begin(self, tally: TaskCounts) -> None:
        """From a count alone: what happened before it, nobody knows."""
        self.board.count(tally)
        self._position = tally.position
        self._laps.clear()
        self._began_at = time.monotonic()
        self._fine, self._minute = _Collected(), _Collected()
        self._remember()

    async def _go_on(self, position: HistoryPosition, tally: TaskCounts | None) -> None:
        """Add what moved since the last look; to a new count what moved since that, up to the same moment."""
        positions = [position] if tally is None else [position, tally.position]
        since = await self._store.run_async(self._store.statistics.changes_since(positions))
        own, latest = since.progress[0], since.progress[-1]
        if tally is not None:
            self.board.count(tally)
        self.board.move(latest.moves, since.at)
        self._position = latest.position if latest.whole else None
        self._note(flow_of(own.moves))

    def _note(self, flows: dict[Queue, list[int]]) -> None:
        now = time.monotonic()
        lap = Lap(now, now - (self._laps[-1].until if self._laps else self._began_at), flows)
        self._laps.append(lap)
        while len(self._laps) > 1 and self._laps[0].until < now - RECENT:
            self._laps.popleft()
        self._fine.add(lap)
        self._minute.add(lap)
        if self._fine.seconds >= REMEMBER_EVERY:
            self._remember()

    def _remember(self) -> None:
        self.trend.remember(full_sample(self.board, self._fine.flows, self._fine.seconds, self.latencies))
        self._fine = _Collected()

    async def _call(self) -> None:
        now = time.monotonic()
        if now - self._last.roll >= ROLL_EVERY:
            await self.call_roll()
        if now - self._last.latencies >= LATENCIES_EVERY:
            self._last.latencies = now
            self.latencies = await self._store.run_async(self._store.statistics.latencies())

    # Counting

    async def _tally(self, ratio: float) -> TaskCounts | None:
        """A count that has come to its end; a new one is begun when it is time, and waited for if it is quick."""
        if self._counting is None and time.monotonic() >= self._counted_at + ratio * self._counting_took:
            self._counting = asyncio.create_task(self._count())
        if self._counting is None:
            return None
        await asyncio.wait({self._counting}, timeout=AT_ONCE)
        if not self._counting.done():
            return None
        counted, self._counting = self._counting, None
        return counted.result()

    async def _count(self) -> TaskCounts:
        began = time.monotonic()
        try:
            tally = await self._store.run_async(self._store.statistics.count_tasks())
        finally:
            self._counted_at = time.monotonic()
            self._counting_took = self._counted_at - began
        self.counts += 1
        return tally

    async def _count_now(self) -> TaskCounts:
        if self._counting is None:
            self._counting = asyncio.create_task(self._count())
        counting, self._counting = self._counting, None
        return await counting

    # The sample of each minute

    async def _seed(self) -> None:
        """Begin with the newest sample that is kept: where there are many tasks, the first count takes a while."""
        with contextlib.suppress(DibsError):  # the first look will tell
            sample = await self.trend.newest(int((time.time() - SEED_FOR) * 1e6))
            if sample is not None:
                readings = readings_of(sample)
                self.board.call(await self._store.run_async(self._store.statistics.workers_and_pauses()))
                self.board.seed(sample.at, readings)
                self._laps.append(Lap(time.monotonic(), sample.seconds, {name: r.flow for name, r in readings.items()}))

    async def _others_sample(self) -> bool:
        """True if another server has taken the sample of this minute: then there is nothing to do for this one."""
        minute = int(time.time() * 1e6) // MINUTE * MINUTE
        if self._position is None or self._sampled == minute:
            return False
        taken = await self._store.run_async(self._store.statistics.samples_since(minute))
        return len(taken) > 0

    async def _read_up(self) -> None:
        """What is kept of the last days takes a tenth of a second to read, once: let nobody wait for it."""
        await asyncio.sleep(FIRST_AFTER)
        for window in WINDOWS:
            with contextlib.suppress(DibsError):  # who asks for it will be told
                await self.history(window)

    async def _sample(self) -> None:
        minute = self.board.at // MINUTE * MINUTE
        if self._sampled in (None, minute):
            self._sampled = minute  # the first minute is not whole
            return
        self._sampled = minute
        collected, self._minute = self._minute, _Collected()
        sample = full_sample(self.board, collected.flows, collected.seconds, self.latencies)
        await self.trend.keep(minute, sample)


def _flows(lap: Lap, queues: Sequence[str] | None) -> Iterable[list[int]]:
    if queues is None:
        return [lap.whole]
    return [lap.flows[queue] for queue in set(queues) if queue in lap.flows]


def _settle(asking: list[asyncio.Future[None]], error: DibsError | None = None) -> None:
    for looked in asking:
        if looked.done():  # who asked has gone
            continue
        looked.set_result(None) if error is None else looked.set_exception(error)


@dataclass(slots=True)
class _Clocks:
    roll: float = -1e9
    latencies: float = -1e9


@dataclass(slots=True)
class _Collected:
    """What happened in some laps."""

    seconds: float = 0.0
    flows: dict[Queue, list[int]] = field(default_factory=dict)

    def add(self, lap: Lap) -> None:
        """One more lap."""
        self.seconds += lap.seconds
        for queue, flow in lap.flows.items():
            so_far = self.flows.get(queue, [0] * len(FLOWS))
            self.flows[queue] = [a + b for a, b in zip(so_far, flow, strict=True)]
