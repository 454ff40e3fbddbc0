"""Upkeep on request (servers and workers also do it by themselves), the doctor, and statistics."""

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


def _upkeep(
    name: str, body: type[RequestBody], meaning: str, answer: type[msgspec.Struct] = Counted
) -> Callable[[Handle], Endpoint]:
    """Declare an endpoint for one kind of upkeep. Most of them answer with a number."""
    path, answers = f"/api/upkeep/{name}", {200: (answer, meaning)}
    return endpoint("POST", path, Scope.ADMIN, tag=UPKEEP_TAG, body=body, body_optional=True, answers=answers)


@_upkeep("promote", LimitBody, "The number of tasks that became pending.")
async def promote(call: Call) -> Answer:
    """Make due tasks pending."""
    return await _count(call, call.service.store.upkeep.promote(call.body.limit))


@_upkeep("recover", LimitBody, "The number of tasks that were recovered.")
async def recover(call: Call) -> Answer:
    """Recover tasks whose lease ended."""
    return await _count(call, call.service.store.upkeep.recover(call.body.limit))


@_upkeep("prune", PruneBody, "One batch was deleted.", PrunedAnswer)
async def prune(call: Call) -> Answer:
    """Delete finished tasks past their retention: one batch, up to `limit` tasks of each state.

    The retention rules are at `/api/retention`. If a rule for a type, queue or workflow is set, a batch inspects a
    bounded number of tasks. It may then delete none although `next` leads to more.
    """
    call.caller.check_whole_store()
    done = await call.run(call.service.store.upkeep.prune(call.body.limit, call.body.to_model()))
    return Answer(PrunedAnswer.from_model(done))


@_upkeep("prune-history", LimitBody, "The number of entries that were deleted.")
async def prune_history(call: Call) -> Answer:
    """Delete entries of the history past their retention, oldest first."""
    return await _count(call, call.service.store.upkeep.prune_history(call.body.limit))


@_upkeep("prune-workers", Empty, "The number of workers that were deleted.")
async def prune_workers(call: Call) -> Answer:
    """Delete workers whose last heartbeat is past their retention."""
    return await _count(call, call.service.store.upkeep.prune_workers())


@_upkeep("expire-tasks", LimitBody, "The number of tasks that were cancelled.")
async def expire_tasks(call: Call) -> Answer:
    """Cancel waiting tasks that were not started by their expiry."""
    return await _count(call, call.service.store.upkeep.expire_tasks(call.body.limit))


@_upkeep("expire-workflows", LimitBody, "The number of workflows that start no more steps.")
async def expire_workflows(call: Call) -> Answer:
    """Stop workflows past their deadline."""
    return await _count(call, call.service.store.upkeep.expire_workflows(call.body.limit))


@_upkeep("mend-workflows", LimitBody, "The number of steps that were repaired.")
async def mend_workflows(call: Call) -> Answer:
    """Repair workflows whose steps ended without an update of the workflow, for example by an older program."""
    return await _count(call, call.service.store.upkeep.mend_workflows(call.body.limit))


async def _count(call: Call, operation: Operation[int]) -> Answer:
    call.caller.check_whole_store()
    return Answer(Counted.from_model(await call.run(operation)))


@endpoint("GET", "/api/doctor", Scope.ADMIN, tag=HEALTH_TAG, answers={200: (Checks, "The checks with their results.")})
async def doctor(call: Call) -> Answer:
    """Check the database for damage, and for settings that break a guarantee. This reads the whole database."""
    call.caller.check_whole_store()
    checks = await asyncio.to_thread(call.service.store.doctor)
    return Answer(Checks.from_model(checks))


@endpoint("GET", "/api/stats", Scope.READ, tag=QUEUES_TAG, answers={200: (OneStats, "The current statistics.")})
async def stats(call: Call) -> Answer:
    """Read the depth by state, queue and type, the age of the oldest pending task, throughput and latency."""
    return Answer(OneStats.from_model(await call.run(call.service.store.statistics.stats(call.caller.queues))))


ENDPOINTS = [
    promote,
    recover,
    prune,
    prune_history,
    prune_workers,
    expire_tasks,
    expire_workflows,
    mend_workflows,
    doctor,
    stats,
]
