"""Holding: keep claims alive, say how far they are, begin what was claimed ahead, ask how they stand."""

from __future__ import annotations

from dibs.errors import DibsError
from dibs.model.claim import ClaimRef, ClaimStatus, check_lease
from dibs.model.key import Scope
from dibs.server.api.fencing import (
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
from dibs.wire.errors import Refusal


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
    answers={200: (wire.Noted, "Noted.")},
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
    return Answer(wire.Noted.from_model(ref.task_id, or_raise(answer)))


@endpoint(
    "POST",
    "/api/tasks/progress",
    Scope.WORK,
    tag=TAG,
    body=wire.NotesBody,
    answers={200: (wire.NotedAnswers, "Each note is answered on its own.")},
    examples={"one": {"worker_id": "worker-youtube-01", "notes": [{"task_id": 1, "token": 1, "progress": 50}]}},
)
async def progress_many(call: Call) -> Answer:
    """Note how far many tasks are."""
    body: wire.NotesBody = call.body
    refs = refs_of(body.worker_id, body.notes)
    said = {(note.task_id, note.token): (note.progress, note.message) for note in body.notes}
    answers = await fenced(
        call,
        refs,
        lambda seen: call.service.store.queue.progress([(ref, *said[ref.task_id, ref.token]) for ref in seen]),
    )
    noted = [_noted(ref, answer) for ref, answer in zip(refs, answers, strict=True)]
    return Answer(wire.NotedAnswers(True, noted))


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
    answers={200: (wire.Standings, "In the order of the request.")},
    examples={"one": {"worker_id": "worker-youtube-01", "claims": [{"task_id": 1, "token": 1}]}},
)
async def standing(call: Call) -> Answer:
    """How claims stand: held, asked to stop, or lost. Nothing is written, no lease prolonged."""
    body: wire.ClaimsBody = call.body
    refs = refs_of(body.worker_id, body.claims)
    answers = await fenced(call, refs, call.service.store.queue.claim_status)
    return Answer(wire.Standings([ClaimStatus.LOST if isinstance(each, DibsError) else each for each in answers]))


@endpoint("GET", "/api/tasks/next-due", Scope.WORK, tag=TAG, answers={200: (wire.DueIn, "As of now.")})
async def next_due(call: Call) -> Answer:
    """When time alone makes the next task claimable: a delay or a lease that ends, a schedule that ticks."""
    return Answer(wire.DueIn(await call.run(call.service.store.upkeep.next_due(call.caller.queues))))


def _noted(ref: ClaimRef, answer: bool | DibsError) -> wire.Noted | Refusal:
    return Refusal.from_model(answer) if isinstance(answer, DibsError) else wire.Noted.from_model(ref.task_id, answer)


def _started(ref: ClaimRef, answer: DibsError | None) -> wire.Started | Refusal:
    return wire.Started.from_model(ref.task_id) if answer is None else Refusal.from_model(answer)


ENDPOINTS = [renew, renew_many, progress, progress_many, start, standing, next_due]
