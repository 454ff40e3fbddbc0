"""Holding: keep claims alive, say how far they are, begin what was claimed ahead, ask how they stand."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dibs import shape
from dibs.body.fields import Body, Lease, Percent, WorkerId
from dibs.errors import DibsError
from dibs.model.claim import DEFAULT_LEASE, ClaimRef, ClaimStatus, Renewed, check_lease
from dibs.model.key import Scope
from dibs.server.api.fencing import (
    FENCED,
    HELD,
    TAG,
    Batch,
    OfClaim,
    OneClaim,
    Text,
    fenced,
    or_raise,
    or_refusal,
    ref_of,
    refs_of,
)
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.server.refusing import RefusalShape, refusal

Claims = Annotated[list[OneClaim], Batch, Meta(description="The claims, each by its task and token.")]


class RenewBody(OfClaim, frozen=True):
    """Prolong the lease."""

    lease_seconds: Lease = DEFAULT_LEASE


class ProgressBody(OfClaim, frozen=True):
    """How far the task is."""

    progress: Percent
    message: Text | None = None


class ClaimsBody(Body, frozen=True):
    """Claims of one worker."""

    worker_id: WorkerId
    claims: Claims


class RenewManyBody(ClaimsBody, frozen=True):
    """Leases to prolong."""

    lease_seconds: Lease = DEFAULT_LEASE


class OneNote(OneClaim, frozen=True):
    """How far a task is."""

    progress: Percent
    message: Text | None = None


class NotesBody(Body, frozen=True):
    """How far tasks are."""

    worker_id: WorkerId
    notes: Annotated[list[OneNote], Batch, Meta(description="How far each task is.")]


class RenewedShape(msgspec.Struct, frozen=True):
    """The new end of the lease, and whether somebody asked the task to stop."""

    success: bool
    task_id: int
    lease_until: shape.Moment
    cancel_requested: bool


class NotedShape(msgspec.Struct, frozen=True):
    """Whether somebody asked the task to stop."""

    success: bool
    task_id: int
    cancel_requested: bool


class StartedShape(msgspec.Struct, frozen=True):
    """The task has begun."""

    success: bool
    task_id: int


class RenewedAnswers(msgspec.Struct, frozen=True):
    """An answer to each claim."""

    success: bool
    answers: list[RenewedShape | Any]


class NotedAnswers(msgspec.Struct, frozen=True):
    """An answer to each note."""

    success: bool
    answers: list[NotedShape | Any]


class StartedAnswers(msgspec.Struct, frozen=True):
    """An answer to each claim."""

    success: bool
    answers: list[StartedShape | Any]


class Standings(msgspec.Struct, frozen=True):
    """How each claim stands."""

    standings: list[ClaimStatus]


class DueIn(msgspec.Struct, frozen=True):
    """Seconds until time alone makes something claimable; null where nothing waits for the clock."""

    seconds: float | None


@endpoint(
    "POST",
    "/api/tasks/{id:int}/renew",
    Scope.WORK,
    tag=TAG,
    body=RenewBody,
    answers={200: (RenewedShape, "The lease is prolonged.")},
    refuses=FENCED,
    examples={"another minute": {**HELD, "lease_seconds": 60}},
)
async def renew(call: Call) -> Answer:
    """Prolong the lease. Do so every third of it."""
    body: RenewBody = call.body
    lease = check_lease(body.lease_seconds)
    [answer] = await fenced(call, [ref_of(call, body)], lambda refs: call.service.store.queue.renew(refs, lease))
    return Answer(_renewed(or_raise(answer)))


@endpoint(
    "POST",
    "/api/tasks/renew",
    Scope.WORK,
    tag=TAG,
    body=RenewManyBody,
    answers={200: (RenewedAnswers, "Each claim is answered on its own.")},
    examples={"one": {"worker_id": "worker-youtube-01", "claims": [{"task_id": 1, "token": 1}]}},
)
async def renew_many(call: Call) -> Answer:
    """Prolong many leases."""
    body: RenewManyBody = call.body
    lease = check_lease(body.lease_seconds)
    refs = refs_of(body.worker_id, body.claims)
    answers = await fenced(call, refs, lambda seen: call.service.store.queue.renew(seen, lease))
    return Answer(RenewedAnswers(True, [or_refusal(answer, _renewed) for answer in answers]))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/progress",
    Scope.WORK,
    tag=TAG,
    body=ProgressBody,
    answers={200: (NotedShape, "Noted.")},
    refuses=FENCED,
    examples={"half way": {**HELD, "progress": 50, "message": "half way"}},
)
async def progress(call: Call) -> Answer:
    """Note how far the task is. The answer says whether somebody asked it to stop."""
    body: ProgressBody = call.body
    ref = ref_of(call, body)
    notes = {ref.task_id: (body.progress, body.message)}
    [answer] = await fenced(
        call, [ref], lambda refs: call.service.store.queue.progress([(each, *notes[each.task_id]) for each in refs])
    )
    return Answer(NotedShape(True, ref.task_id, or_raise(answer)))


@endpoint(
    "POST",
    "/api/tasks/progress",
    Scope.WORK,
    tag=TAG,
    body=NotesBody,
    answers={200: (NotedAnswers, "Each note is answered on its own.")},
    examples={"one": {"worker_id": "worker-youtube-01", "notes": [{"task_id": 1, "token": 1, "progress": 50}]}},
)
async def progress_many(call: Call) -> Answer:
    """Note how far many tasks are."""
    body: NotesBody = call.body
    refs = refs_of(body.worker_id, body.notes)
    said = {(note.task_id, note.token): (note.progress, note.message) for note in body.notes}
    answers = await fenced(
        call,
        refs,
        lambda seen: call.service.store.queue.progress([(ref, *said[ref.task_id, ref.token]) for ref in seen]),
    )
    noted = [_noted(ref, answer) for ref, answer in zip(refs, answers, strict=True)]
    return Answer(NotedAnswers(True, noted))


@endpoint(
    "POST",
    "/api/tasks/start",
    Scope.WORK,
    tag=TAG,
    body=ClaimsBody,
    answers={200: (StartedAnswers, "Each claim is answered on its own.")},
    examples={"one": {"worker_id": "worker-youtube-01", "claims": [{"task_id": 1, "token": 1}]}},
)
async def start(call: Call) -> Answer:
    """Tasks that were claimed ahead begin now: from here on they are charged an attempt if their worker is lost."""
    body: ClaimsBody = call.body
    refs = refs_of(body.worker_id, body.claims)
    answers = await fenced(call, refs, call.service.store.queue.start)
    started = [_started(ref, answer) for ref, answer in zip(refs, answers, strict=True)]
    return Answer(StartedAnswers(True, started))


@endpoint(
    "POST",
    "/api/tasks/standing",
    Scope.WORK,
    tag=TAG,
    body=ClaimsBody,
    answers={200: (Standings, "In the order of the request.")},
    examples={"one": {"worker_id": "worker-youtube-01", "claims": [{"task_id": 1, "token": 1}]}},
)
async def standing(call: Call) -> Answer:
    """How claims stand: held, asked to stop, or lost. Nothing is written, no lease prolonged."""
    body: ClaimsBody = call.body
    refs = refs_of(body.worker_id, body.claims)
    answers = await fenced(call, refs, call.service.store.queue.claim_status)
    return Answer(Standings([ClaimStatus.LOST if isinstance(each, DibsError) else each for each in answers]))


@endpoint("GET", "/api/tasks/next-due", Scope.WORK, tag=TAG, answers={200: (DueIn, "As of now.")})
async def next_due(call: Call) -> Answer:
    """When time alone makes the next task claimable: a delay or a lease that ends, a schedule that ticks."""
    return Answer(DueIn(await call.run(call.service.store.upkeep.next_due(call.caller.queues))))


def _noted(ref: ClaimRef, answer: bool | DibsError) -> NotedShape | RefusalShape:
    return refusal(answer) if isinstance(answer, DibsError) else NotedShape(True, ref.task_id, answer)


def _started(ref: ClaimRef, answer: DibsError | None) -> StartedShape | RefusalShape:
    return StartedShape(True, ref.task_id) if answer is None else refusal(answer)


def _renewed(done: Renewed) -> RenewedShape:
    until = shape.moment(done.lease_until)
    assert until is not None
    return RenewedShape(True, done.task_id, until, done.cancel_requested)


ENDPOINTS = [renew, renew_many, progress, progress_many, start, standing, next_due]
