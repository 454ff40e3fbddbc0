"""Middleware, lifespans and outcome hooks keep their types. Both type checkers accept every line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, assert_type

import dibs

app = dibs.Dibs("sqlite://")
async_app = dibs.AsyncDibs("sqlite://")


@app.middleware
def timed(ctx: dibs.Context, call_next: Callable[[], Any]) -> Any:
    return call_next()


@app.middleware
async def awaited(ctx: dibs.Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    return await call_next()


@app.enqueue_middleware
def stamp(
    tasks: Sequence[dibs.NewTask], call_next: Callable[[Sequence[dibs.NewTask]], list[dibs.Task]]
) -> list[dibs.Task]:
    return call_next(tasks)


@app.enqueue_middleware
def loosely(tasks: Any, call_next: Any) -> Any:
    return call_next(tasks)


@async_app.enqueue_middleware
async def stamp_async(
    tasks: Sequence[dibs.NewTask],
    call_next: Callable[[Sequence[dibs.NewTask]], Coroutine[Any, Any, list[dibs.AsyncTask]]],
) -> list[dibs.AsyncTask]:
    return await call_next(tasks)


@async_app.enqueue_middleware
async def loosely_async(tasks: Any, call_next: Callable[..., Awaitable[Any]]) -> Any:
    return await call_next(tasks)


@app.lifespan
def opens() -> Iterator[dict[str, int]]:
    yield {"pool": 1}


@async_app.lifespan
async def opens_async() -> AsyncIterator[str]:
    yield "pool"


@app.on_success
def tell(ended: dibs.EndedAttempt) -> None:
    assert_type(ended.task, dibs.Task[Any])
    assert_type(ended.state, dibs.State)
    assert_type(ended.failure, dibs.Failure | None)


async def page(ended: dibs.EndedAttempt) -> None:
    assert_type(ended.will_retry, bool)


@app.task(middleware=[timed, awaited], on_dead=page, on_error=[tell, page], lane="thread")
def charge(cents: int) -> str:
    return str(cents)


tell_again: Callable[[dibs.EndedAttempt], None] = tell
assert_type(charge.enqueue(7).wait().result, str)
