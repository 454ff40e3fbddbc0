"""Claims: claim the next tasks, or one task by its id."""

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
        200: (wire.Claimed, "The task is claimed."),
        404: (wire.NoneAvailable, "No pending task matches the filters."),
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
    """Claim the next task, or up to `count` tasks.

    A claimed task belongs to one worker until its lease ends. Every later write about the task needs the token of the
    claim. Concurrent claims get different tasks. With `wait_seconds` the request waits until a task is there.
    """
    body: wire.ClaimBody = call.body
    request = request_of(call, body, body.worker_id)
    claims = await call.service.coalesced.claim(request, call.caller.by)
    if not claims and body.wait > 0:
        async with call.disconnection() as disconnected:
            claims = await call.service.long_polls.wait(request, call.caller.by, body.wait, disconnected)
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
    answers={200: (wire.Claimed, "The task is claimed.")},
    refuses={404: "", 409: "Another worker holds the task, or the task is not pending."},
    examples={"this one": {"worker_id": "worker-youtube-01"}},
)
async def claim_by_id(call: Call) -> Answer:
    """Claim one task by its id."""
    body: wire.ClaimByIdBody = call.body
    await call.check_visible(call.task_id)
    check_worker(body.worker_id)
    claimed = await call.run(call.service.store.queue.claim_by_id(call.task_id, body.to_model()))
    return Answer(wire.Claimed.from_model([claimed]))


async def _check_after_waiting(call: Call, claims: list[Claim]) -> None:
    """Refuse a caller whose key was revoked or expired during the wait, and release its new claims."""
    try:
        await call.service.check_admitted(call.http[0], call.caller)
    except DibsError:
        if claims:
            await call.service.long_polls.release(claims)
        raise


def request_of(call: Call, body: wire.ClaimOptions, worker_id: str) -> ClaimRequest:
    """Return the claim request for the store, limited to the queues of the caller."""
    return body.to_model(check_worker(worker_id), call.caller.narrow(body.queues))


ENDPOINTS = [claim, claim_by_id]
