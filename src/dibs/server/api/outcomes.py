"""Outcomes: finish claimed tasks, one or many, and claim the next ones; every write is fenced by its token.

The fence is in the store, not here. What an endpoint must do: show a caller only the tasks of its queues
(`check_visible`, `visible_refs`), and refuse steps in queues that the caller may not use (`_outcome`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dibs import procedures
from dibs.errors import DibsError, InvalidGraph, InvalidValue
from dibs.model.claim import ClaimRef, Completed, Outcome
from dibs.model.key import Scope
from dibs.model.workflow import NewStep, tasks_in
from dibs.server.api.claim_refs import (
    FENCED,
    HELD,
    TAG,
    fenced,
    or_refusal,
    ref_of,
    refs_of,
    visible_refs,
    with_hidden,
)
from dibs.server.api.claims import request_of
from dibs.server.api.limits import check_new_tasks
from dibs.server.api.workflows import check_params
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.store.operation import drive_async
from dibs.wire import claims as wire
from dibs.wire.errors import RequestRefused
from dibs.wire.tasks import Task

ENDED = {
    **FENCED,
    409: "The token is stale: the lease ran out or the task was taken back (`claim_lost`), or the claim has ended with "
    "another result or error (`outcome_conflict`). Nothing was changed.",
}


@endpoint(
    "POST",
    "/api/tasks/{id:int}/complete",
    Scope.WORK,
    tag=TAG,
    body=wire.CompleteBody,
    answers={200: (wire.Finished, "The result is stored.")},
    refuses=ENDED,
    examples={
        "done": {**HELD, "result": {"views": 12345}},
        "with more to do": {**HELD, "steps": [{"task_type": "render", "params": {"page": 1}}]},
    },
)
async def complete(call: Call) -> Answer:
    """Complete a task. Repeating the same request is safe: the answer then has `repeated`.

    Another result under the same token is refused with 409 `outcome_conflict`.
    """
    return await _finish_one(call)


@endpoint(
    "POST",
    "/api/tasks/{id:int}/fail",
    Scope.WORK,
    tag=TAG,
    body=wire.FailBody,
    answers={
        200: (
            wire.Finished,
            "The error is stored; `will_retry` and `run_at` say whether and when the task is tried again.",
        )
    },
    refuses=ENDED,
    examples={"try again": {**HELD, "error_message": "503 from upstream", "error_code": "Upstream"}},
)
async def fail(call: Call) -> Answer:
    """Report that an attempt failed. The task is tried again after a backoff, unless the error is not retryable or no
    attempts are left."""
    return await _finish_one(call)


@endpoint(
    "POST",
    "/api/tasks/{id:int}/release",
    Scope.WORK,
    tag=TAG,
    body=wire.ReleaseBody,
    answers={200: (wire.Finished, "The task is pending again.")},
    refuses=FENCED,
    examples={"give it back": HELD},
)
async def release(call: Call) -> Answer:
    """Release a task: give it back without spending an attempt."""
    return await _finish_one(call)


@endpoint(
    "POST",
    "/api/tasks/finish",
    Scope.WORK,
    tag=TAG,
    body=wire.FinishBody,
    answers={200: (wire.FinishedAnswers, "One answer for each outcome, in the order of the request.")},
    examples={
        "two": {
            "worker_id": "worker-youtube-01",
            "outcomes": [
                {"task_id": 1, "token": 1, "outcome": "completed", "result": {"views": 12345}},
                {"task_id": 2, "token": 1, "outcome": "failed", "error_message": "gone", "retryable": False},
            ],
        }
    },
)
async def finish(call: Call) -> Answer:
    """Finish many tasks in one transaction, each fenced by its token."""
    body: wire.FinishBody = call.body
    outcomes, refused = await _outcomes_by_claim(call, body)
    done = await fenced(
        call, list(outcomes), lambda refs: call.service.store.queue.finish([(ref, outcomes[ref]) for ref in refs])
    )
    call.service.finalize_after(done)
    return Answer(wire.FinishedAnswers(True, _answers(body, {**refused, **dict(zip(outcomes, done, strict=True))})))


@endpoint(
    "POST",
    "/api/tasks/exchange",
    Scope.WORK,
    tag=TAG,
    body=wire.ExchangeBody,
    answers={200: (wire.Exchanged, "One answer for each outcome, and the claimed tasks; `tasks` may be empty.")},
    examples={
        "one for one": {
            "worker_id": "worker-youtube-01",
            "outcomes": [{"task_id": 1, "token": 1, "outcome": "completed"}],
            "claim": {"task_types": ["youtube_video_scrape"], "count": 1},
        }
    },
)
async def exchange(call: Call) -> Answer:
    """Finish tasks and claim the next ones, in one request and one transaction."""
    body: wire.ExchangeBody = call.body
    request = request_of(call, body.claim, body.worker_id)
    outcomes, refused = await _outcomes_by_claim(call, body)
    refs = list(outcomes)
    allowed, visible = await visible_refs(call, refs)
    procedure = procedures.exchange(call.service.store, [(ref, outcomes[ref]) for ref in allowed], request)
    done, claims = await drive_async(procedure, call.run)
    call.service.finalize_after(done)
    answers = {**refused, **dict(zip(refs, with_hidden(refs, visible, done), strict=True))}
    return Answer(wire.Exchanged(True, _answers(body, answers), [Task.from_claim(claim) for claim in claims]))


async def _finish_one(call: Call) -> Answer:
    await call.check_visible(call.task_id)
    ref = ref_of(call, call.body)
    done = await call.service.coalesced.finish(ref, await _outcome(call, ref, call.body), call.caller.by)
    return Answer(wire.Finished.from_model(done))


async def _outcome(call: Call, ref: ClaimRef, body: Any) -> Outcome:
    """Return the outcome of a request. Refuse steps that the caller may not add."""
    outcome: Outcome = body.to_model()
    if isinstance(outcome, Completed) and outcome.steps:
        await check_new_tasks(call, tasks_in(outcome.steps))
        check_params(tasks_in(outcome.steps))
        await _check_parents(call, ref, outcome.steps)
    return outcome


async def _check_parents(call: Call, ref: ClaimRef, steps: Sequence[NewStep]) -> None:
    """Refuse parents outside of the caller's queues: a step can read the results of its parents."""
    if call.caller.queues is not None:
        await call.run(call.service.store.workflows.check_parents(ref.task_id, steps, call.caller.queues))


async def _outcomes_by_claim(
    call: Call, body: wire.FinishBody
) -> tuple[dict[ClaimRef, Outcome], dict[ClaimRef, DibsError]]:
    """Return the outcome of each claim, and the refusals of outcomes whose steps are not allowed.

    Of several outcomes for one claim, the first one counts. Any other error refuses the whole request.
    """
    outcomes: dict[ClaimRef, Outcome] = {}
    refused: dict[ClaimRef, DibsError] = {}
    for ref, each in zip(refs_of(body.worker_id, body.outcomes), body.outcomes, strict=True):
        if ref not in outcomes and ref not in refused:
            try:
                outcomes[ref] = await _outcome(call, ref, each)
            except (InvalidGraph, RequestRefused) as error:
                refused[ref] = error
    return outcomes, refused


def _answers(body: wire.FinishBody, answers: dict[ClaimRef, Any]) -> list[Any]:
    """Return an answer for each outcome. A claim ends once, so a second outcome for the same claim is refused."""
    remaining = dict(answers)
    refs = refs_of(body.worker_id, body.outcomes)
    return [or_refusal(remaining.pop(ref, None) or _ended_twice(ref), wire.Finished.from_model) for ref in refs]


def _ended_twice(ref: ClaimRef) -> DibsError:
    message = f"This request has another outcome for the same claim of task {ref.task_id}: a claim ends once."
    return InvalidValue(message, hint="Send one outcome for each claim.")


ENDPOINTS = [exchange, finish, complete, fail, release]
