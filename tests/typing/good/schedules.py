"""Schedules of handlers and of task types. Both type checkers accept every line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_type

import dibs

app = dibs.Dibs("sqlite://")
async_app = dibs.AsyncDibs("sqlite://")
tomorrow = datetime.now(UTC) + timedelta(days=1)


@app.task(schedule="0 4 * * *", timezone="Europe/Berlin", catch_up="none", overlap="skip", jitter=60)
def report() -> int:
    return 7


@async_app.task(every=30, start_at=tomorrow, overlap=dibs.Overlap.QUEUE, catch_up=dibs.CatchUp.ALL)
async def poll() -> None: ...


@app.task(at=tomorrow)
def once() -> None: ...


stored = app.set_schedule("nightly", "0 4 * * *", type="report", catch_up="all", overlap="queue", priority=5)
assert_type(stored, dibs.Schedule)
assert_type(stored.next_runs(3), list[datetime])
assert_type(app.schedules(), list[dibs.Schedule])


async def main() -> None:
    assert_type(await async_app.set_schedule("poll", every=30, type="poll"), dibs.Schedule)
