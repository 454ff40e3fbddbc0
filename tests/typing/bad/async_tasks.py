"""Forgotten awaits and other mistakes with tasks of AsyncDibs. Both type checkers refuse exactly the marked lines."""

from __future__ import annotations

import dibs

app = dibs.AsyncDibs("sqlite://")


@app.task
async def fetch(url: str) -> bytes:
    return url.encode()


def wait_for(task: dibs.Task[bytes]) -> bytes:
    return task.wait().result


async def main() -> None:
    task = await fetch.enqueue("a")
    fetch.enqueue("b")  # refused
    task.wait(timeout=30)  # refused
    app.wait(7)  # refused
    print(task.wait().result)  # refused
    state = fetch.enqueue("a").state  # refused
    found = fetch.get(7).result  # refused
    length: int = await fetch("a")  # refused
    result: str = (await task.wait()).result  # refused
    wait_for(task)  # refused
    await fetch.enqueue(7)  # refused
    await fetch.on(object()).enqueue(7)  # refused
    print(state, found, length, result)
