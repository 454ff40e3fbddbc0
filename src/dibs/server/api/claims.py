"""Claims: take tasks, the next ones or one by its id."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dibs import shape
from dibs.body.fields import AttemptsRemaining, Body, Count, Lease, Name, Names, RequestId, Wait, WorkerId
from dibs.errors import DibsError
from dibs.model.claim import DEFAULT_LEASE, Claim, ClaimRequest
from dibs.model.key import Scope
from dibs.server.api.fencing import TAG, check_worker
from dibs.server.api.ordering import Ordered, order_of
from dibs.server.endpoint import Answer, Call, endpoint


class ClaimWish(Ordered, frozen=True):
    """Which tasks to claim, how many, and for how long."""

    queues: Annotated[Names, Meta(description="Only tasks of these queues.")] | None = None
    task_types: Annotated[Names, Meta(description="Only tasks of these types.")] | None = None
    max_attempts_remaining: AttemptsRemaining | None = None
    count: Annotated[Count, Meta(description="Up to so many; the answer then has `tasks`.")] | None = None
    lease_seconds: Lease = DEFAULT_LEASE
    incarnation: Annotated[Name, Meta(description="Tells two lives of a worker of the same name apart.")] | None = None
    ahead: Annotated[
        bool, Meta(description="They will wait before they begin, each told by /start; not charged an attempt before.")
    ] = False
    request_id: RequestId | None = None


class ClaimBody(ClaimWish, frozen=True, kw_only=True):
    """A worker's wish for tasks."""

    worker_id: WorkerId
    wait_seconds: Wait = 0


class ClaimByIdBody(Body, frozen=True):
    """A worker's wish for this task."""

    worker_id: WorkerId
    lease_seconds: Lease = DEFAULT_LEASE
    request_id: RequestId | None = None


class Claimed(msgspec.Struct, frozen=True):
    """The claimed task; with `count` also all of them, best first."""

    success: bool
    task: shape.TaskShape
    message: str
    tasks: list[shape.TaskShape] | UnsetType = UNSET


class FiltersShape(msgspec.Struct, frozen=True):
    """What was asked for."""

    task_types: list[str] | None
    max_attempts_remaining: int | None
    queues: list[str] | UnsetType = UNSET


class NoneAvailable(msgspec.Struct, frozen=True):
    """Nothing to claim."""

    success: bool
    message: str
    filters: FiltersShape


@endpoint(
    "POST",
    "/api/tasks/claim",
    Scope.WORK,
    tag=TAG,
    body=ClaimBody,
    answers={200: (Claimed, "The task is yours."), 404: (NoneAvailable, "No pending task passes the filters.")},
    examples={
        "the usual": {
            "worker_id": "worker-youtube-01",
            "task_types": ["youtube_video_scrape"],
            "max_attempts_remaining": 1,
            "sort_by": "priority",
            "sort_order": "desc",
        },
        "up to fifty, wait for them": {"worker_id": "worker-youtube-01", "count": 50, "wait_seconds": 20},
    },
)
async def claim(call: Call) -> Answer:
    """Claim the next task (or `count` of them).

    Each claimed task is yours alone, under a token that fences every later write about it, until its lease ends. Of
    several who ask at the same moment each gets another task. With `wait_seconds` the answer waits for a task.
    """
    body: ClaimBody = call.body
    request = request_of(call, body, body.worker_id)
    claims = await call.service.desk.claim(request, call.caller.by)
    if not claims and body.wait_seconds > 0:
        async with call.departure() as gone:
            claims = await call.service.long_polls.wait(request, call.sign, body.wait_seconds, gone)
        await _check_after_waiting(call, claims)
    return _claimed(claims, body) if claims else _none_available(body)


@endpoint(
    "POST",
    "/api/tasks/{id:int}/claim",
    Scope.WORK,
    tag=TAG,
    body=ClaimByIdBody,
    answers={200: (Claimed, "The task is yours.")},
    refuses={404: "", 409: "Another worker holds it, or it is not pending."},
    examples={"this one": {"worker_id": "worker-youtube-01"}},
)
async def claim_by_id(call: Call) -> Answer:
    """Claim this task."""
    body: ClaimByIdBody = call.body
    await call.check_visible(call.task_id)
    request = ClaimRequest(worker_id=check_worker(body.worker_id), lease=body.lease_seconds, request=body.request_id)
    claimed = await call.run(call.service.store.claim_by_id(call.task_id, request))
    return Answer(Claimed(True, shape.task(claimed.task), "Task claimed successfully"))


async def _check_after_waiting(call: Call, claims: list[Claim]) -> None:
    try:
        await call.service.check_still_admitted(call.http[0], call.caller)
    except DibsError:
        if claims:
            await call.service.long_polls.release(claims)
        raise


def request_of(call: Call, wish: ClaimWish, worker_id: str) -> ClaimRequest:
    """What the store is asked for, on behalf of this caller."""
    return ClaimRequest(
        queues=call.caller.narrow(wish.queues),
        types=wish.task_types,
        max_attempts_remaining=wish.max_attempts_remaining,
        order=order_of(wish),
        count=wish.count or 1,
        worker_id=check_worker(worker_id),
        incarnation=wish.incarnation,
        lease=wish.lease_seconds,
        ahead=wish.ahead,
        request=wish.request_id,
    )


def _claimed(claims: list[Claim], body: ClaimBody) -> Answer:
    tasks = [shape.task(claim.task) for claim in claims]
    if body.count is None:
        return Answer(Claimed(True, tasks[0], "Task claimed successfully"))
    message = "Task claimed successfully" if len(tasks) == 1 else f"{len(tasks)} tasks claimed successfully"
    return Answer(Claimed(True, tasks[0], message, tasks))


def _none_available(body: ClaimBody) -> Answer:
    queues = UNSET if body.queues is None else body.queues
    filters = FiltersShape(body.task_types, body.max_attempts_remaining, queues)
    return Answer(NoneAvailable(False, "No pending tasks available", filters), 404)


ENDPOINTS = [claim, claim_by_id]
