"""Health: is the process alive, and would a request get an answer? Asked without a key, by whoever starts servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

from dibs.server.endpoint import Answer, Call, endpoint
from dibs.server.liveness import threads_answer
from dibs.store.operation import Mode, Operation
from dibs.wire.admin import Alive, Ready
from dibs.wire.errors import RequestRefused

TAG = "health"
PATIENCE = 2.0
"""Seconds for which the database, or the server's own threads, may keep silent."""


@endpoint("GET", "/health", tag=TAG, answers={200: (Alive, "The process is alive.")})
async def health(call: Call) -> Answer:
    """Is the process alive? The database is not asked: restarting a server does not help a database."""
    return Answer(Alive())


@endpoint(
    "GET",
    "/ready",
    tag=TAG,
    answers={200: (Ready, "Send requests.")},
    refuses={
        503: "The database does not answer, the server is stuck (its event loop or its threads do not answer), or the "
        "server is about to stop: send requests elsewhere."
    },
)
async def ready(call: Call) -> Answer:
    """Would a request get an answer now?"""
    if call.service.stopping.is_set():
        raise RequestRefused("stopping", "The server is about to stop.", hint="Send requests to another one.")
    if (trouble := call.service.liveness.trouble()) is not None:
        raise RequestRefused("stuck", trouble, hint="Its log says where it was stuck.")
    await _answers(threads_answer(), "stuck", "The threads of the server have", "Its log says what it is doing.")
    # On SQLite as a write: requests that write wait for the lock of the file, and for the thread that commits. On
    # PostgreSQL as a read, which is repeated where a connection turns out to be broken.
    store = call.service.store
    look: Operation[int] = store.history.last_entry()
    if not store.many_writers:
        look = replace(look, mode=Mode.WRITE)
    hint = "Is it running, can this machine reach it, and does no other program hold it locked?"
    reading: Awaitable[int] = call.run(look)
    await _answers(reading, "store_unavailable", "The database has", hint)
    return Answer(Ready())


async def _answers(waited_for: Awaitable[object], code: str, what: str, hint: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await waited_for
    except TimeoutError:
        raise RequestRefused(code, f"{what} not answered within {PATIENCE:g} seconds.", hint=hint) from None


ENDPOINTS = [health, ready]
