# pyright: strict
"""Programs that enqueue many tasks and wait for them. Both type checkers accept every line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, assert_type

import dibs

app = dibs.Dibs("sqlite://")
async_app = dibs.AsyncDibs("sqlite://")


@app.task
def resize(picture: int, width: int = 800) -> dict[str, int]:
    return {"picture": picture, "width": width}


@app.task
def fetch(ctx: dibs.Context, url: str) -> bytes:
    return url.encode()


@async_app.task
async def scale(picture: int, width: int = 800) -> int:
    return picture * width


tasks = resize.map([1, 2], width=400)
assert_type(tasks, dibs.Tasks[dict[str, int]])
assert_type(resize.map(number for number in range(10)), dibs.Tasks[dict[str, int]])
assert_type(resize.map([1], 400).wait(progress=True).results(), list[dict[str, int]])
assert_type(tasks.results(return_exceptions=True), list[dict[str, int] | dibs.DibsError])
assert_type(fetch.map(["https://example.org"]), dibs.Tasks[bytes])
assert_type(resize.options(priority=5).keyed(lambda picture, width=800: f"{picture}").map([1]).ids, list[int])
assert_type(resize.starmap([(7, 400), (8, 200)]), dibs.Tasks[dict[str, int]])
assert_type(resize.tasks([1, 2])[0].result["width"], int)
assert_type(tasks[1:], dibs.Tasks[dict[str, int]])
assert_type(app.tasks([1, 2]), dibs.Tasks[Any])
for task in tasks.as_completed():
    assert_type(task, dibs.Task[dict[str, int]])
for task in tasks:
    assert_type(task.result["width"], int)


async def numbers() -> AsyncIterator[int]:
    yield 7


async def main() -> None:
    scaled = await scale.map([1, 2], width=400)
    assert_type(scaled, dibs.AsyncTasks[int])
    assert_type(await scale.map(numbers()), dibs.AsyncTasks[int])
    assert_type(await scale.starmap([(7, 400)]), dibs.AsyncTasks[int])
    assert_type(await (await scaled.wait()).results(), list[int])
    assert_type((await scaled[0]).result, int)
    assert_type(async_app.tasks([1, 2]), dibs.AsyncTasks[Any])
    async for each in scaled.as_completed():
        assert_type(each, dibs.AsyncTask[int])
