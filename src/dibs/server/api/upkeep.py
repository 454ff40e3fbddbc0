"""Upkeep by hand (the server does all of it by itself), the doctor, and the store in numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, Endpoint, Handle, endpoint
from dibs.store.operation import Operation
from dibs.wire.admin import Checks, LimitBody, OneStats, PruneBody, PrunedAnswer
from dibs.wire.fields import Counted, Empty, RequestBody

UPKEEP_TAG = "upkeep"
HEALTH_TAG = "health"
QUEUES_TAG = "queues"


def _chore(
    name: str, body: type[RequestBody], done: str, answer: type[msgspec.Struct] = Counted
) -> Callable[[Handle], Endpoint]:
    """An endpoint for a piece of upkeep, whose answer is a number."""
    path, answers = f"/api/upkeep/{name}", {200: (answer, done)}
    return endpoint("POST", path, Scope.ADMIN, tag=UPKEEP_TAG, body=body, body_optional=True, answers=answers)


@_chore("promote", LimitBody, "So many became pending.")
async def promote(call: Call) -> Answer:
    """Make due tasks pending."""
    return await _count(call, call.service.store.upkeep.promote(call.body.limit))


@_chore("recover", LimitBody, "So many were taken back.")
async def recover(call: Call) -> Answer:
    """Take tasks back whose lease ran out."""
    return await _count(call, call.service.store.upkeep.recover(call.body.limit))


@_chore("prune", PruneBody, "One batch is deleted.", PrunedAnswer)
async def prune(call: Call) -> Answer:
    """Delete finished tasks past their retention (see /api/retention): one batch, up to `limit` of each state. Where
    rules for types, queues or workflows are set, a batch looks at a bounded number of tasks, and may delete none while
    `next` leads to more."""
    call.caller.check_whole_store()
    done = await call.run(call.service.store.upkeep.prune(call.body.limit, call.body.to_model()))
    return Answer(PrunedAnswer.from_model(done))


@_chore("prune-history", LimitBody, "So many are gone.")
async def prune_history(call: Call) -> Answer:
    """Delete history past its retention, oldest first."""
    return await _count(call, call.service.store.upkeep.prune_history(call.body.limit))


@_chore("prune-workers", Empty, "So many are forgotten.")
async def prune_workers(call: Call) -> Answer:
    """Delete workers whose last heartbeat is past their retention."""
    return await _count(call, call.service.store.upkeep.prune_workers())


@_chore("expire-workflows", LimitBody, "So many begin nothing more.")
async def expire_workflows(call: Call) -> Answer:
    """Stop workflows past their deadline."""
    return await _count(call, call.service.store.upkeep.expire_workflows(call.body.limit))


@_chore("mend-workflows", LimitBody, "So many steps were made up for.")
async def mend_workflows(call: Call) -> Answer:
    """Make up for steps that ended without their workflow being told, by a program older than workflows, say."""
    return await _count(call, call.service.store.upkeep.mend_workflows(call.body.limit))


async def _count(call: Call, operation: Operation[int]) -> Answer:
    call.caller.check_whole_store()
    return Answer(Counted.from_model(await call.run(operation)))


@endpoint("GET", "/api/doctor", Scope.ADMIN, tag=HEALTH_TAG, answers={200: (Checks, "Each check with its verdict.")})
async def doctor(call: Call) -> Answer:
    """Look for damage, and for settings that would cost a guarantee. This reads the whole database."""
    call.caller.check_whole_store()
    checks = await asyncio.to_thread(call.service.store.doctor)
    return Answer(Checks.from_model(checks))


@endpoint("GET", "/api/stats", Scope.READ, tag=QUEUES_TAG, answers={200: (OneStats, "As of now.")})
async def stats(call: Call) -> Answer:
    """Depth by state, queue and type, the age of the oldest pending task, throughput and latency."""
    return Answer(OneStats.from_model(await call.run(call.service.store.statistics.stats(call.caller.queues))))


ENDPOINTS = [promote, recover, prune, prune_history, prune_workers, expire_workflows, mend_workflows, doctor, stats]
