"""Held claims: renew them, report progress, begin what was claimed ahead; results and checkpoints of a running step."""

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
from dibs.wire.workflows import Results


@endpoint(
    "POST",
    "/api/tasks/{id:int}/renew",
    Scope.WORK,
    tag=TAG,
    body=wire.RenewBody,
    answers={200: (wire.Renewed, "The lease is prolonged.")},
    refuses=FENCED,
    examples={"another minute": {**HELD, "lease_seconds": 60}},
)
async def renew(call: Call) -> Answer:
    """Prolong the lease. Do so every third of it."""
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
    answers={200: (wire.RenewedAnswers, "Each claim is answered on its own.")},
    examples={"one": {"worker_id": "worker-youtube-01", "claims": [{"task_id": 1, "token": 1}]}},
)
async def renew_many(call: Call) -> Answer:
    """Prolong many leases."""
    body: wire.RenewManyBody = call.body
    lease = check_lease(body.lease)
    refs = refs_of(body.worker_id, body.claims)
    answers = await fenced(call, refs, lambda seen: call.service.store.queue.renew(seen, lease))
    return Answer(wire.RenewedAnswers(True, [or_refusal(answer, wire.Renewed.from_model) for answer in answers]))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/progress",
    Scope.WORK,
    tag=TAG,
    body=wire.ProgressBody,
    answers={200: (wire.ProgressSaved, "Noted.")},
    refuses=FENCED,
    examples={"half way": {**HELD, "progress": 50, "message": "half way"}},
)
async def progress(call: Call) -> Answer:
    """Note how far the task is. The answer says whether somebody asked it to stop."""
    body: wire.ProgressBody = call.body
    ref = ref_of(call, body)
    notes = {ref.task_id: (body.progress, body.message)}
    [answer] = await fenced(
        call, [ref], lambda refs: call.service.store.queue.progress([(each, *notes[each.task_id]) for each in refs])
    )
    return Answer(wire.ProgressSaved.from_model(ref.task_id, or_raise(answer)))


@endpoint(
    "POST",
    "/api/tasks/progress",
    Scope.WORK,
    tag=TAG,
    body=wire.ProgressManyBody,
    answers={200: (wire.ProgressSavedAnswers, "Each note is answered on its own.")},
    examples={"one": {"worker_id": "worker-youtube-01", "notes": [{"task_id": 1, "token": 1, "progress": 50}]}},
)
async def progress_many(call: Call) -> Answer:
    """Note how far many tasks are."""
    body: wire.ProgressManyBody = call.body
    refs = refs_of(body.worker_id, body.notes)
    said = {(note.task_id, note.token): (note.progress, note.message) for note in body.notes}
    answers = await fenced(
        call,
        refs,
        lambda seen: call.service.store.queue.progress([(ref, *said[ref.task_id, ref.token]) for ref in seen]),
    )
    noted = [_noted(ref, answer) for ref, answer in zip(refs, answers, strict=True)]
    return Answer(wire.ProgressSavedAnswers(True, noted))


@endpoint(
    "POST",
    "/api/tasks/start",
    Scope.WORK,
    tag=TAG,
    body=wire.ClaimsBody,
    answers={200: (wire.StartedAnswers, "Each claim is answered on its own.")},
    examples={"one": {"worker_id": "worker-youtube-01", "claims": [{"task_id": 1, "token": 1}]}},
)
async def start(call: Call) -> Answer:
    """Tasks that were claimed ahead begin now: from here on they are charged an attempt if their worker is lost."""
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
    answers={200: (wire.ClaimStatuses, "In the order of the request.")},
    examples={"one": {"worker_id": "worker-youtube-01", "claims": [{"task_id": 1, "token": 1}]}},
)
async def standing(call: Call) -> Answer:
    """How claims stand: held, asked to stop, or lost. Nothing is written, no lease prolonged."""
    body: wire.ClaimsBody = call.body
    refs = refs_of(body.worker_id, body.claims)
    answers = await fenced(call, refs, call.service.store.queue.claim_status)
    return Answer(wire.ClaimStatuses([ClaimStatus.LOST if isinstance(each, DibsError) else each for each in answers]))


@endpoint("GET", "/api/tasks/next-due", Scope.WORK, tag=TAG, answers={200: (wire.DueIn, "As of now.")})
async def next_due(call: Call) -> Answer:
    """When time alone makes the next task claimable: a delay or a lease that ends, a schedule that ticks."""
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
    "/api/tasks/{id:int}/results",
    Scope.WORK,
    Scope.READ,
    tag=TAG,
    answers={200: (Results, "In the order in which the parents were added; none for a task that is no step.")},
    refuses={404: ""},
)
async def results(call: Call) -> Answer:
    """The results of this step's parents. For a finalizer: the results of the last steps of its workflow.

    A key that is limited to queues gets the results of parents in these queues only.
    """
    await call.check_visible(call.task_id)
    found = await call.run(call.service.store.workflows.results(call.task_id, call.caller.queues))
    await _check_there(call, found)
    return Answer(Results.from_model(found))


@endpoint(
    "GET",
    "/api/tasks/{id:int}/checkpoints",
    Scope.WORK,
    Scope.READ,
    tag=TAG,
    answers={200: (Checkpoints, "What is kept, by name.")},
    refuses={404: ""},
)
async def checkpoints(call: Call) -> Answer:
    """What earlier attempts of this task have kept."""
    await call.check_visible(call.task_id)
    found = await call.run(call.service.store.queue.checkpoints(call.task_id))
    await _check_there(call, found)
    return Answer(Checkpoints(found))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/checkpoints",
    Scope.WORK,
    tag=TAG,
    body=CheckpointBody,
    answers={200: (KeptCheckpoint, "The value that is kept: an earlier one under this name stays.")},
    refuses=FENCED,
    examples={"downloaded": {**HELD, "name": "downloaded", "value": {"path": "videos/abc123"}}},
)
async def keep_checkpoint(call: Call) -> Answer:
    """Keep a value for later attempts, so that what is done once is not done again."""
    body: CheckpointBody = call.body
    await call.check_visible(call.task_id)
    value = await call.run(call.service.store.queue.keep_checkpoint(ref_of(call, body), body.name, body.value))
    return Answer(KeptCheckpoint(True, value))


async def _check_there(call: Call, found: Sized) -> None:
    """Nothing was found: is that because there is no such task?"""
    if not found and not await call.run(call.service.store.tasks.queues_of([call.task_id])):
        raise TaskNotFound(call.task_id)


ENDPOINTS = [
    renew,
    renew_many,
    progress,
    progress_many,
    start,
    standing,
    next_due,
    results,
    checkpoints,
    keep_checkpoint,
]
