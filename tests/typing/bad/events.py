"""Mistakes with events and log lines. Both type checkers refuse exactly the marked lines."""

from __future__ import annotations

import dibs

app = dibs.Dibs("sqlite://", capture_logs="info")  # refused
async_app = dibs.AsyncDibs("sqlite://")


@app.task(capture_logs=dibs.LogCapture(maximum=10))  # refused
def index(text: str) -> int:
    return len(text)


for event in app.events(7):  # refused
    print(event.name)  # refused
app.events(after="7")  # refused
app.logs(index.enqueue("tea"))  # refused


async def main() -> None:
    for event in async_app.events():  # refused
        print(event)
    async for line in app.follow_logs(7):  # refused
        print(line)
    print(async_app.logs(7)[0])  # refused
