"""Held claims: renew leases, report progress, start tasks that were claimed ahead, read results, keep checkpoints."""

from __future__ import annotations

from collections.abc import Sized

from dibs.errors import DibsError, TaskNotFound
from dibs.model.claim import ClaimRef, ClaimStatus, check_lease
from dibs.model.key import Scope
from dibs.server.api.claim_refs import (
    FENCED,
    HELD,
    TAG,
    fenced,
    or_raise,
    or_refusal,
    ref_of,
    refs_of,
)
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire import claims as wire
from dibs.wire.claims import CheckpointBody, Checkpoints, KeptCheckpoint
from dibs.wire.errors import Refusal
from dibs.wire.workflows import OneExecution, Results


@endpoint(
    "POST",
    "/api/tasks/{id:int}/renew",
    Scope.WORK,
    tag=TAG,
    body=wire.RenewBody,
    answers={200: (wire.Renewed, "The lease was renewed.")},
    refuses=FENCED,
    examples={"another minute": {**HELD, "lease_seconds": 60}},
)
async def renew(call: Call) -> Answer:
    """Renew the lease of a claim. Renew it whenever a third of the lease has passed."""
    body: wire.RenewBody = call.body
    lease = check_lease(body.lease)
    [answer] = await fenced(call, [ref_of(call, body)], lambda refs: call.service.store.queue.renew(refs, lease))
    return Answer(wire.Renewed.from_model(or_raise(answer)))


@endpoint(
    "POST",
    "/api/tasks/renew",
    Scope.WORK,
    tag=TAG,
    body=wire.RenewManyBody,
    answers={200: (wire.RenewedAnswers, "One answer for each claim, in the order of the request.")},
    examples={"one": {"worker_id": "worker-youtube-01", "claims": [{"task_id": 1, "token": 1}]}},
)
async def renew_many(call: Call) -> Answer:
    """Renew the leases of many claims."""
    body: wire.RenewManyBody = call.body
    lease = check_lease(body.lease)
    refs = refs_of(body.worker_id, body.claims)
    answers = await fenced(call, refs, lambda allowed: call.service.store.queue.renew(allowed, lease))
    return Answer(wire.RenewedAnswers(True, [or_refusal(answer, wire.Renewed.from_model) for answer in answers]))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/progress",
    Scope.WORK,
    tag=TAG,
    body=wire.ProgressBody,
    answers={200: (wire.ProgressSaved, "The progress is stored.")},
    refuses=FENCED,
    examples={"half way": {**HELD, "progress": 50, "message": "half way"}},
)
async def progress(call: Call) -> Answer:
    """Report the progress of a task. The answer says whether the task should stop because it was cancelled."""
    body: wire.ProgressBody = call.body
    ref = ref_of(call, body)
    [answer] = await fenced(
        call,
        [ref],
        lambda refs: call.service.store.queue.progress([(each, body.progress, body.message) for each in refs]),
    )
    return Answer(wire.ProgressSaved.from_model(ref.task_id, or_raise(answer)))


@endpoint(
    "POST",
    "/api/tasks/progress",
    Scope.WORK,
    tag=TAG,
    body=wire.ProgressManyBody,
    answers={200: (wire.ProgressSavedAnswers, "One answer for each report, in the order of the request.")},
    examples={"one": {"worker_id": "worker-youtube-01", "notes": [{"task_id": 1, "token": 1, "progress": 50}]}},
)
async def progress_many(call: Call) -> Answer:
    """Report the progress of many tasks."""
    body: wire.ProgressManyBody = call.body
    refs = refs_of(body.worker_id, body.notes)
    reports = {(note.task_id, note.token): (note.progress, note.message) for note in body.notes}
    answers = await fenced(
        call,
        refs,
        lambda allowed: call.service.store.queue.progress([(ref, *reports[ref.task_id, ref.token]) for ref in allowed]),
    )
    noted = [_noted(ref, answer) for ref, answer in zip(refs, answers, strict=True)]
    return Answer(wire.ProgressSavedAnswers(True, noted))


@endpoint(
    "POST",
    "/api/tasks/start",
    Scope.WORK,
    tag=TAG,
    body=wire.ClaimsBody,
    answers={200: (wire.StartedAnswers, "One answer for each claim, in the order of the request.")},
    examples={"one": {"worker_id": "worker-youtube-01", "claims": [{"task_id": 1, "token": 1}]}},
)
async def start(call: Call) -> Answer:
    """Start tasks that were claimed ahead. From now on a task is charged an attempt if its worker is lost."""
    body: wire.ClaimsBody = call.body
    refs = refs_of(body.worker_id, body.claims)
    answers = await fenced(call, refs, call.service.store.queue.start)
    started = [_started(ref, answer) for ref, answer in zip(refs, answers, strict=True)]
    return Answer(wire.StartedAnswers(True, started))


@endpoint(
    "POST",
    "/api/tasks/standing",
    Scope.WORK,
    tag=TAG,
    body=wire.ClaimsBody,
    answers={200: (wire.ClaimStatuses, "One status for each claim, in the order of the request.")},
    examples={"one": {"worker_id": "worker-youtube-01", "claims": [{"task_id": 1, "token": 1}]}},
)
async def status(call: Call) -> Answer:
    """Read the status of claims: held, asked to stop, or lost. This writes nothing and renews no lease."""
    body: wire.ClaimsBody = call.body
    refs = refs_of(body.worker_id, body.claims)
    answers = await fenced(call, refs, call.service.store.queue.claim_status)
    return Answer(wire.ClaimStatuses([ClaimStatus.LOST if isinstance(each, DibsError) else each for each in answers]))


@endpoint("GET", "/api/tasks/next-due", Scope.WORK, tag=TAG, answers={200: (wire.DueIn, "The number of seconds.")})
async def next_due(call: Call) -> Answer:
    """Return when the next task becomes claimable by time alone: a delay or lease that ends, a tick of a schedule."""
    return Answer(wire.DueIn(await call.run(call.service.store.upkeep.next_due(call.caller.queues))))


def _noted(ref: ClaimRef, answer: bool | DibsError) -> wire.ProgressSaved | Refusal:
    return (
        Refusal.from_model(answer)
        if isinstance(answer, DibsError)
        else wire.ProgressSaved.from_model(ref.task_id, answer)
    )


def _started(ref: ClaimRef, answer: DibsError | None) -> wire.Started | Refusal:
    return wire.Started.from_model(ref.task_id) if answer is None else Refusal.from_model(answer)


@endpoint(
    "GET",
    "/api/tasks/{id:int}/execution",
    Scope.WORK,
    Scope.READ,
    tag=TAG,
    answers={200: (OneExecution, "The steps in the order in which they were added.")},
    refuses={404: "", 409: "The task is not a step of a workflow."},
)
async def execution(call: Call) -> Answer:
    """Read how the steps of a task's workflow ended: what a finalizer is given.

    A key that is limited to queues gets the steps in these queues only.
    """
    await call.check_visible(call.task_id)
    found = await call.run(call.service.store.workflows.execution(call.task_id, call.caller.queues))
    return Answer(OneExecution.from_model(found))


@endpoint(
    "GET",
    "/api/tasks/{id:int}/results",
    Scope.WORK,
    Scope.READ,
    tag=TAG,
    answers={200: (Results, "In the order in which the parents were added; empty for a task that is not a step.")},
    refuses={404: ""},
)
async def results(call: Call) -> Answer:
    """Read the results of a step's parents. For a finalizer: the results of the last steps of its workflow.

    A key that is limited to queues gets the results of parents in these queues only.
    """
    await call.check_visible(call.task_id)
    found = await call.run(call.service.store.workflows.results(call.task_id, call.caller.queues))
    await _check_task_exists(call, found)
    return Answer(Results.from_model(found))


@endpoint(
    "GET",
    "/api/tasks/{id:int}/checkpoints",
    Scope.WORK,
    Scope.READ,
    tag=TAG,
    answers={200: (Checkpoints, "The checkpoints by name.")},
    refuses={404: ""},
)
async def checkpoints(call: Call) -> Answer:
    """Read the checkpoints that attempts of this task have stored."""
    await call.check_visible(call.task_id)
    found = await call.run(call.service.store.queue.checkpoints(call.task_id))
    await _check_task_exists(call, found)
    return Answer(Checkpoints(found))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/checkpoints",
    Scope.WORK,
    tag=TAG,
    body=CheckpointBody,
    answers={
        200: (KeptCheckpoint, "The stored value. If the name had a value before, that value stays and is returned.")
    },
    refuses=FENCED,
    examples={"downloaded": {**HELD, "name": "downloaded", "value": {"path": "videos/abc123"}}},
)
async def keep_checkpoint(call: Call) -> Answer:
    """Store a checkpoint: a value that later attempts read instead of repeating the work."""
    body: CheckpointBody = call.body
    await call.check_visible(call.task_id)
    value = await call.run(call.service.store.queue.keep_checkpoint(ref_of(call, body), body.name, body.value))
    return Answer(KeptCheckpoint(True, value))


async def _check_task_exists(call: Call, found: Sized) -> None:
    """Raise TaskNotFound if nothing was found because the task does not exist."""
    if not found and not await call.run(call.service.store.tasks.queues_of([call.task_id])):
        raise TaskNotFound(call.task_id)


ENDPOINTS = [
    renew,
    renew_many,
    progress,
    progress_many,
    start,
    status,
    next_due,
    results,
    execution,
    checkpoints,
    keep_checkpoint,
]
