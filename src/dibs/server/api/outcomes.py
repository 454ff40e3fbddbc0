"""Outcomes: say how tasks ended, one or many, and exchange them for the next; every write fenced by its token."""

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
    seen_of,
    with_unseen,
)
from dibs.server.api.claims import request_of
from dibs.server.api.workflows import check_params, check_queues
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
    """Complete the task. The same request again is safe: the answer then says `repeated`. Another result under the same
    token is refused with 409 `outcome_conflict`."""
    return await _finish_one(call)


@endpoint(
    "POST",
    "/api/tasks/{id:int}/fail",
    Scope.WORK,
    tag=TAG,
    body=wire.FailBody,
    answers={200: (wire.Finished, "Noted; `will_retry` and `run_at` say what comes next.")},
    refuses=ENDED,
    examples={"try again": {**HELD, "error_message": "503 from upstream", "error_code": "Upstream"}},
)
async def fail(call: Call) -> Answer:
    """The attempt failed. It is tried again with backoff, unless it is not retryable or its attempts are spent."""
    return await _finish_one(call)


@endpoint(
    "POST",
    "/api/tasks/{id:int}/release",
    Scope.WORK,
    tag=TAG,
    body=wire.ReleaseBody,
    answers={200: (wire.Finished, "Back in the queue.")},
    refuses=FENCED,
    examples={"give it back": HELD},
)
async def release(call: Call) -> Answer:
    """Give the task back, without an attempt spent."""
    return await _finish_one(call)


@endpoint(
    "POST",
    "/api/tasks/finish",
    Scope.WORK,
    tag=TAG,
    body=wire.FinishBody,
    answers={200: (wire.FinishedAnswers, "Each outcome is answered on its own.")},
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
    """Write many outcomes in one transaction, each fenced by its token."""
    body: wire.FinishBody = call.body
    told, refused = await _told(call, body)
    done = await fenced(
        call, list(told), lambda refs: call.service.store.queue.finish([(ref, told[ref]) for ref in refs])
    )
    call.service.finalize_after(done)
    return Answer(wire.FinishedAnswers(True, _answers(body, {**refused, **dict(zip(told, done, strict=True))})))


@endpoint(
    "POST",
    "/api/tasks/exchange",
    Scope.WORK,
    tag=TAG,
    body=wire.ExchangeBody,
    answers={200: (wire.Exchanged, "The outcomes are answered; `tasks` may be empty.")},
    examples={
        "one for one": {
            "worker_id": "worker-youtube-01",
            "outcomes": [{"task_id": 1, "token": 1, "outcome": "completed"}],
            "claim": {"task_types": ["youtube_video_scrape"], "count": 1},
        }
    },
)
async def exchange(call: Call) -> Answer:
    """Finish the last tasks and claim the next ones, in one request and one transaction."""
    body: wire.ExchangeBody = call.body
    request = request_of(call, body.claim, body.worker_id)
    told, refused = await _told(call, body)
    refs = list(told)
    seen, visible = await seen_of(call, refs)
    procedure = procedures.exchange(call.service.store, [(ref, told[ref]) for ref in seen], request)
    done, claims = await drive_async(procedure, call.run)
    call.service.finalize_after(done)
    answers = {**refused, **dict(zip(refs, with_unseen(refs, visible, done), strict=True))}
    return Answer(wire.Exchanged(True, _answers(body, answers), [Task.from_model(claim.task) for claim in claims]))


async def _finish_one(call: Call) -> Answer:
    await call.check_visible(call.task_id)
    ref = ref_of(call, call.body)
    done = await call.service.coalesced.finish(ref, await _outcome(call, ref, call.body), call.caller.by)
    return Answer(wire.Finished.from_model(done))


async def _outcome(call: Call, ref: ClaimRef, said: Any) -> Outcome:
    """What the worker says, if it may say so."""
    outcome: Outcome = said.to_model()
    if isinstance(outcome, Completed) and outcome.steps:
        check_queues(call, tasks_in(outcome.steps))
        check_params(tasks_in(outcome.steps))
        await _check_parents(call, ref, outcome.steps)
    return outcome


async def _check_parents(call: Call, ref: ClaimRef, steps: Sequence[NewStep]) -> None:
    """Who waits for a step reads its result: to a limited key, steps of foreign queues do not exist here either."""
    if call.caller.queues is not None:
        await call.run(call.service.store.workflows.check_parents(ref.task_id, steps, call.caller.queues))


async def _told(call: Call, body: wire.FinishBody) -> tuple[dict[ClaimRef, Outcome], dict[ClaimRef, DibsError]]:
    """The outcome of each claim, of several for one claim the first; and those whose steps are refused, each by itself:
    a request that is not even what is expected here is refused whole."""
    told: dict[ClaimRef, Outcome] = {}
    refused: dict[ClaimRef, DibsError] = {}
    for ref, each in zip(refs_of(body.worker_id, body.outcomes), body.outcomes, strict=True):
        if ref not in told and ref not in refused:
            try:
                told[ref] = await _outcome(call, ref, each)
            except (InvalidGraph, RequestRefused) as error:
                refused[ref] = error
    return told, refused


def _answers(body: wire.FinishBody, answers: dict[ClaimRef, Any]) -> list[Any]:
    """An answer to each outcome; a claim ends once, so a second outcome for it is refused."""
    left = dict(answers)
    refs = refs_of(body.worker_id, body.outcomes)
    return [or_refusal(left.pop(ref, None) or _ended_twice(ref), wire.Finished.from_model) for ref in refs]


def _ended_twice(ref: ClaimRef) -> DibsError:
    return InvalidValue(f"Another outcome of this request names the claim of task {ref.task_id}: a claim ends once.")


ENDPOINTS = [exchange, finish, complete, fail, release]
