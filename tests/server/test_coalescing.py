"""Coalesced requests and long polls: an error of one request does not affect the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import dibs
from dibs import KeyConflict, NewTask, StoreBusy
from dibs.model.claim import ClaimRequest
from dibs.server.coalescing import CoalescedRequests
from dibs.server.long_poll import LongPolls
from dibs.store.open import open_store
from dibs.store.operation import Operation

T = TypeVar("T")
SOON = 10.0


def with_store(url: str, do: Callable[[Any], Awaitable[T]]) -> T:
    async def run() -> T:
        store = open_store(url)
        try:
            return await asyncio.wait_for(do(store), SOON)
        finally:
            await store.close_async()

    return asyncio.run(run())


def fail_at(store: Any, turn: int, error: Exception) -> None:
    """The store that gives up once, at its so many-th operation from now."""
    run_async, turns = store.run_async, iter(range(1, 1000))

    async def fail_in_turn(operation: Operation[Any], **how: Any) -> Any:
        if next(turns) == turn:
            raise error
        return await run_async(operation, **how)

    store.run_async = fail_in_turn


def test_an_outage_during_coalesced_enqueues_fails_only_the_tasks_that_were_not_stored(
    url: str, app: dibs.Dibs
) -> None:
    app.enqueue("t", {"n": 0}, key="taken")
    news = [NewTask("t", {"n": 1}), NewTask("t", {"n": 2}), NewTask("t", {"n": 3}, key="taken"), NewTask("t", {"n": 4})]

    async def do(store: Any) -> list[Any]:
        fail_at(store, 5, StoreBusy("The store is busy."))  # the first alone, the rest together, and these one by one
        requests = CoalescedRequests(store, lambda answers: None)
        return await asyncio.gather(*(requests.enqueue(new, None) for new in news), return_exceptions=True)

    first, second, third, fourth = with_store(url, do)
    assert (first.params, second.params) == ({"n": 1}, {"n": 2})
    assert isinstance(third, KeyConflict)
    assert isinstance(fourth, StoreBusy)
    assert {task.params["n"] for task in app.list_tasks(limit=10)} == {0, 1, 2}


def test_an_unexpected_error_in_a_long_poll_is_raised_in_every_waiting_claim(url: str, app: dibs.Dibs) -> None:
    async def do(store: Any) -> list[Any]:
        fail_at(store, 2, RuntimeError("nobody expected this"))
        room, gone = LongPolls(store), asyncio.get_running_loop().create_future()
        requests = [ClaimRequest(worker_id=f"worker-{n}") for n in range(3)]
        waits = (room.wait(request, None, 0.5, gone) for request in requests)
        return await asyncio.gather(*waits, return_exceptions=True)

    assert [type(each) for each in with_store(url, do)] == [RuntimeError] * 3
