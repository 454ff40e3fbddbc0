"""Upkeep by hand, in small batches. The server does all of it by itself."""

from __future__ import annotations

from collections.abc import Callable

from dibs.body.fields import BatchLimit, Body, Kept
from dibs.key import Scope
from dibs.server.api.answers import Counted
from dibs.server.endpoint import Answer, Call, Endpoint, Handle, endpoint
from dibs.store.operation import Operation
from dibs.store.operations.tending import BATCH, Retention

TAG = "upkeep"
_KEPT = Retention()


class LimitBody(Body, frozen=True):
    """How many at most."""

    limit: BatchLimit = BATCH


class RetentionBody(Body, frozen=True):
    """How long finished things are kept."""

    completed_seconds: Kept = _KEPT.completed
    cancelled_seconds: Kept = _KEPT.cancelled
    failed_seconds: Kept = _KEPT.failed
    history_seconds: Kept = _KEPT.history
    workers_seconds: Kept = _KEPT.workers

    def retention(self) -> Retention:
        """In the words of the store."""
        return Retention(
            completed=self.completed_seconds,
            cancelled=self.cancelled_seconds,
            failed=self.failed_seconds,
            history=self.history_seconds,
            workers=self.workers_seconds,
        )


class PruneBody(RetentionBody, frozen=True):
    """How long finished things are kept, and how many go at most."""

    limit: BatchLimit = BATCH


def _chore(name: str, body: type[Body], done: str) -> Callable[[Handle], Endpoint]:
    """An endpoint for a piece of upkeep, whose answer is a number."""
    path, answers = f"/api/upkeep/{name}", {200: (Counted, done)}
    return endpoint("POST", path, Scope.ADMIN, tag=TAG, body=body, body_optional=True, answers=answers)


@_chore("promote", LimitBody, "So many became pending.")
async def promote(call: Call) -> Answer:
    """Make due tasks pending."""
    return await _count(call, call.service.store.promote(call.body.limit))


@_chore("recover", LimitBody, "So many were taken back.")
async def recover(call: Call) -> Answer:
    """Take tasks back whose lease ran out."""
    return await _count(call, call.service.store.recover(call.body.limit))


@_chore("prune", PruneBody, "So many are gone.")
async def prune(call: Call) -> Answer:
    """Delete finished tasks past their retention: up to `limit` of each state."""
    return await _count(call, call.service.store.prune(call.body.retention(), call.body.limit))


@_chore("prune-history", PruneBody, "So many are gone.")
async def prune_history(call: Call) -> Answer:
    """Delete history past its retention, oldest first."""
    return await _count(call, call.service.store.prune_history(call.body.retention(), call.body.limit))


@_chore("prune-workers", RetentionBody, "So many are forgotten.")
async def prune_workers(call: Call) -> Answer:
    """Forget workers that have not been heard of for long."""
    return await _count(call, call.service.store.prune_workers(call.body.retention()))


@_chore("expire-workflows", LimitBody, "So many begin nothing more.")
async def expire_workflows(call: Call) -> Answer:
    """Stop workflows past their deadline."""
    return await _count(call, call.service.store.expire_workflows(call.body.limit))


@_chore("mend-workflows", LimitBody, "So many steps were made up for.")
async def mend_workflows(call: Call) -> Answer:
    """Make up for steps that ended without their workflow being told, by a program older than workflows, say."""
    return await _count(call, call.service.store.mend_workflows(call.body.limit))


async def _count(call: Call, operation: Operation[int]) -> Answer:
    call.caller.check_whole_store()
    return Answer(Counted(True, await call.run(operation)))


ENDPOINTS = [promote, recover, prune, prune_history, prune_workers, expire_workflows, mend_workflows]
