"""Functions that are no hooks. Both type checkers refuse exactly the marked lines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import dibs

app = dibs.Dibs("sqlite://")
async_app = dibs.AsyncDibs("sqlite://")


def without_next(ctx: dibs.Context) -> Any:
    return ctx.attempt


def for_names(name: str, call_next: Callable[[], Any]) -> Any:
    return call_next()


def plain(
    tasks: Sequence[dibs.NewTask], call_next: Callable[[Sequence[dibs.NewTask]], list[dibs.Task]]
) -> list[dibs.Task]:
    return call_next(tasks)


async def awaited(
    tasks: Sequence[dibs.NewTask],
    call_next: Callable[[Sequence[dibs.NewTask]], Coroutine[Any, Any, list[dibs.AsyncTask]]],
) -> list[dibs.AsyncTask]:
    return await call_next(tasks)


async def loosely(tasks: Any, call_next: Callable[..., Awaitable[Any]]) -> Any:
    return await call_next(tasks)


def of_one(task: dibs.NewTask, call_next: Callable[..., Any]) -> Any:
    return call_next([task])


def opens(url: str) -> Any:
    yield url


def after_task(task: dibs.Task) -> None:
    print(task.id)


app.middleware(without_next)  # refused
app.middleware(for_names)  # refused
app.enqueue_middleware(awaited)  # refused
app.enqueue_middleware(loosely)  # refused
app.enqueue_middleware(of_one)  # refused
async_app.enqueue_middleware(plain)  # refused
app.lifespan(opens)  # refused
app.on_success(after_task)  # refused


@app.task(on_dead=after_task)  # refused
def job(number: int) -> int:
    return number


@app.task(middleware=[without_next])  # refused
def other(number: int) -> int:
    return number


@app.task(lane="coroutine")  # refused
def third(number: int) -> int:
    return number
