"""The waiting room: claims that wait for a task, without a connection to the database while they do.

Those who ask for the same kind of task wait in one line, oldest first. When something changes, the first in line
claims; only if it got a task does the next one try. So a hundred idle workers cost one look at the store, and a new
task goes to whoever has waited longest.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dibs.errors import DibsError
from dibs.model.claim import Claim, ClaimRequest, Released
from dibs.procedures import claim_now
from dibs.store.contract import DatabaseStore
from dibs.store.operation import drive_async

logger = logging.getLogger("dibs.server")

POLL = 0.25
"""Seconds after which the first in line looks even if nothing woke it: a hint can be lost, and tasks become due."""

REST = 0.005
"""Seconds between two looks that find nothing: on a busy store most changes are not for those who wait."""

Kind = tuple[Any, ...]


@dataclass(eq=False, slots=True)
class Waiter:
    """One request that waits."""

    request: ClaimRequest
    by: str | None
    leaving: bool = False
    claims: asyncio.Future[list[Claim]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class WaitingRoom:
    """All lines."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._lines: dict[Kind, deque[Waiter]] = {}
        self._servers: set[asyncio.Task[None]] = set()
        self._closed = False
        self.waiting = 0
        """How many requests wait, with those that look at the store at this moment."""

    async def wait(
        self, request: ClaimRequest, by: str | None, seconds: float, gone: asyncio.Future[Any]
    ) -> list[Claim]:
        """What could be claimed within so many seconds; nothing for a client that has gone in the meantime."""
        if self._closed:
            return []
        waiter = Waiter(request, by)
        self.waiting += 1
        try:
            self._join(waiter)
            await asyncio.wait({waiter.claims, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            claims = await self._leave(waiter)
        finally:
            self.waiting -= 1
        if gone.done() and claims:
            await self.release(claims)
            return []
        return claims

    async def release(self, claims: list[Claim]) -> None:
        """Give tasks back that nobody will run; if that fails, they come back when their lease ends."""
        try:
            await self._store.run_async(self._store.queue.finish([(claim, Released()) for claim in claims]))
        except DibsError as error:
            logger.warning("%d tasks of a client that is gone stay claimed: %s", len(claims), error.message)

    def close(self) -> None:
        """Let everybody go, empty-handed."""
        self._closed = True
        for line in self._lines.values():
            while line:
                _settle(line.popleft(), [])

    async def closed(self) -> None:
        """Once nobody claims for those who waited any more."""
        await asyncio.gather(*self._servers, return_exceptions=True)

    def _join(self, waiter: Waiter) -> None:
        request = waiter.request
        kind = (_names(request.queues), _names(request.types), request.max_attempts_remaining)
        if kind in self._lines:
            self._lines[kind].append(waiter)
            return
        self._lines[kind] = deque([waiter])
        server = asyncio.create_task(self._serve(kind))
        self._servers.add(server)
        server.add_done_callback(self._servers.discard)

    async def _leave(self, waiter: Waiter) -> list[Claim]:
        """Out of the line; one whose turn it is right now gets what comes of it."""
        waiter.leaving = True
        for line in self._lines.values():
            if waiter in line:
                line.remove(waiter)
                return []
        return await waiter.claims

    async def _serve(self, kind: Kind) -> None:
        line = self._lines[kind]
        try:
            while line:
                seen = self._store.wakeups.generation  # before looking: what comes while we look wakes us at once
                await self._serve_line(line)
                if line:  # nothing more for them now
                    await asyncio.sleep(REST)
                    await self._store.wakeups.wait_async(seen, POLL)
        except Exception as error:  # whatever it is: nobody must wait for an answer that never comes
            for waiter in line:
                if not waiter.claims.done():
                    waiter.claims.set_exception(error)
            line.clear()
        finally:
            del self._lines[kind]

    async def _serve_line(self, line: deque[Waiter]) -> None:
        """One after the other, until there is nothing left for their kind."""
        while line:
            waiter = line.popleft()
            try:
                run = partial(self._store.run_async, by=waiter.by)
                claims = await drive_async(claim_now(self._store, waiter.request), run)
            except Exception as error:
                waiter.claims.set_exception(error)
                raise
            if claims or waiter.leaving or self._closed:
                _settle(waiter, claims)
            else:
                line.appendleft(waiter)
                return


def _settle(waiter: Waiter, claims: list[Claim]) -> None:
    if not waiter.claims.done():
        waiter.claims.set_result(claims)


def _names(names: Any) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
