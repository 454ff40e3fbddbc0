"""Coalescing on an event loop: which calls share a batch, and what each of them gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from dibs.errors import DibsError, OutcomeUnknown
from dibs.store.coalesce import BATCH_BYTES, BATCH_ITEMS, RUN_ALONE, AsyncCoalescer

Numbers = AsyncCoalescer[str, int, int]


class Batches:
    """Runs batches of numbers, doubles each number, and keeps a list of the batches."""

    def __init__(self) -> None:
        self.run: list[list[int]] = []
        self.may_run = asyncio.Event()

    async def __call__(self, key: str, numbers: Sequence[int]) -> Sequence[Any]:
        self.run.append(list(numbers))
        await self.may_run.wait()
        return [2 * number for number in numbers]


async def call_at_once(coalescer: Numbers, batches: Any, numbers: Sequence[int]) -> list[asyncio.Task[int]]:
    """Call for each number. The first call runs, the others wait."""
    calls = [asyncio.create_task(coalescer.run("key", number, batches)) for number in numbers]
    await asyncio.sleep(0)
    return calls


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_calls_that_wait_are_one_batch_and_each_gets_its_own_result() -> None:
    async def test() -> None:
        batches = Batches()
        calls = await call_at_once(AsyncCoalescer(), batches, range(5))
        batches.may_run.set()
        assert await asyncio.gather(*calls) == [0, 2, 4, 6, 8]
        assert batches.run == [[0], [1, 2, 3, 4]]

    run(test)


def test_a_batch_has_a_limited_number_of_items() -> None:
    async def test() -> None:
        batches = Batches()
        calls = await call_at_once(AsyncCoalescer(), batches, range(BATCH_ITEMS + 3))
        batches.may_run.set()
        await asyncio.gather(*calls)
        assert [len(batch) for batch in batches.run] == [1, BATCH_ITEMS, 2]

    run(test)


def test_a_batch_has_a_limited_number_of_bytes() -> None:
    async def test() -> None:
        batches = Batches()
        coalescer: Numbers = AsyncCoalescer(size=lambda number: BATCH_BYTES // 2)
        calls = await call_at_once(coalescer, batches, range(5))
        batches.may_run.set()
        await asyncio.gather(*calls)
        assert batches.run == [[0], [1, 2], [3, 4]]

    run(test)


def test_items_of_one_identity_are_run_one_after_the_other() -> None:
    async def test() -> None:
        batches = Batches()
        coalescer: Numbers = AsyncCoalescer(identity=lambda number: number % 3)
        calls = await call_at_once(coalescer, batches, [0, 1, 2, 4, 5])
        batches.may_run.set()
        await asyncio.gather(*calls)
        assert batches.run == [[0], [1, 2], [4, 5]]

    run(test)


def test_a_call_that_is_cancelled_while_it_waits_is_left_out() -> None:
    async def test() -> None:
        batches = Batches()
        calls = await call_at_once(AsyncCoalescer(), batches, range(4))
        calls[2].cancel()
        batches.may_run.set()
        await asyncio.gather(*calls, return_exceptions=True)
        assert batches.run == [[0], [1, 3]]
        assert calls[2].cancelled()

    run(test)


def test_calls_after_the_last_waiting_call_was_cancelled_run_at_once() -> None:
    async def test() -> None:
        batches = Batches()
        coalescer: Numbers = AsyncCoalescer()
        first, second = await call_at_once(coalescer, batches, range(2))
        second.cancel()
        batches.may_run.set()
        await asyncio.wait([first, second])
        assert await coalescer.run("key", 7, batches) == 14
        assert batches.run == [[0], [7]]

    run(test)


def test_a_refused_batch_is_run_again_item_by_item() -> None:
    async def no_threes(key: str, numbers: Sequence[int]) -> Sequence[Any]:
        await asyncio.sleep(0)
        if 3 not in numbers:
            return numbers
        if len(numbers) > 1:
            return [RUN_ALONE] * len(numbers)
        raise DibsError("Three is refused.")

    async def test() -> None:
        calls = await call_at_once(AsyncCoalescer(), no_threes, range(5))
        *_, refused, four = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(refused, DibsError)
        assert four == 4

    run(test)


def test_an_error_of_the_batch_is_the_error_of_each_item() -> None:
    async def refuse(key: str, numbers: Sequence[int]) -> Sequence[Any]:
        await asyncio.sleep(0)
        raise DibsError("The batch is refused.")

    async def test() -> None:
        calls = await call_at_once(AsyncCoalescer(), refuse, range(3))
        assert [type(each) for each in await asyncio.gather(*calls, return_exceptions=True)] == [DibsError] * 3

    run(test)


def test_the_calls_of_a_batch_that_was_interrupted_get_an_error() -> None:
    async def test() -> None:
        batches = Batches()
        coalescer: Numbers = AsyncCoalescer()
        first, *others = await call_at_once(coalescer, batches, range(3))
        first.cancel()
        await asyncio.wait([first])
        [batch] = coalescer._tasks
        await asyncio.sleep(0)
        batch.cancel()
        for call in others:
            with pytest.raises(OutcomeUnknown):
                await call

    run(test)
