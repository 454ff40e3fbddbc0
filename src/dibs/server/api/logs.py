"""The log lines of tasks: workers write them in batches, clients read them page by page or wait for the next ones."""

from __future__ import annotations

import asyncio
import time

from dibs.model.key import Scope
from dibs.model.logs import LogPage
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.fields import Counted
from dibs.wire.logs import LogLines, LogLinesBody, LogQuery

TAG = "logs"

POLL_INTERVAL = 0.5
"""Seconds between two reads for a client that waits for lines. A write of lines wakes no waiters: the claimers of
workers would wake up as well, and find nothing."""


@endpoint(
    "POST",
    "/api/tasks/logs",
    Scope.WORK,
    tag=TAG,
    body=LogLinesBody,
    answers={200: (Counted, "The number of lines that were not stored before.")},
    examples={
        "one": {
            "lines": [
                {
                    "task_id": 1,
                    "token": 1,
                    "attempt": 1,
                    "number": 1,
                    "at": "2025-11-12T10:30:00Z",
                    "level": "info",
                    "logger": "videos",
                    "message": "downloaded 12 MB",
                }
            ]
        }
    },
)
async def add_lines(call: Call) -> Answer:
    """Store lines that handlers have logged, each under its task and token.

    The request can be repeated: a line that is stored already stays as it is. Lines of tasks that do not exist (any
    more), and lines under a token that the task has not issued, are dropped. The token need not be live.
    """
    body: LogLinesBody = call.body
    lines = [line.to_model() for line in body.lines]
    visible = await call.visible([line.task_id for line in lines])
    allowed = lines if visible is None else [line for line in lines if line.task_id in visible]
    return Answer(Counted.from_model(await call.run(call.service.store.logs.add_log_lines(allowed))))


@endpoint(
    "GET",
    "/api/tasks/{id:int}/logs",
    Scope.READ,
    tag=TAG,
    query=LogQuery,
    answers={200: (LogLines, "The lines in order: by token, then by number.")},
    refuses={404: ""},
)
async def log_lines(call: Call) -> Answer:
    """Read what the handlers of a task have logged.

    To follow a task that runs, repeat the request with the `id` of the last line as `after` and with `wait_seconds`,
    until an answer without lines has `ended`. The lines of an attempt are written about once a second, and soon after
    its end.
    """
    query: LogQuery = call.query or LogQuery()
    await call.check_visible(call.task_id)
    if query.wait > 0:
        async with call.disconnection() as disconnected:
            page = await _wait_for_lines(call, query, disconnected)
    else:
        page = await _read(call, query)
    return Answer(LogLines.from_model(page))


async def _read(call: Call, query: LogQuery) -> LogPage:
    return await call.run(call.service.store.logs.log_page(call.task_id, query.to_model()))


async def _wait_for_lines(call: Call, query: LogQuery, disconnected: asyncio.Future[None]) -> LogPage:
    """Read until there are lines, the task has ended, the time is over, or the client has disconnected."""
    deadline = time.monotonic() + query.wait
    stopping = asyncio.ensure_future(call.service.stopping.wait())
    try:
        while True:
            page = await _read(call, query)
            left = deadline - time.monotonic()
            if page.lines or page.ended or left <= 0 or stopping.done() or disconnected.done():
                return page
            waits: set[asyncio.Future[object]] = {stopping, disconnected}  # type: ignore[arg-type]
            await asyncio.wait(waits, timeout=min(left, POLL_INTERVAL), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()


ENDPOINTS = [add_lines, log_lines]
