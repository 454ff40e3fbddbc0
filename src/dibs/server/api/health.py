"""Health: is the process alive, and would a request get an answer? Asked without a key, by whoever starts servers."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from dibs.server.endpoint import Answer, Call, endpoint
from dibs.server.refusing import Refusal

TAG = "health"
PATIENCE = 2.0
"""Seconds for which the database may keep silent."""


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(msgspec.Struct, frozen=True):
    """The database answers as well."""

    status: Literal["ready"] = "ready"


@endpoint("GET", "/health", tag=TAG, answers={200: (Alive, "The process is alive.")})
async def health(call: Call) -> Answer:
    """Is the process alive? The database is not asked: restarting a server does not help a database."""
    return Answer(Alive())


@endpoint(
    "GET",
    "/ready",
    tag=TAG,
    answers={200: (Ready, "Send requests.")},
    refuses={503: "The database does not answer, or the server is about to stop: send requests elsewhere."},
)
async def ready(call: Call) -> Answer:
    """Would a request get an answer now?"""
    if call.service.stopping.is_set():
        raise Refusal("stopping", "The server is about to stop.", hint="Send requests to another one.")
    try:
        async with asyncio.timeout(PATIENCE):
            await call.run(call.service.store.last_entry())
    except TimeoutError:
        message = f"The database has not answered within {PATIENCE:g} seconds."
        raise Refusal("store_unavailable", message, hint="Is it running, and can this machine reach it?") from None
    return Answer(Ready())


ENDPOINTS = [health, ready]
