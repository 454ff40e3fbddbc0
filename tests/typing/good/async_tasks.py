# pyright: strict
"""Programs that use typed tasks of AsyncDibs as intended. Both type checkers accept every line."""

from __future__ import annotations

from typing import Any, assert_type
from uuid import UUID

import dibs

app = dibs.AsyncDibs("sqlite://")


@app.task
async def fetch(url: str) -> UUID:
    return UUID(int=len(url))


@app.task(queue="pictures")
def resize(ctx: dibs.Context, picture: int) -> tuple[int, int]:
    return (picture, picture)


def show(which: dibs.AsyncTask) -> str:
    return which.state


async def main() -> None:
    task = await fetch.enqueue("https://example.org")
    assert_type(task, dibs.AsyncTask[UUID])
    done = await task.wait(timeout=30)
    assert_type(done, dibs.AsyncTask[UUID])
    assert_type(done.result, UUID)
    assert_type((await (await resize.enqueue(7)).wait()).result, tuple[int, int])
    assert_type(await resize.get(7), dibs.AsyncTask[tuple[int, int]] | None)
    assert_type(await fetch("https://example.org"), UUID)
    assert_type((await app.wait(7)).result, Any)
    show(task)
    assert_type(await task.logs(level="error"), list[dibs.LogLine])
    async for line in task.follow_logs():
        assert_type(line, dibs.LogLine)
    async for line in app.follow_logs(7, attempt=1):
        assert_type(line, dibs.LogLine)
