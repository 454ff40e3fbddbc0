"""What is done in a process of a queue's own: `python -m bench.queues.program QUEUE work|fill|enqueue|pick-up|mix ...`.

It imports what its queue needs and nothing else, so that its memory is that of a real worker, and so that it runs in
the queue's own virtual environment. What it has measured it prints, as one line of JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.queues.mix import Mix, MixProducer, MixTask
from bench.queues.producing import Producer, produce, produce_awaited
from bench.queues.run_counts import RunCounts
from bench.scenarios import Scenario, Verb

PAUSE = (0.03, 0.09)
"""Seconds between two tasks for an idle worker."""

MIX_BATCH = 200
"""Tasks of the mix in a call."""


def main() -> None:
    """Run the command in the arguments."""
    name, verb, *arguments = sys.argv[1:]
    queue = importlib.import_module(f"bench.queues.{name}")
    sys.exit(_VERBS[verb](queue, *arguments))


def _work(queue: ModuleType, url: str, setting: str, *place: str) -> int:
    """Work until a signal."""
    run_counts, tasks, seats, number = place
    seat = RunCounts(Path(run_counts), int(tasks), int(seats)).seat(int(number))
    return queue.work(url, setting, seat, _wait_for_start) or 0


def _wait_for_start() -> None:
    """Report that everything is imported and open, and wait for the other processes."""
    print("ready", flush=True)
    sys.stdin.readline()


def _fill(queue: ModuleType, url: str, tasks: str) -> None:
    """Create the tables, unless the queue does so by itself, and this number of tasks."""
    if hasattr(queue, "install"):
        queue.install(url)
    numbers = list(range(int(tasks)))

    def in_turn(producer: Producer) -> None:
        for call in producer.calls(numbers):
            producer.enqueue(call)

    async def awaited(producer: Producer) -> None:
        for call in producer.calls(numbers):
            await producer.enqueue(call)

    _with_producer(queue, url, 1, in_turn, awaited)


def _limited_fill(queue: ModuleType, url: str, limits: str, tasks: str) -> None:
    """Create the tables and this number of tasks with limits."""
    queue.fill(url, limits, int(tasks))


def _enqueue(queue: ModuleType, url: str, verb: str, batch: str, tasks: str) -> None:
    """Enqueue tasks, and print the duration."""
    scenario = Scenario(Verb(verb), int(batch), 1, int(tasks))
    callers = scenario.callers

    def in_turn(producer: Producer) -> Any:
        return produce(producer.enqueue, scenario, _no_wait)

    def awaited(producer: Producer) -> Awaitable[Any]:
        return produce_awaited(producer.enqueue, scenario, _no_wait)

    done = _with_producer(queue, url, callers, in_turn, awaited, is_async=scenario.verb is Verb.COROUTINES)
    print(json.dumps(asdict(done)))


def _pick_up(queue: ModuleType, url: str, tasks: str, settle: str) -> None:
    """Enqueue tasks at intervals, and print when each call began and returned. The first call opens connections."""
    pauses = [0.0, float(settle), *(random.uniform(*PAUSE) for _ in range(int(tasks) - 2))]

    def in_turn(producer: Producer) -> list[tuple[int, int]]:
        return [_call(producer, number, pause) for number, pause in enumerate(pauses)]

    async def awaited(producer: Producer) -> list[tuple[int, int]]:
        return [await _call_awaited(producer, number, pause) for number, pause in enumerate(pauses)]

    print(json.dumps(_with_producer(queue, url, 1, in_turn, awaited)))


def _call(producer: Producer, number: int, pause: float) -> tuple[int, int]:
    time.sleep(pause)
    called = time.time_ns()
    producer.one(number)
    return called, time.time_ns()


async def _call_awaited(producer: Producer, number: int, pause: float) -> tuple[int, int]:
    await asyncio.sleep(pause)
    called = time.time_ns()
    await producer.one(number)
    return called, time.time_ns()


def _mix_work(queue: ModuleType, url: str, setting: str, *place: str) -> int:
    """Work on the mix until a signal."""
    run_counts, tasks, seats, number = place
    seat = RunCounts(Path(run_counts), int(tasks), int(seats)).seat(int(number))
    return queue.mix_work(url, setting, Mix(seat), _wait_for_start) or 0


def _mix(queue: ModuleType, url: str, tasks: str) -> None:
    """Enqueue the mix, as many tasks in a call as the queue can take, and say when that began and what it cost."""
    every = [MixTask(number) for number in range(int(tasks))]

    def in_turn(producer: MixProducer) -> None:
        for call in _calls(producer, every):
            producer.many(call) if producer.many else producer.one(call[0])

    async def awaited(producer: MixProducer) -> None:
        for call in _calls(producer, every):
            await (producer.many(call) if producer.many else producer.one(call[0]))

    if hasattr(queue, "mix_producer"):
        with queue.mix_producer(url) as producer:
            began, cpu = time.time_ns(), time.process_time()
            in_turn(producer)
            cpu = time.process_time() - cpu
    else:

        async def run() -> tuple[int, float]:
            async with queue.async_mix_producer(url) as producer:
                began, cpu = time.time_ns(), time.process_time()
                await awaited(producer)
                return began, time.process_time() - cpu

        began, cpu = asyncio.run(run())
    print(json.dumps({"began": began, "cpu": cpu}))


def _calls(producer: MixProducer, tasks: list[MixTask]) -> Iterator[list[MixTask]]:
    size = MIX_BATCH if producer.many else 1
    for first in range(0, len(tasks), size):
        yield tasks[first : first + size]


def _with_producer(
    queue: ModuleType,
    url: str,
    connections: int,
    plain: Callable[[Producer], Any],
    awaited: Callable[[Producer], Awaitable[Any]],
    *,
    is_async: bool = False,
) -> Any:
    """What is made of the queue's producer: the plain one, unless it has none, or an event loop is asked for."""
    if hasattr(queue, "producer") and not is_async:
        with queue.producer(url) as producer:
            return plain(producer)

    async def run() -> Any:
        async with queue.async_producer(url, connections) as producer:
            return await awaited(producer)

    return asyncio.run(run())


def _no_wait() -> None:
    """There are no others to start with."""


_VERBS: dict[str, Callable[..., int | None]] = {
    "work": _work,
    "fill": _fill,
    "limited-fill": _limited_fill,
    "enqueue": _enqueue,
    "pick-up": _pick_up,
    "mix-work": _mix_work,
    "mix": _mix,
}


if __name__ == "__main__":
    main()
