"""The feed: everything that happens to tasks, read once for all who follow it, in order and without a gap.

One reader follows the history for as long as anybody listens, and hands each entry to those who want it. Whoever comes
back with the id of the last entry it saw is brought up to date from the database, then joins where the reader stands.

Where several write at once (PostgreSQL), an entry gets its id before it is committed: 8 can be seen while 7 is still
on its way. A follower who was told 8 would come back asking for what comes after it, and never hear of 7. So what lies
behind a gap is held back until the gap is filled, or has been seen for two seconds: ids of transactions that were
rolled back never come.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dibs.errors import DibsError, StoreUnavailable
from dibs.model.history import StoreEvent
from dibs.model.task import Event
from dibs.server.http import encode
from dibs.store.contract import DatabaseStore
from dibs.wire.history import TaskEvent

logger = logging.getLogger("dibs.server")

HOLD = 2.0
"""Seconds for which a gap in the ids may still be filled."""

GAP = 0.05
"""Seconds between two looks, however much happens."""

POLL = 0.25
"""Seconds after which the reader looks even if nothing woke it: a hint can be lost, and not every change gives one."""

REST = 1.0
"""Seconds to rest after the database did not answer."""

PATIENCE = 5.0
"""Seconds for which a new follower waits for the reader to begin."""

PAGE = 1000
BEHIND = 2000
"""Entries that a follower may lag behind before it is cut off: it comes back, and goes on where it was."""


@dataclass(frozen=True, slots=True)
class Wants:
    """Which entries a follower asks for and may see: None for all."""

    events: frozenset[Event] | None = None
    queues: tuple[str, ...] | None = None

    def include(self, event: StoreEvent) -> bool:
        """True for an entry that it gets."""
        if self.events is not None and event.entry.event not in self.events:
            return False
        return self.queues is None or event.queue in self.queues


@dataclass(eq=False, slots=True)
class Follower:
    """One who listens. `after`: it has everything up to this entry; None until it has joined the reader."""

    wants: Wants
    after: int | None = None
    fresh: bool = False
    ended: bool = False
    _waiting: deque[bytes] = field(default_factory=deque)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def hand(self, frame: bytes) -> None:
        """One more, unless it lags too far behind: then it is cut off, so that it costs no more memory."""
        if len(self._waiting) >= BEHIND:
            self._waiting.clear()
            self.end()
        elif not self.ended:
            self._waiting.append(frame)
            self._woken.set()

    def end(self) -> None:
        """There is nothing more for it."""
        self.ended = True
        self._woken.set()

    async def take(self, timeout: float) -> list[bytes]:
        """What has come; nothing after so many seconds, or at the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        self._woken.clear()
        frames = list(self._waiting)
        self._waiting.clear()
        return frames


class Feed:
    """The reader, and all who follow it."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._followers: set[Follower] = set()
        self._reader: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._position = 0  # up to here everything was handed out, or will never come
        self._seen = _Seen()
        self._before: frozenset[int] = frozenset()
        self._closed = False

    @contextmanager
    def following(self, wants: Wants) -> Iterator[Follower]:
        """A follower, for as long as the block lasts."""
        follower = Follower(wants, ended=self._closed)
        self._followers.add(follower)
        if self._reader is None and not self._closed:
            self._reader = asyncio.create_task(self._read())
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    async def join(self, follower: Follower) -> None:
        """The follower is handed what comes from now on."""
        await self._standing(follower)
        follower.after, follower.fresh = self._position, True

    async def rejoin(self, follower: Follower, after: int) -> AsyncGenerator[list[bytes], None]:
        """What the follower missed since it saw entry `after`, page by page; then it is handed what comes.

        From seeing that nothing is missing to joining nobody else gets a turn, so nothing comes in between.
        """
        await self._standing(follower)
        while not follower.ended and after < self._position:
            goal = self._position  # every entry up to here can be seen by now
            page = await self._store.run_async(self._store.history.events_after(after, PAGE, follower.wants.queues))
            after = min(page[-1].entry.id, goal) if len(page) == PAGE else goal
            yield [frame(event) for event in page if event.entry.id <= goal and follower.wants.include(event)]
        follower.after = after

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        for follower in self._followers:
            follower.end()

    async def closed(self) -> None:
        """Once the reader has ended."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _standing(self, follower: Follower) -> None:
        """Once the reader knows where it stands, or the follower has gone."""
        deadline = time.monotonic() + PATIENCE
        while not self._started.is_set() and not follower.ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await self._started.wait()
            if time.monotonic() > deadline:
                raise StoreUnavailable("The database does not answer.")

    # Reading

    async def _read(self) -> None:
        failing = False
        while self._followers and not self._closed:
            try:
                await self._look()
                failing = False
            except Exception as error:
                if not failing:
                    logger.warning("the feed rests: %s", error, exc_info=not isinstance(error, DibsError))
                failing = True
                await asyncio.sleep(REST)
            await asyncio.sleep(GAP)
        self._started.clear()
        self._reader = None  # at once after the last look at the followers: whoever comes now begins anew

    async def _look(self) -> None:
        if not self._started.is_set():
            await self._begin()
        seen = self._store.wakeups.generation  # before looking: what comes while we look wakes us at once
        await self._read_on()
        await self._store.wakeups.wait_async(seen, POLL)

    async def _begin(self) -> None:
        """Stand where the history ends now; but where an id before that is still on its way, stand before it."""
        self._seen = _Seen()
        self._before = frozenset()
        self._position = newest = await self._store.run_async(self._store.history.last_entry())
        if self._store.many_writers and newest:
            first = max(newest - PAGE, 0)
            page = await self._store.run_async(self._store.history.events_after(first, PAGE))
            self._before = frozenset(event.entry.id for event in page if event.entry.id <= newest)
            missing = (each for each in range(first + 1, newest) if each not in self._before)
            self._position = next(missing, newest + 1) - 1
        self._started.set()

    async def _read_on(self) -> None:
        while True:
            page = await self._store.run_async(self._store.history.events_after(self._position, PAGE))
            settled = await self._settled(page)
            self._hand_out(settled)
            if len(settled) < PAGE:
                return

    async def _settled(self, page: list[StoreEvent]) -> list[StoreEvent]:
        """The page up to the first gap that may still be filled."""
        if not page or not self._store.many_writers:
            return page
        newest = page[-1].entry.id
        if len(page) == PAGE:  # all that is there ages together, not page by page
            newest = await self._store.run_async(self._store.history.last_entry())
        given_up = self._seen.note(newest)
        expected = self._position + 1
        for place, event in enumerate(page):
            if event.entry.id != expected and event.entry.id > given_up:
                return page[:place]
            expected = event.entry.id + 1
        return page

    def _hand_out(self, events: list[StoreEvent]) -> None:
        for event in events:
            self._position = event.entry.id
            takers = [each for each in self._followers if self._concerns(event, each)]
            content = frame(event) if takers else b""
            for follower in takers:
                follower.hand(content)

    def _concerns(self, event: StoreEvent, follower: Follower) -> bool:
        """True if the follower has joined, has not seen the entry before, and wants it. One who came without a past
        does not get what was there when the reader began, and was read again only for the gaps in it."""
        entry_id = event.entry.id
        if follower.after is None or entry_id <= follower.after or (follower.fresh and entry_id in self._before):
            return False
        return follower.wants.include(event)


class _Seen:
    """Which ids were seen since when: a gap before one that was seen for long is not filled any more.

    By the clock that only goes forward on this machine: the entries' own times come from another one.
    """

    def __init__(self) -> None:
        self._newest: deque[tuple[float, int]] = deque()
        self._given_up = 0

    def note(self, newest: int) -> int:
        """Up to this id there is now something to see; the id up to which there was some time ago."""
        now = time.monotonic()
        if not self._newest or self._newest[-1][1] < newest:
            self._newest.append((now, newest))
        while self._newest and now - self._newest[0][0] >= HOLD:
            self._given_up = self._newest.popleft()[1]
        return self._given_up


def frame(event: StoreEvent) -> bytes:
    """An entry as a server-sent event. JSON has no line breaks of its own, so its text is one line of data."""
    entry = event.entry
    return b"id: %d\nevent: task.%b\ndata: %b\n\n" % (
        entry.id,
        entry.event.encode(),
        encode(TaskEvent.from_model(event)),
    )
