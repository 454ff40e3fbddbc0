"""Events of the store and log lines of tasks. Both type checkers accept every line."""

from __future__ import annotations

from datetime import datetime
from typing import assert_type

import dibs

app = dibs.Dibs("sqlite://", capture_logs=True)
async_app = dibs.AsyncDibs("sqlite://", capture_logs=dibs.LogCapture(level="warning", prints=True))


@app.task(capture_logs=dibs.LogCapture(max_lines=10))
def index(text: str) -> int:
    return len(text)


for event in app.events(["completed", dibs.Event.FAILED], after=0, queue="mail"):
    assert_type(event, dibs.StoreEvent)
    assert_type(event.kind, dibs.Event)
    assert_type(event.type, str | None)
    assert_type(event.at, datetime)

assert_type(index.enqueue("tea").logs(level="error"), list[dibs.LogLine])
for line in app.follow_logs(7, attempt=1):
    assert_type(line.level, dibs.LogLevel)


async def main() -> None:
    async for event in async_app.events(after=7):
        assert_type(event.id, int)
    assert_type(await async_app.logs(7), list[dibs.LogLine])
    async for line in (await async_app.enqueue("index")).follow_logs():
        assert_type(line.message, str)
