"""Long polling: claims that wait for a task, without a database connection while they wait.

Claims with the same queues and types wait in one queue, oldest first. When the store changes, the first one claims; the
next one tries only if the first got a task. So a hundred idle workers cost one claim per change, and a new task goes to
the claim that has waited longest.
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
from dibs.procedures import DueWaits, claim_now, until_next_poll
from dibs.store.contract import DatabaseStore
from dibs.store.operation import drive_async

logger = logging.getLogger("dibs.server")

EMPTY_PAUSE = 0.005
"""Seconds between two claims without a task: on a busy store most changes do not concern the waiting claims."""

ClaimKind = tuple[Any, ...]


@dataclass(eq=False, slots=True)
class WaitingClaim:
    """A claim that waits for a task."""

    request: ClaimRequest
    by: str | None
    leaving: bool = False
    claims: asyncio.Future[list[Claim]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LongPolls:
    """The waiting claims of this process, in one queue for each kind of claim."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._queues: dict[ClaimKind, deque[WaitingClaim]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.waiting = 0
        """The number of waiting requests, including those that claim at this moment."""

    async def wait(
        self, request: ClaimRequest, by: str | None, seconds: float, disconnected: asyncio.Future[Any]
    ) -> list[Claim]:
        """Claim tasks within the given time. Tasks for a client that disconnected meanwhile are released."""
        if self._closed:
            return []
        waiter = WaitingClaim(request, by)
        self.waiting += 1
        try:
            self._add(waiter)
            await asyncio.wait({waiter.claims, disconnected}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            claims = await self._remove(waiter)
        finally:
            self.waiting -= 1
        if disconnected.done() and claims:
            await self.release(claims)
            return []
        return claims

    async def release(self, claims: list[Claim]) -> None:
        """Release the tasks of a disconnected client; if that fails, they are recovered when their lease expires."""
        try:
            await self._store.run_async(self._store.queue.finish([(claim, Released()) for claim in claims]))
        except DibsError as error:
            logger.warning(
                "%d tasks of a disconnected client stay claimed until their lease expires: %s",
                len(claims),
                error.message,
            )

    def close(self) -> None:
        """End all waiting requests without a task."""
        self._closed = True
        for queue in self._queues.values():
            while queue:
                _resolve(queue.popleft(), [])

    async def closed(self) -> None:
        """Wait for the end of running claims."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _add(self, waiter: WaitingClaim) -> None:
        request = waiter.request
        kind = (_names(request.queues), _names(request.types), request.max_attempts_remaining)
        if kind in self._queues:
            self._queues[kind].append(waiter)
            return
        self._queues[kind] = deque([waiter])
        task = asyncio.create_task(self._run_queue(kind))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _remove(self, waiter: WaitingClaim) -> list[Claim]:
        """Remove the claim from its queue; a claim that is running returns its result."""
        waiter.leaving = True
        for queue in self._queues.values():
            if waiter in queue:
                queue.remove(waiter)
                return []
        return await waiter.claims

    async def _run_queue(self, kind: ClaimKind) -> None:
        queue, waits = self._queues[kind], DueWaits()
        try:
            while queue:
                # The generation is read before claiming: a change during the claim ends the wait at once.
                seen = self._store.wakeups.generation
                waits.claimed(await self._claim_in_order(queue))
                if queue:  # no task is left for this kind of claim
                    await asyncio.sleep(EMPTY_PAUSE)
                    pause = await drive_async(until_next_poll(self._store, waits), self._store.run_async)
                    await self._store.wakeups.wait_async(seen, pause)
        except Exception as error:  # on any error, all waiting requests must get an answer
            for waiter in queue:
                if not waiter.claims.done():
                    waiter.claims.set_exception(error)
            queue.clear()
        finally:
            del self._queues[kind]

    async def _claim_in_order(self, queue: deque[WaitingClaim]) -> bool:
        """Run the waiting claims in order until one gets no task. True if any got a task."""
        found = False
        while queue:
            waiter = queue.popleft()
            try:
                run = partial(self._store.run_async, by=waiter.by)
                claims = await drive_async(claim_now(self._store, waiter.request), run)
            except Exception as error:
                waiter.claims.set_exception(error)
                raise
            if claims or waiter.leaving or self._closed:
                found = found or bool(claims)
                _resolve(waiter, claims)
            else:
                queue.appendleft(waiter)
                break
        return found


def _resolve(waiter: WaitingClaim, claims: list[Claim]) -> None:
    if not waiter.claims.done():
        waiter.claims.set_result(claims)


def _names(names: Any) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
