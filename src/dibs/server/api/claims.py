"""Claims: take tasks, keep them, say how they ended; every write fenced by the claim's token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dibs import shape
from dibs.claim import (
    DEFAULT_LEASE,
    MAX_BATCH,
    Cancelled,
    Claim,
    ClaimRef,
    ClaimRequest,
    Completed,
    Failed,
    Finished,
    Outcome,
    Released,
    Renewed,
    Standing,
    check_lease,
)
from dibs.errors import DibsError, TaskNotFound
from dibs.key import Scope
from dibs.server.api.ordering import Ordered, order_of
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.server.fields import (
    AttemptsRemaining,
    Body,
    Count,
    Lease,
    Name,
    Names,
    Percent,
    RequestId,
    Seconds,
    TaskId,
    Token,
    Wait,
    WorkerId,
)
from dibs.server.refusing import RefusalShape, refusal
from dibs.store.operation import Operation
from dibs.task import Failure, State

TAG = "claims"
Write = Callable[[list[ClaimRef]], Operation[Any]]

Text = Annotated[str, Meta(description="Kept whatever it contains; a very long text keeps its end.")]
Result = Annotated[Any, Meta(description="Any JSON value.")]
Retryable = Annotated[bool, Meta(description="False: straight to the dead letter.")]
RetryIn = Annotated[Seconds, Meta(description="Seconds until it is tried again, instead of the task's backoff.")]
Rest = Annotated[Seconds, Meta(description="Seconds until it may be claimed again.")]
OneResult = Annotated[
    Any,
    Meta(
        description="Any JSON value. One that dibs does not store (NUL, integers beyond 64 bits) is refused by itself.",
        extra_json_schema={"type": ["null", "boolean", "number", "string", "array", "object"]},
    ),
]
Batch = Meta(max_length=MAX_BATCH)


# What is asked


class ClaimWish(Ordered, frozen=True):
    """Which tasks to claim, how many, and for how long."""

    queues: Annotated[Names, Meta(description="Only tasks of these queues.")] | None = None
    task_types: Annotated[Names, Meta(description="Only tasks of these types.")] | None = None
    max_attempts_remaining: AttemptsRemaining | None = None
    count: Annotated[Count, Meta(description="Up to so many; the answer then has `tasks`.")] | None = None
    lease_seconds: Lease = DEFAULT_LEASE
    incarnation: Annotated[Name, Meta(description="Tells two lives of a worker of the same name apart.")] | None = None
    ahead: Annotated[
        bool, Meta(description="They will wait before they begin, each told by /start; not charged an attempt before.")
    ] = False
    request_id: RequestId | None = None


class ClaimBody(ClaimWish, frozen=True, kw_only=True):
    """A worker's wish for tasks."""

    worker_id: WorkerId
    wait_seconds: Wait = 0


class ClaimByIdBody(Body, frozen=True):
    """A worker's wish for this task."""

    worker_id: WorkerId
    lease_seconds: Lease = DEFAULT_LEASE


class OfClaim(Body, frozen=True):
    """Who writes, under which token."""

    worker_id: WorkerId
    token: Token


class RenewBody(OfClaim, frozen=True):
    """Prolong the lease."""

    lease_seconds: Lease = DEFAULT_LEASE


class ProgressBody(OfClaim, frozen=True):
    """How far the task is."""

    progress: Percent
    message: Text | None = None


class CompleteBody(OfClaim, frozen=True):
    """The task is done."""

    result: Result = None

    def outcome(self) -> Outcome:
        """What the worker says."""
        return Completed(self.result)


class FailBody(OfClaim, frozen=True):
    """The attempt failed."""

    error_message: Text
    error_code: Text = "Error"
    traceback: Text | None = None
    retryable: Retryable = True
    retry_in_seconds: RetryIn | None = None

    def outcome(self) -> Outcome:
        """What the worker says."""
        failure = Failure(self.error_code, self.error_message, self.traceback)
        return Failed(failure, self.retry_in_seconds, not self.retryable)


class ReleaseBody(OfClaim, frozen=True):
    """Not done and not failed: back to the queue, no attempt spent."""

    delay_seconds: Rest = 0

    def outcome(self) -> Outcome:
        """What the worker says."""
        return Released(self.delay_seconds)


class OneClaim(Body, frozen=True):
    """A claim by its name."""

    task_id: TaskId
    token: Token


class CompletedOutcome(OneClaim, frozen=True, tag_field="outcome", tag="completed"):
    """Done."""

    result: OneResult = None

    def outcome(self) -> Outcome:
        """What the worker says."""
        return Completed(self.result)


class FailedOutcome(OneClaim, frozen=True, tag_field="outcome", tag="failed"):
    """Failed."""

    error_message: Text
    error_code: Text = "Error"
    traceback: Text | None = None
    retryable: Retryable = True
    retry_in_seconds: RetryIn | None = None

    def outcome(self) -> Outcome:
        """What the worker says."""
        failure = Failure(self.error_code, self.error_message, self.traceback)
        return Failed(failure, self.retry_in_seconds, not self.retryable)


class ReleasedOutcome(OneClaim, frozen=True, tag_field="outcome", tag="released"):
    """Given back."""

    delay_seconds: Rest = 0

    def outcome(self) -> Outcome:
        """What the worker says."""
        return Released(self.delay_seconds)


class CancelledOutcome(OneClaim, frozen=True, tag_field="outcome", tag="cancelled"):
    """Stopped, as somebody asked."""

    def outcome(self) -> Outcome:
        """What the worker says."""
        return Cancelled()


AnyOutcome = CompletedOutcome | FailedOutcome | ReleasedOutcome | CancelledOutcome
Outcomes = Annotated[list[AnyOutcome], Batch, Meta(description="How each claim ended; one outcome for each.")]
Claims = Annotated[list[OneClaim], Batch, Meta(description="The claims, each by its task and token.")]


class FinishBody(Body, frozen=True):
    """How many tasks ended."""

    worker_id: WorkerId
    outcomes: Outcomes


class ExchangeBody(FinishBody, frozen=True):
    """How the last tasks ended, and which ones to have next."""

    claim: Annotated[ClaimWish, Meta(description="What to claim next.")]


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


# What is answered


class Claimed(msgspec.Struct, frozen=True):
    """The claimed task; with `count` also all of them, best first."""

    success: bool
    task: shape.TaskShape
    message: str
    tasks: list[shape.TaskShape] | UnsetType = UNSET


class FiltersShape(msgspec.Struct, frozen=True):
    """What was asked for."""

    task_types: list[str] | None
    max_attempts_remaining: int | None
    queues: list[str] | UnsetType = UNSET


class NoneAvailable(msgspec.Struct, frozen=True):
    """Nothing to claim."""

    success: bool
    message: str
    filters: FiltersShape


class FinishedShape(msgspec.Struct, frozen=True):
    """Where the task stands now. `repeated`: this outcome was told before, and nothing was written again."""

    success: bool
    task_id: int
    status: State
    attempts: int
    will_retry: bool
    run_at: shape.Moment | None
    repeated: bool


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


class FinishedAnswers(msgspec.Struct, frozen=True):
    """An answer to each outcome, in the order of the request."""

    success: bool
    answers: list[FinishedShape | Any]


class Exchanged(msgspec.Struct, frozen=True):
    """An answer to each outcome, and the next tasks, if there are any."""

    success: bool
    answers: list[FinishedShape | Any]
    tasks: list[shape.TaskShape]


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

    standings: list[Standing]


class DueIn(msgspec.Struct, frozen=True):
    """Seconds until time alone makes something claimable; null where nothing waits for the clock."""

    seconds: float | None


FENCED = {
    403: "Another worker holds the task.",
    404: "",
    409: "The token is stale: the lease ran out or the task was taken back. Nothing was changed.",
}
HELD = {"worker_id": "worker-youtube-01", "token": 1}


@endpoint(
    "POST",
    "/api/tasks/claim",
    Scope.WORK,
    tag=TAG,
    body=ClaimBody,
    answers={200: (Claimed, "The task is yours."), 404: (NoneAvailable, "No pending task passes the filters.")},
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
    body: ClaimBody = call.body
    request = _request(call, body, body.worker_id)
    claims = await call.service.desk.claim(request, call.caller.by)
    if not claims and body.wait_seconds > 0:
        async with call.departure() as gone:
            claims = await call.service.room.wait(request, call.sign, body.wait_seconds, gone)
    return _claimed(claims, body) if claims else _none_available(body)


@endpoint(
    "POST",
    "/api/tasks/{id:int}/claim",
    Scope.WORK,
    tag=TAG,
    body=ClaimByIdBody,
    answers={200: (Claimed, "The task is yours.")},
    refuses={404: "", 409: "Another worker holds it, or it is not pending."},
    examples={"this one": {"worker_id": "worker-youtube-01"}},
)
async def claim_by_id(call: Call) -> Answer:
    """Claim this task."""
    body: ClaimByIdBody = call.body
    await call.check_visible(call.task_id)
    request = ClaimRequest(worker_id=body.worker_id, lease=body.lease_seconds)
    claimed = await call.run(call.service.store.claim_by_id(call.task_id, request))
    return Answer(Claimed(True, shape.task(claimed.task), "Task claimed successfully"))


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
    [answer] = await _fenced(call, [_ref(call, body)], lambda refs: call.service.store.renew(refs, lease))
    return Answer(_renewed(_or_raise(answer)))


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
    ref = _ref(call, body)
    notes = {ref.task_id: (body.progress, body.message)}
    [answer] = await _fenced(
        call, [ref], lambda refs: call.service.store.progress([(each, *notes[each.task_id]) for each in refs])
    )
    return Answer(NotedShape(True, ref.task_id, _or_raise(answer)))


async def _finish_one(call: Call) -> Answer:
    await call.check_visible(call.task_id)
    done = await call.service.desk.finish(_ref(call, call.body), call.body.outcome(), call.caller.by)
    return Answer(_finished(done))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/complete",
    Scope.WORK,
    tag=TAG,
    body=CompleteBody,
    answers={200: (FinishedShape, "The result is stored.")},
    refuses=FENCED,
    examples={"done": {**HELD, "result": {"views": 12345}}},
)
async def complete(call: Call) -> Answer:
    """The task is done. Telling it again is safe: the answer then says `repeated`."""
    return await _finish_one(call)


@endpoint(
    "POST",
    "/api/tasks/{id:int}/fail",
    Scope.WORK,
    tag=TAG,
    body=FailBody,
    answers={200: (FinishedShape, "Noted; `will_retry` and `run_at` say what comes next.")},
    refuses=FENCED,
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
    body=ReleaseBody,
    answers={200: (FinishedShape, "Back in the queue.")},
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
    body=FinishBody,
    answers={200: (FinishedAnswers, "Each outcome is answered on its own.")},
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
    body: FinishBody = call.body
    answers = await _fenced(
        call,
        _refs(body.worker_id, body.outcomes),
        lambda refs: call.service.store.finish(_reports(refs, body.outcomes)),
    )
    return Answer(FinishedAnswers(True, [_or_refusal(answer, _finished) for answer in answers]))


@endpoint(
    "POST",
    "/api/tasks/exchange",
    Scope.WORK,
    tag=TAG,
    body=ExchangeBody,
    answers={200: (Exchanged, "The outcomes are answered; `tasks` may be empty.")},
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
    body: ExchangeBody = call.body
    request = _request(call, body.claim, body.worker_id)
    refs = _refs(body.worker_id, body.outcomes)
    seen, visible = await _seen(call, refs)
    told, claims = await call.run(call.service.store.exchange(_reports(seen, body.outcomes), request))
    answers = _with_unseen(refs, visible, told)
    finished = [_or_refusal(answer, _finished) for answer in answers]
    return Answer(Exchanged(True, finished, [shape.task(claim.task) for claim in claims]))


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
    refs = _refs(body.worker_id, body.claims)
    answers = await _fenced(call, refs, lambda seen: call.service.store.renew(seen, lease))
    return Answer(RenewedAnswers(True, [_or_refusal(answer, _renewed) for answer in answers]))


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
    refs = _refs(body.worker_id, body.notes)
    said = {(note.task_id, note.token): (note.progress, note.message) for note in body.notes}
    answers = await _fenced(
        call,
        refs,
        lambda seen: call.service.store.progress([(ref, *said[ref.task_id, ref.token]) for ref in seen]),
    )
    return Answer(
        NotedAnswers(
            True,
            [
                refusal(answer) if isinstance(answer, DibsError) else NotedShape(True, ref.task_id, answer)
                for ref, answer in zip(refs, answers, strict=True)
            ],
        )
    )


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
    refs = _refs(body.worker_id, body.claims)
    answers = await _fenced(call, refs, call.service.store.start)
    return Answer(
        StartedAnswers(
            True,
            [
                StartedShape(True, ref.task_id) if answer is None else refusal(answer)
                for ref, answer in zip(refs, answers, strict=True)
            ],
        )
    )


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
    refs = _refs(body.worker_id, body.claims)
    answers = await _fenced(call, refs, call.service.store.standing)
    return Answer(Standings([Standing.LOST if isinstance(each, DibsError) else each for each in answers]))


@endpoint("GET", "/api/tasks/next-due", Scope.WORK, tag=TAG, answers={200: (DueIn, "As of now.")})
async def next_due(call: Call) -> Answer:
    """When time alone makes the next task claimable: a delay or a lease that ends, a schedule that ticks."""
    return Answer(DueIn(await call.run(call.service.store.next_due())))


def _request(call: Call, wish: ClaimWish, worker_id: str) -> ClaimRequest:
    return ClaimRequest(
        queues=call.caller.narrow(wish.queues),
        types=wish.task_types,
        max_attempts_remaining=wish.max_attempts_remaining,
        order=order_of(wish),
        count=wish.count or 1,
        worker_id=worker_id,
        incarnation=wish.incarnation,
        lease=wish.lease_seconds,
        ahead=wish.ahead,
        request=wish.request_id,
    )


def _claimed(claims: list[Claim], body: ClaimBody) -> Answer:
    tasks = [shape.task(claim.task) for claim in claims]
    if body.count is None:
        return Answer(Claimed(True, tasks[0], "Task claimed successfully"))
    message = "Task claimed successfully" if len(tasks) == 1 else f"{len(tasks)} tasks claimed successfully"
    return Answer(Claimed(True, tasks[0], message, tasks))


def _none_available(body: ClaimBody) -> Answer:
    queues = UNSET if body.queues is None else body.queues
    filters = FiltersShape(body.task_types, body.max_attempts_remaining, queues)
    return Answer(NoneAvailable(False, "No pending tasks available", filters), 404)


def _ref(call: Call, body: OfClaim) -> ClaimRef:
    return ClaimRef(call.task_id, body.token, body.worker_id)


def _refs(worker_id: str, claims: Sequence[OneClaim]) -> list[ClaimRef]:
    return [ClaimRef(each.task_id, each.token, worker_id) for each in claims]


def _reports(refs: Sequence[ClaimRef], outcomes: Sequence[AnyOutcome]) -> list[tuple[ClaimRef, Outcome]]:
    """The outcomes of those claims that the caller may see."""
    if len(refs) == len(outcomes):
        return [(ref, each.outcome()) for ref, each in zip(refs, outcomes, strict=True)]
    seen = {ref.task_id for ref in refs}
    return [
        (ref, each.outcome())
        for ref, each in zip(refs, (each for each in outcomes if each.task_id in seen), strict=True)
    ]


async def _fenced(call: Call, refs: list[ClaimRef], write: Write) -> list[Any]:
    """What the store answers to each claim."""
    seen, visible = await _seen(call, refs)
    return _with_unseen(refs, visible, await call.run(write(seen)))


async def _seen(call: Call, refs: list[ClaimRef]) -> tuple[list[ClaimRef], frozenset[int] | None]:
    """The claims of tasks that the caller may see, and which tasks these are."""
    visible = await call.visible([ref.task_id for ref in refs])
    return (refs if visible is None else [ref for ref in refs if ref.task_id in visible]), visible


def _with_unseen(refs: list[ClaimRef], visible: frozenset[int] | None, answers: list[Any]) -> list[Any]:
    """An answer to every claim: a task of a foreign queue is one that does not exist."""
    if visible is None:
        return answers
    told = iter(answers)
    return [next(told) if ref.task_id in visible else TaskNotFound(ref.task_id) for ref in refs]


def _or_raise(answer: Any) -> Any:
    if isinstance(answer, DibsError):
        raise answer
    return answer


def _or_refusal(answer: Any, shaped: Any) -> Any | RefusalShape:
    return refusal(answer) if isinstance(answer, DibsError) else shaped(answer)


def _finished(done: Finished) -> FinishedShape:
    return FinishedShape(
        True, done.task_id, done.state, done.attempts, done.will_retry, shape.moment(done.run_at), done.repeated
    )


def _renewed(done: Renewed) -> RenewedShape:
    until = shape.moment(done.lease_until)
    assert until is not None
    return RenewedShape(True, done.task_id, until, done.cancel_requested)


ENDPOINTS = [
    claim,
    exchange,
    finish,
    complete,
    fail,
    release,
    renew,
    renew_many,
    progress,
    progress_many,
    start,
    standing,
    next_due,
    claim_by_id,
]
