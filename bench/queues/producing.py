"""How enqueueing is timed: the same calls in the same order on every side, by one caller or by many at once.

Only the standard library is imported: it also runs where nothing but another queue is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench.scenarios import CALLERS, Scenario, Verb

MOST = 1000
Start = Callable[[], None]
Calls = list[list[Any]]
"""What each caller enqueues, call by call."""


@dataclass(slots=True)
class Watch:
    """Takes the time of a `with` block: on the machine's monotonic clock, and on this process's CPUs."""

    started: float = 0.0
    ended: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> Watch:
        self.cpu -= time.process_time()
        self.started = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended = time.monotonic()
        self.cpu += time.process_time()


@dataclass(frozen=True, slots=True)
class Done:
    """How it went: the time, the tasks done in it and before it, and the slowest claim in seconds."""

    time: Watch
    tasks: int
    warmed_up: int
    worst: float | None = None


@dataclass(frozen=True, slots=True)
class Producer:
    """A way into a queue: what stores one task, and many in one call. Where that is asynchronous, it is awaited."""

    one: Callable[[int], Any]
    many: Callable[[Sequence[int]], Any] | None = None

    def enqueue(self, numbers: Sequence[int]) -> Any:
        """Store these tasks, durably, in one call."""
        if len(numbers) == 1:
            return self.one(numbers[0])
        assert self.many is not None
        return self.many(numbers)

    def calls(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """These tasks, as many in a call as this queue can take, at most a thousand."""
        size = MOST if self.many else 1
        for first in range(0, len(numbers), size):
            yield numbers[first : first + size]


def produce(
    enqueue: Callable[[Any], Any],
    scenario: Scenario,
    start: Start,
    seat: int = 0,
    prepare: Callable[[Sequence[int]], Any] = list,
) -> Done:
    """Enqueue the scenario's tasks. `start` returns when all processes are ready; `prepare` calls once before."""
    warm_up, timed = _calls(scenario, seat, prepare)

    def caller(calls: list[Any]) -> None:
        for call in calls:
            enqueue(call)

    with _at_once(len(timed)) as run:
        run(caller, warm_up)
        start()
        with Watch() as watch:
            run(caller, timed)
    return _done(scenario, watch, warm_up, timed)


async def produce_awaited(enqueue: Callable[[Any], Awaitable[Any]], scenario: Scenario, start: Start) -> Done:
    """The same in an event loop."""
    warm_up, timed = _calls(scenario, 0, list)

    async def caller(calls: list[Any]) -> None:
        for call in calls:
            await enqueue(call)

    await asyncio.gather(*map(caller, warm_up))
    start()
    with Watch() as watch:
        await asyncio.gather(*map(caller, timed))
    return _done(scenario, watch, warm_up, timed)


def _calls(scenario: Scenario, seat: int, prepare: Callable[[Sequence[int]], Any]) -> tuple[Calls, Calls]:
    """What goes before the clock starts, and what is timed; of one process, whose number is `seat`."""
    batch, callers = scenario.batch, CALLERS if scenario.verb in (Verb.THREADS, Verb.COROUTINES) else 1
    firsts = range(seat * batch, scenario.total, scenario.processes * batch)
    calls = [prepare(range(first, first + batch)) for first in firsts]
    shares = [calls[caller::callers] for caller in range(callers)]
    return [share[: scenario.warm_up] for share in shares], [share[scenario.warm_up :] for share in shares]


def _done(scenario: Scenario, watch: Watch, warm_up: Calls, timed: Calls) -> Done:
    return Done(watch, sum(map(len, timed)) * scenario.batch, sum(map(len, warm_up)) * scenario.batch)


@contextlib.contextmanager
def _at_once(callers: int) -> Iterator[Callable[[Callable[[list[Any]], None], Calls], None]]:
    """Runs a function for each caller: in threads, if there are several."""
    if callers == 1:
        yield lambda function, calls: function(calls[0])
        return
    with ThreadPoolExecutor(callers) as pool:
        yield lambda function, calls: list(pool.map(function, calls)).clear()
