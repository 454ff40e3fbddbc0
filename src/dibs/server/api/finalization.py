"""Finalization: exactly one may say how a workflow ended. Who may is decided by a claim, fenced by its token.

The server finalizes by itself what is reported to it; these endpoints are for processors of one's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dibs.errors import WorkflowNotFound
from dibs.model.claim import check_lease
from dibs.model.finalization import ClaimReason, FinalizationClaim
from dibs.model.key import Scope
from dibs.server.api.workflows import MISSING, seen, workflow_id
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.store.operation import Operation
from dibs.wire import finalization as wire

TAG = "finalization"
Wish = Callable[[int], Operation[FinalizationClaim]]
PROCESSOR = {"processor_id": "billing-7c1f"}
HOLDER = {**PROCESSOR, "token": 1}


ANSWERS = {
    200: (wire.FinalizationClaim, "The finalization is yours."),
    404: (wire.UnknownWorkflow, "There is no such workflow."),
    409: (wire.NotClaimed, "It is not yours; `reason` and `message` say why."),
}


@endpoint(
    "POST",
    "/api/workflows/{id:int}/finalization/claim",
    Scope.WORK,
    tag=TAG,
    body=wire.ClaimFinalizationBody,
    answers=ANSWERS,
    refuses={404: "What the path says is no id."},
    examples={"for half a minute": {**PROCESSOR, "timeout_seconds": 30}},
)
async def claim(call: Call) -> Answer:
    """Claim the finalization of a workflow.

    Of several processors that ask, one gets the claim, under the next token, until its time is over. Asking again under
    the same `processor_id` extends the claim under the same token: give every process a name of its own. Every attempt
    is recorded with its reason.
    """
    lease = check_lease(call.body.lease)
    store = call.service.store
    return await _ask(call, lambda found: store.finalization.claim_finalization(found, _processor(call), lease))


@endpoint(
    "POST",
    "/api/workflows/{id:int}/finalization/renew",
    Scope.WORK,
    tag=TAG,
    body=wire.ExtendBody,
    answers=ANSWERS,
    refuses={404: "What the path says is no id."},
    examples={"another half minute": {**HOLDER, "timeout_seconds": 30}},
)
async def renew(call: Call) -> Answer:
    """Extend the claim that this processor has under this token.

    Grants no new claim: `reason` is `already_claimed` where the claim is another one, `not_claimed` where none exists.
    """
    body: wire.ExtendBody = call.body
    lease = check_lease(body.lease)
    store = call.service.store
    return await _ask(
        call, lambda found: store.finalization.renew_finalization(found, body.processor, body.token, lease)
    )


@endpoint(
    "POST",
    "/api/workflows/{id:int}/finalization/release",
    Scope.WORK,
    tag=TAG,
    body=wire.HolderBody,
    answers={200: (wire.FinalizationReleased, "Given up, or never had.")},
    refuses=MISSING,
    examples={"give it up": HOLDER},
)
async def release(call: Call) -> Answer:
    """Give up the claim that this processor has under this token. Any other call changes nothing."""
    releasing = call.service.store.finalization.release_finalization(
        workflow_id(call), _processor(call), call.body.token
    )
    released = await call.run(seen(call, releasing))
    await _check_there(call, released)
    return Answer(wire.FinalizationReleased.from_model(released))


@endpoint(
    "POST",
    "/api/workflows/{id:int}/finalize",
    Scope.WORK,
    tag=TAG,
    body=wire.HolderBody,
    answers={200: (wire.Finalized, "Acted upon; the claim has ended.")},
    refuses={**MISSING, 409: "The claim is another's, or has ended. Nothing was changed."},
    examples={"as its holder": HOLDER},
)
async def finalize(call: Call) -> Answer:
    """Act on how the workflow stands, as the holder of its finalization, in one transaction.

    It is completed (or its finalizer begins), fails, or is left to be checked later.
    """
    acting = call.service.store.finalization.finalize(workflow_id(call), _processor(call), call.body.token)
    done = await call.run(seen(call, acting))
    for due in done.due:  # the workflow that it is a part of, above all
        call.service.finalize(due)
    return Answer(wire.Finalized.from_model(done))


@endpoint(
    "GET",
    "/api/workflows/{id:int}/context",
    Scope.READ,
    tag=TAG,
    answers={200: (wire.OneContext, "As of now.")},
    refuses=MISSING,
)
async def context(call: Call) -> Answer:
    """How the steps of a workflow stand, and what follows from that."""
    found = await call.run(seen(call, call.service.store.finalization.execution_context(workflow_id(call))))
    return Answer(wire.OneContext.from_model(found))


@endpoint(
    "GET",
    "/api/workflows/{id:int}/attempts",
    Scope.READ,
    tag=TAG,
    answers={200: (wire.Attempts, "In order.")},
    refuses=MISSING,
)
async def attempts(call: Call) -> Answer:
    """Every recorded wish to finalize a workflow, also of those that were refused."""
    await _check_there(call, None)
    found = await call.run(seen(call, call.service.store.finalization.finalization_attempts(workflow_id(call))))
    return Answer(wire.Attempts.from_model(found))


@endpoint(
    "GET",
    "/api/finalizations/due",
    Scope.ADMIN,
    tag="upkeep",
    query=wire.DueQuery,
    answers={200: (wire.DueWorkflows, "Only a look.")},
)
async def due_finalizations(call: Call) -> Answer:
    """The workflows that wait for their finalization and that nobody holds. The server finalizes them by itself."""
    call.caller.check_whole_store()
    query: wire.DueQuery = call.query or wire.DueQuery()
    return Answer(wire.DueWorkflows(await call.run(call.service.store.finalization.due_finalizations(query.limit))))


def _processor(call: Call) -> str:
    found: str = call.body.processor
    return found


async def _ask(call: Call, wish: Wish) -> Answer:
    try:
        answer = await call.run(seen(call, wish(workflow_id(call))))
    except WorkflowNotFound as error:  # a foreign one: to this caller it is one that does not exist
        answer = not_found(error.workflow_id, _processor(call))
    return Answer(wire.FinalizationClaim.from_model(answer), _status(answer))


async def _check_there(call: Call, found: Any) -> None:
    """Nothing came of it: is that because there is no such workflow?"""
    if not found and await call.run(call.service.store.workflows.get_workflow(workflow_id(call))) is None:
        raise WorkflowNotFound(workflow_id(call))


def not_found(found_at: int, processor: str) -> FinalizationClaim:
    """The store's own words for a workflow that does not exist."""
    return FinalizationClaim(found_at, processor, False, ClaimReason.NOT_FOUND, "not_found", "Workflow not found")


def _status(answer: FinalizationClaim) -> int:
    if answer.claimed:
        return 200
    return 404 if answer.reason is ClaimReason.NOT_FOUND else 409


ENDPOINTS = [claim, renew, release, finalize, context, attempts, due_finalizations]
