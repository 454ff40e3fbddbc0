"""Claims: take tasks, the next ones or one by its id."""

from __future__ import annotations

from dibs.errors import DibsError
from dibs.model.claim import Claim, ClaimRequest
from dibs.model.key import Scope
from dibs.server.api.claim_refs import TAG, check_worker
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire import claims as wire


@endpoint(
    "POST",
    "/api/tasks/claim",
    Scope.WORK,
    tag=TAG,
    body=wire.ClaimBody,
    answers={
        200: (wire.Claimed, "The task is yours."),
        404: (wire.NoneAvailable, "No pending task passes the filters."),
    },
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
    body: wire.ClaimBody = call.body
    request = request_of(call, body, body.worker_id)
    claims = await call.service.coalesced.claim(request, call.caller.by)
    if not claims and body.wait > 0:
        async with call.departure() as gone:
            claims = await call.service.long_polls.wait(request, call.caller.by, body.wait, gone)
        await _check_after_waiting(call, claims)
    if not claims:
        return Answer(wire.NoneAvailable.from_request(body), 404)
    return Answer(wire.Claimed.from_model(claims, several=body.count is not None))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/claim",
    Scope.WORK,
    tag=TAG,
    body=wire.ClaimByIdBody,
    answers={200: (wire.Claimed, "The task is yours.")},
    refuses={404: "", 409: "Another worker holds it, or it is not pending."},
    examples={"this one": {"worker_id": "worker-youtube-01"}},
)
async def claim_by_id(call: Call) -> Answer:
    """Claim this task."""
    body: wire.ClaimByIdBody = call.body
    await call.check_visible(call.task_id)
    check_worker(body.worker_id)
    claimed = await call.run(call.service.store.queue.claim_by_id(call.task_id, body.to_model()))
    return Answer(wire.Claimed.from_model([claimed]))


async def _check_after_waiting(call: Call, claims: list[Claim]) -> None:
    try:
        await call.service.check_still_admitted(call.http[0], call.caller)
    except DibsError:
        if claims:
            await call.service.long_polls.release(claims)
        raise


def request_of(call: Call, wish: wire.ClaimOptions, worker_id: str) -> ClaimRequest:
    """What the store is asked for, on behalf of this caller."""
    return wish.to_model(check_worker(worker_id), call.caller.narrow(wish.queues))


ENDPOINTS = [claim, claim_by_id]
