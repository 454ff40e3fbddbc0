"""Finalization: exactly one processor decides how a workflow ended. A processor claims the finalization, and the token
of the claim fences its writes.

The server finalizes workflows by itself; these endpoints are for custom processors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dibs.errors import WorkflowNotFound
from dibs.model.claim import check_lease
from dibs.model.finalization import ClaimReason, FinalizationClaim
from dibs.model.key import Scope
from dibs.server.api.workflows import MISSING, if_visible, workflow_id
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.store.operation import Operation
from dibs.wire import finalization as wire

TAG = "finalization"
ClaimOperation = Callable[[int], Operation[FinalizationClaim]]
PROCESSOR = {"processor_id": "billing-7c1f"}
HOLDER = {**PROCESSOR, "token": 1}


ANSWERS = {
    200: (wire.FinalizationClaim, "The processor holds the finalization."),
    404: (wire.UnknownWorkflow, "There is no such workflow."),
    409: (wire.NotClaimed, "The finalization was not claimed; `reason` and `message` say why."),
}


@endpoint(
    "POST",
    "/api/workflows/{id:int}/finalization/claim",
    Scope.WORK,
    tag=TAG,
    body=wire.ClaimFinalizationBody,
    answers=ANSWERS,
    refuses={404: "The path does not contain a valid id."},
    examples={"for half a minute": {**PROCESSOR, "timeout_seconds": 30}},
)
async def claim(call: Call) -> Answer:
    """Claim the finalization of a workflow.

    Of several processors, one gets the claim, under the next token, until its lease ends. Claiming again with the same
    `processor_id` extends the claim under the same token, so every process needs its own `processor_id`. Every attempt
    is recorded with its reason.
    """
    lease = check_lease(call.body.lease)
    store = call.service.store
    return await _claim(call, lambda id: store.finalization.claim_finalization(id, _processor(call), lease))


@endpoint(
    "POST",
    "/api/workflows/{id:int}/finalization/renew",
    Scope.WORK,
    tag=TAG,
    body=wire.ExtendBody,
    answers=ANSWERS,
    refuses={404: "The path does not contain a valid id."},
    examples={"another half minute": {**HOLDER, "timeout_seconds": 30}},
)
async def renew(call: Call) -> Answer:
    """Renew the finalization claim that this processor holds under this token.

    This grants no new claim: `reason` is `already_claimed` if another claim is held, and `not_claimed` if none is.
    """
    body: wire.ExtendBody = call.body
    lease = check_lease(body.lease)
    store = call.service.store
    return await _claim(call, lambda id: store.finalization.renew_finalization(id, body.processor, body.token, lease))


@endpoint(
    "POST",
    "/api/workflows/{id:int}/finalization/release",
    Scope.WORK,
    tag=TAG,
    body=wire.HolderBody,
    answers={200: (wire.FinalizationReleased, "The processor does not hold the finalization.")},
    refuses=MISSING,
    examples={"release it": HOLDER},
)
async def release(call: Call) -> Answer:
    """Release the finalization claim that this processor holds under this token. Any other claim does not change."""
    releasing = call.service.store.finalization.release_finalization(
        workflow_id(call), _processor(call), call.body.token
    )
    released = await call.run(if_visible(call, releasing))
    await _check_workflow_exists(call, released)
    return Answer(wire.FinalizationReleased.from_model(released))


@endpoint(
    "POST",
    "/api/workflows/{id:int}/finalize",
    Scope.WORK,
    tag=TAG,
    body=wire.HolderBody,
    answers={200: (wire.Finalized, "The action was carried out; the claim has ended.")},
    refuses={**MISSING, 409: "Another processor holds the claim, or the claim has ended. Nothing was changed."},
    examples={"as its holder": HOLDER},
)
async def finalize(call: Call) -> Answer:
    """Finalize a workflow, as the holder of its finalization, in one transaction.

    Depending on its steps, the workflow is completed, its finalizer starts, it fails, or it is checked again later.
    """
    acting = call.service.store.finalization.finalize(workflow_id(call), _processor(call), call.body.token)
    done = await call.run(if_visible(call, acting))
    for due in done.due:  # among others, the workflow of which this one is a step
        call.service.finalize(due)
    return Answer(wire.Finalized.from_model(done))


@endpoint(
    "GET",
    "/api/workflows/{id:int}/context",
    Scope.READ,
    tag=TAG,
    answers={200: (wire.OneContext, "The current counts, and the recommended action.")},
    refuses=MISSING,
)
async def context(call: Call) -> Answer:
    """Read how many steps of a workflow are in each state, and which action follows from that."""
    found = await call.run(if_visible(call, call.service.store.finalization.execution_context(workflow_id(call))))
    return Answer(wire.OneContext.from_model(found))


@endpoint(
    "GET",
    "/api/workflows/{id:int}/attempts",
    Scope.READ,
    tag=TAG,
    answers={200: (wire.FinalizationAttempts, "Oldest first.")},
    refuses=MISSING,
)
async def attempts(call: Call) -> Answer:
    """List all recorded attempts to claim the finalization of a workflow, including refused ones."""
    await _check_workflow_exists(call, None)
    found = await call.run(if_visible(call, call.service.store.finalization.finalization_attempts(workflow_id(call))))
    return Answer(wire.FinalizationAttempts.from_model(found))


@endpoint(
    "GET",
    "/api/finalizations/due",
    Scope.ADMIN,
    tag="upkeep",
    query=wire.DueQuery,
    answers={200: (wire.DueWorkflows, "The ids of the workflows.")},
)
async def due_finalizations(call: Call) -> Answer:
    """List the workflows whose finalization is due and not claimed. The server finalizes them by itself."""
    call.caller.check_whole_store()
    query: wire.DueQuery = call.query or wire.DueQuery()
    return Answer(wire.DueWorkflows(await call.run(call.service.store.finalization.due_finalizations(query.limit))))


def _processor(call: Call) -> str:
    processor: str = call.body.processor
    return processor


async def _claim(call: Call, operation: ClaimOperation) -> Answer:
    try:
        answer = await call.run(if_visible(call, operation(workflow_id(call))))
    except WorkflowNotFound as error:  # the caller may not see the workflow
        answer = not_found(error.workflow_id, _processor(call))
    return Answer(wire.FinalizationClaim.from_model(answer), _status(answer))


async def _check_workflow_exists(call: Call, found: Any) -> None:
    """Raise WorkflowNotFound if nothing was found because the workflow does not exist."""
    if not found and await call.run(call.service.store.workflows.get_workflow(workflow_id(call))) is None:
        raise WorkflowNotFound(workflow_id(call))


def not_found(workflow_id: int, processor: str) -> FinalizationClaim:
    """Return the same answer as the store for a workflow that does not exist."""
    return FinalizationClaim(workflow_id, processor, False, ClaimReason.NOT_FOUND, "not_found", "Workflow not found")


def _status(answer: FinalizationClaim) -> int:
    if answer.claimed:
        return 200
    return 404 if answer.reason is ClaimReason.NOT_FOUND else 409


ENDPOINTS = [claim, renew, release, finalize, context, attempts, due_finalizations]
