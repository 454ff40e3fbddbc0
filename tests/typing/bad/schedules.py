"""Options that no schedule has. Both type checkers refuse exactly the marked lines."""

from __future__ import annotations

from datetime import UTC, datetime

import dibs

app = dibs.Dibs("sqlite://")
async_app = dibs.AsyncDibs("sqlite://")


@app.task(schedule="0 4 * * *", overlap="never")  # refused
def report() -> None: ...


@app.task(schedule="0 4 * * *", catch_up="some")  # refused
def late() -> None: ...


@app.task(every="30s")  # refused
def poll() -> None: ...


@app.task(at="2030-01-31")  # refused
def once() -> None: ...


app.set_schedule("nightly", "0 4 * * *", type="report", overlap="never")  # refused
app.set_schedule("nightly", "0 4 * * *", type="report", catch_up="some")  # refused
app.set_schedule("nightly", at=datetime.now(UTC), type="report", until=datetime.now(UTC))  # refused


async def main() -> None:
    print(async_app.set_schedule("poll", every=30, type="poll").next_at)  # refused
    await async_app.set_schedule("poll", every=30, type="poll", overlap="never")  # refused
