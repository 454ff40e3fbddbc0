"""Claims as JSON: take tasks, keep them, say how they ended; what a worker keeps between attempts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from dibs.codec import check_name, clean_text
from dibs.errors import InvalidValue
from dibs.model import claim as model_claim
from dibs.model.claim import (
    DEFAULT_LEASE,
    MAX_BATCH,
    AnyClaim,
    Cancelled,
    Claim,
    ClaimRef,
    ClaimRequest,
    ClaimStatus,
    Completed,
    Failed,
    Order,
    Outcome,
    Released,
)
from dibs.model.task import Failure, State
from dibs.wire.fields import (
    AttemptsRemaining,
    Count,
    JsonObject,
    Lease,
    Name,
    Names,
    Percent,
    RequestBody,
    RequestId,
    Seconds,
    TaskId,
    Timestamp,
    Token,
    Wait,
    WorkerId,
    checked_json,
    not_both,
    to_datetime,
    to_datetime_or_none,
    to_text,
    to_text_or_none,
)
from dibs.wire.tasks import Task
from dibs.wire.workflows import StepBody, steps_of

# Which tasks, and which first

_SORTS = {
    ("priority", "desc"): Order.PRIORITY,
    ("priority", "asc"): Order.PRIORITY_ASC,
    ("created_at", "asc"): Order.FIFO,
    ("created_at", "desc"): Order.LIFO,
    ("random", "asc"): Order.RANDOM,
    ("random", "desc"): Order.RANDOM,
}
_USUAL = {"priority": "desc", "created_at": "asc", "random": "asc"}


class Ordered(RequestBody, frozen=True):
    """Which of the tasks first: `order` by its own name, or `sort_by` and `sort_order`, which map onto them."""

    rules = (not_both("order", "sort_by"), not_both("order", "sort_order"))

    order: Annotated[Order, Meta(description="Instead of sort_by and sort_order.")] | None = None
    sort_by: (
        Annotated[Literal["priority", "created_at", "random"], Meta(description="What decides; by default priority.")]
        | None
    ) = None
    sort_order: (
        Annotated[
            Literal["asc", "desc"],
            Meta(description="By default desc for priority, asc for created_at; random has none."),
        ]
        | None
    ) = None

    def chosen(self) -> Order:
        """The order that is asked for; priority where none is."""
        if self.order is not None:
            if self.sort_by is not None or self.sort_order is not None:
                raise InvalidValue("Give either order, or sort_by and sort_order.")
            return self.order
        sort_by = self.sort_by or "priority"
        return _SORTS[sort_by, self.sort_order or _USUAL[sort_by]]


def _order(order: str) -> Order | None:
    """The order to send; None where it is the server's default as well."""
    return None if order == Order.PRIORITY else Order(order)


def _list(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


OfQueues = Annotated[Names, Meta(description="Only tasks of these queues.")]
OfTypes = Annotated[Names, Meta(description="Only tasks of these types.")]


class PeekBody(Ordered, frozen=True):
    """Which pending tasks to look at, and in which order."""

    queues: OfQueues | None = None
    types: OfTypes | None = field(name="task_types", default=None)
    max_attempts_remaining: AttemptsRemaining | None = None
    count: Annotated[Count, Meta(description="Up to so many.")] = 1

    @classmethod
    def from_model(cls, filters: model_claim.Filters) -> Self:
        """The filters to send."""
        return cls(
            queues=_list(filters.queues),
            types=_list(filters.types),
            max_attempts_remaining=filters.max_attempts_remaining,
            order=_order(filters.order),
            count=filters.count,
        )

    def to_model(self, queues: Sequence[str] | None) -> model_claim.Filters:
        """The filters, checked. `queues`: those of `queues` that the caller may see."""
        return model_claim.Filters(
            queues=queues,
            types=self.types,
            max_attempts_remaining=self.max_attempts_remaining,
            order=self.chosen(),
            count=self.count,
        )


class ClaimWish(Ordered, frozen=True):
    """Which tasks to claim, how many, and for how long."""

    queues: OfQueues | None = None
    types: OfTypes | None = field(name="task_types", default=None)
    max_attempts_remaining: AttemptsRemaining | None = None
    count: Annotated[Count, Meta(description="Up to so many; the answer then has `tasks`.")] | None = None
    lease: Lease = field(name="lease_seconds", default=DEFAULT_LEASE)
    incarnation: Annotated[Name, Meta(description="Tells two lives of a worker of the same name apart.")] | None = None
    ahead: Annotated[
        bool, Meta(description="They will wait before they begin, each told by /start; not charged an attempt before.")
    ] = False
    request: RequestId | None = field(name="request_id", default=None)

    @classmethod
    def from_model(cls, request: ClaimRequest) -> Self:
        """What to send, under a name of its own: the same request again gets the same tasks."""
        return cls(**_claim_options(request))

    def to_model(self, worker_id: str, queues: Sequence[str] | None) -> ClaimRequest:
        """The request, checked. `queues`: those of `queues` that the caller may see."""
        return ClaimRequest(
            queues=queues,
            types=self.types,
            max_attempts_remaining=self.max_attempts_remaining,
            order=self.chosen(),
            count=self.count or 1,
            worker_id=worker_id,
            incarnation=self.incarnation,
            lease=self.lease,
            ahead=self.ahead,
            request=self.request,
        )


def _claim_options(request: ClaimRequest) -> dict[str, Any]:
    return {
        "queues": _list(request.queues),
        "types": _list(request.types),
        "max_attempts_remaining": request.max_attempts_remaining,
        "order": _order(request.order),
        "count": request.count,
        "lease": request.lease,
        "incarnation": request.incarnation,
        "ahead": request.ahead,
        "request": _request_id(request),
    }


def _request_id(request: ClaimRequest) -> str:
    return request.request or uuid.uuid4().hex


class ClaimBody(ClaimWish, frozen=True, kw_only=True):
    """A worker's wish for tasks."""

    worker_id: WorkerId
    wait: Wait = field(name="wait_seconds", default=0)

    @classmethod
    def from_model(cls, request: ClaimRequest) -> Self:
        """What to send, under a name of its own: the same request again gets the same tasks."""
        return cls(**_claim_options(request), worker_id=request.worker_id, wait=request.wait)


class ClaimByIdBody(RequestBody, frozen=True):
    """A worker's wish for this task."""

    worker_id: WorkerId
    lease: Lease = field(name="lease_seconds", default=DEFAULT_LEASE)
    request: RequestId | None = field(name="request_id", default=None)

    @classmethod
    def from_model(cls, request: ClaimRequest) -> Self:
        """What to send, under a name of its own: the same request again gets the same task."""
        return cls(worker_id=request.worker_id, lease=request.lease, request=_request_id(request))

    def to_model(self) -> ClaimRequest:
        """The request, checked."""
        return ClaimRequest(worker_id=self.worker_id, lease=self.lease, request=self.request)


class Claimed(msgspec.Struct, frozen=True):
    """The claimed task; with `count` also all of them, best first."""

    success: bool
    task: Task
    message: str
    tasks: list[Task] | UnsetType = UNSET

    @classmethod
    def from_model(cls, claims: Sequence[Claim], several: bool = False) -> Self:
        """The claims as an answer. `several`: more than one was asked for."""
        tasks = [Task.from_model(claim.task) for claim in claims]
        message = "Task claimed successfully" if len(tasks) == 1 else f"{len(tasks)} tasks claimed successfully"
        return cls(success=True, task=tasks[0], message=message, tasks=tasks if several else UNSET)

    def to_model(self) -> list[Claim]:
        """The claims."""
        return [task.to_claim() for task in ([self.task] if self.tasks is UNSET else self.tasks)]


class Filters(msgspec.Struct, frozen=True):
    """What was asked for."""

    types: list[str] | None = field(name="task_types")
    max_attempts_remaining: int | None
    queues: list[str] | UnsetType = UNSET


class NoneAvailable(msgspec.Struct, frozen=True):
    """Nothing to claim."""

    success: bool
    message: str
    filters: Filters

    @classmethod
    def from_request(cls, body: ClaimWish) -> Self:
        """The answer to a request that no pending task fits."""
        queues = UNSET if body.queues is None else body.queues
        filters = Filters(types=body.types, max_attempts_remaining=body.max_attempts_remaining, queues=queues)
        return cls(success=False, message="No pending tasks available", filters=filters)


# Which claims

Text = Annotated[str, Meta(description="Kept whatever it contains; a very long text keeps its end.")]
Batch = Meta(max_length=MAX_BATCH)


class OfClaim(RequestBody, frozen=True):
    """Who writes, under which token."""

    worker_id: WorkerId
    token: Token

    def ref(self, task_id: int) -> ClaimRef:
        """The claim of this task."""
        return ClaimRef(task_id=task_id, token=self.token, worker_id=self.worker_id)


class ClaimFields(RequestBody, frozen=True):
    """A claim by its name, of the worker that the request names."""

    task_id: TaskId
    token: Token

    def ref(self, worker_id: str) -> ClaimRef:
        """The claim of this worker."""
        return ClaimRef(task_id=self.task_id, token=self.token, worker_id=worker_id)


class OneClaim(ClaimFields, frozen=True):
    """A claim by its name."""

    @classmethod
    def from_model(cls, ref: AnyClaim) -> Self:
        """The claim to send."""
        return cls(task_id=ref.task_id, token=ref.token)


# How tasks ended

Result = Annotated[Any, Meta(description="Any JSON value.")]
Retryable = Annotated[bool, Meta(description="False: straight to the dead letter.")]
RetryIn = Annotated[Seconds, Meta(description="Seconds until it is tried again, instead of the task's backoff.")]
Rest = Annotated[Seconds, Meta(description="Seconds until it may be claimed again.")]
AddedSteps = Annotated[
    list[StepBody],
    Meta(description="What it adds to its workflow, each named after it; what waits for it waits for these as well."),
]
OneResult = Annotated[
    Any,
    Meta(
        description="Any JSON value. One that dibs does not store (NUL, integers beyond 64 bits) is refused by itself.",
        extra_json_schema={"type": ["null", "boolean", "number", "string", "array", "object"]},
    ),
]


class CompleteBody(OfClaim, frozen=True):
    """The task is done."""

    result: Result = None
    steps: AddedSteps = field(default_factory=list)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return Completed(result=self.result, steps=steps_of(self.steps))


class FailBody(OfClaim, frozen=True):
    """The attempt failed."""

    message: Text = field(name="error_message")
    type: Text = field(name="error_code", default="Error")
    traceback: Text | None = None
    retryable: Retryable = True
    retry_in: RetryIn | None = field(name="retry_in_seconds", default=None)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return _failed(self)


class ReleaseBody(OfClaim, frozen=True):
    """Not done and not failed: back to the queue, no attempt spent."""

    delay: Rest = field(name="delay_seconds", default=0)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return Released(delay=self.delay)


class CompletedOutcome(ClaimFields, frozen=True, tag_field="outcome", tag="completed"):
    """Done."""

    result: OneResult = None
    steps: AddedSteps = field(default_factory=list)

    @classmethod
    def from_model(cls, ref: AnyClaim, outcome: Completed) -> Self:
        """The outcome to send; a result that dibs does not store is refused."""
        result = None if outcome.result is None else checked_json(outcome.result, "result")
        steps = [StepBody.from_model(step) for step in outcome.steps] if outcome.steps else []
        return cls(task_id=ref.task_id, token=ref.token, result=result, steps=steps)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return Completed(result=self.result, steps=steps_of(self.steps))


class FailedOutcome(ClaimFields, frozen=True, tag_field="outcome", tag="failed"):
    """Failed."""

    message: Text = field(name="error_message")
    type: Text = field(name="error_code", default="Error")
    traceback: Text | None = None
    retryable: Retryable = True
    retry_in: RetryIn | None = field(name="retry_in_seconds", default=None)

    @classmethod
    def from_model(cls, ref: AnyClaim, outcome: Failed) -> Self:
        """The outcome to send."""
        failure = outcome.failure
        return cls(
            task_id=ref.task_id,
            token=ref.token,
            message=clean_text(failure.message),
            type=clean_text(failure.type),
            traceback=None if failure.traceback is None else clean_text(failure.traceback),
            retryable=not outcome.permanent,
            retry_in=outcome.retry_in,
        )

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return _failed(self)


class ReleasedOutcome(ClaimFields, frozen=True, tag_field="outcome", tag="released"):
    """Given back."""

    delay: Rest = field(name="delay_seconds", default=0)

    @classmethod
    def from_model(cls, ref: AnyClaim, outcome: Released) -> Self:
        """The outcome to send."""
        return cls(task_id=ref.task_id, token=ref.token, delay=outcome.delay)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return Released(delay=self.delay)


class CancelledOutcome(ClaimFields, frozen=True, tag_field="outcome", tag="cancelled"):
    """Stopped, as somebody asked."""

    @classmethod
    def from_model(cls, ref: AnyClaim, outcome: Cancelled) -> Self:
        """The outcome to send."""
        return cls(task_id=ref.task_id, token=ref.token)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return Cancelled()


def _failed(said: FailBody | FailedOutcome) -> Failed:
    failure = Failure(type=said.type, message=said.message, traceback=said.traceback)
    return Failed(failure=failure, retry_in=said.retry_in, permanent=not said.retryable)


AnyOutcome = CompletedOutcome | FailedOutcome | ReleasedOutcome | CancelledOutcome
Outcomes = Annotated[list[AnyOutcome], Batch, Meta(description="How each claim ended; one outcome for each.")]

_OUTCOMES: dict[type, Any] = {
    Completed: CompletedOutcome,
    Failed: FailedOutcome,
    Released: ReleasedOutcome,
    Cancelled: CancelledOutcome,
}


def outcome_body(ref: AnyClaim, outcome: Outcome) -> AnyOutcome:
    """The outcome of a claim to send; a result that dibs does not store is refused."""
    body: AnyOutcome = _OUTCOMES[type(outcome)].from_model(ref, outcome)
    return body


class FinishBody(RequestBody, frozen=True):
    """How many tasks ended."""

    worker_id: WorkerId
    outcomes: Outcomes


class ExchangeBody(FinishBody, frozen=True):
    """How the last tasks ended, and which ones to have next."""

    claim: Annotated[ClaimWish, Meta(description="What to claim next.")]


class Finished(msgspec.Struct, frozen=True):
    """Where the task stands now. `repeated`: this outcome was told before, and nothing was written again."""

    success: bool
    task_id: int
    state: State = field(name="status")
    attempts: int
    will_retry: bool
    run_at: Timestamp | None
    repeated: bool

    @classmethod
    def from_model(cls, done: model_claim.Finished) -> Self:
        """The result as an answer."""
        return cls(
            success=True,
            task_id=done.task_id,
            state=done.state,
            attempts=done.attempts,
            will_retry=done.will_retry,
            run_at=to_text_or_none(done.run_at),
            repeated=done.repeated,
        )

    def to_model(self) -> model_claim.Finished:
        """The result. The server finalizes workflows itself, so `finalize` is left out."""
        return model_claim.Finished(
            task_id=self.task_id,
            state=self.state,
            attempts=self.attempts,
            run_at=to_datetime_or_none(self.run_at),
            repeated=self.repeated,
        )


class FinishedAnswers(msgspec.Struct, frozen=True):
    """An answer to each outcome, in the order of the request."""

    success: bool
    answers: list[Finished | Any]


class Exchanged(msgspec.Struct, frozen=True):
    """An answer to each outcome, and the next tasks, if there are any."""

    success: bool
    answers: list[Finished | Any]
    tasks: list[Task]


# Keep claims


class RenewBody(OfClaim, frozen=True):
    """Prolong the lease."""

    lease: Lease = field(name="lease_seconds", default=DEFAULT_LEASE)


class ProgressBody(OfClaim, frozen=True):
    """How far the task is."""

    progress: Percent
    message: Text | None = None


class ClaimsBody(RequestBody, frozen=True):
    """Claims of one worker."""

    worker_id: WorkerId
    claims: Annotated[list[OneClaim], Batch, Meta(description="The claims, each by its task and token.")]


class RenewManyBody(ClaimsBody, frozen=True):
    """Leases to prolong."""

    lease: Lease = field(name="lease_seconds", default=DEFAULT_LEASE)


class OneNote(ClaimFields, frozen=True):
    """How far a task is."""

    progress: Percent
    message: Text | None = None

    @classmethod
    def from_model(cls, ref: AnyClaim, percent: int, message: str | None) -> Self:
        """The progress to send."""
        cleaned = None if message is None else clean_text(message)
        return cls(task_id=ref.task_id, token=ref.token, progress=percent, message=cleaned)


class NotesBody(RequestBody, frozen=True):
    """How far tasks are."""

    worker_id: WorkerId
    notes: Annotated[list[OneNote], Batch, Meta(description="How far each task is.")]


class Renewed(msgspec.Struct, frozen=True):
    """The new end of the lease, and whether somebody asked the task to stop."""

    success: bool
    task_id: int
    lease_until: Timestamp
    cancel_requested: bool

    @classmethod
    def from_model(cls, done: model_claim.Renewed) -> Self:
        """The result as an answer."""
        return cls(
            success=True,
            task_id=done.task_id,
            lease_until=to_text(done.lease_until),
            cancel_requested=done.cancel_requested,
        )

    def to_model(self) -> model_claim.Renewed:
        """The result."""
        return model_claim.Renewed(
            task_id=self.task_id, lease_until=to_datetime(self.lease_until), cancel_requested=self.cancel_requested
        )


class Noted(msgspec.Struct, frozen=True):
    """Whether somebody asked the task to stop."""

    success: bool
    task_id: int
    cancel_requested: bool

    @classmethod
    def from_model(cls, task_id: int, cancel_requested: bool) -> Self:
        """The result as an answer."""
        return cls(success=True, task_id=task_id, cancel_requested=cancel_requested)

    def to_model(self) -> bool:
        """True if somebody asked the task to stop."""
        return self.cancel_requested


class Started(msgspec.Struct, frozen=True):
    """The task has begun."""

    success: bool
    task_id: int

    @classmethod
    def from_model(cls, task_id: int) -> Self:
        """The result as an answer."""
        return cls(success=True, task_id=task_id)

    def to_model(self) -> None:
        """Nothing: a task that has begun has no result."""


class RenewedAnswers(msgspec.Struct, frozen=True):
    """An answer to each claim."""

    success: bool
    answers: list[Renewed | Any]


class NotedAnswers(msgspec.Struct, frozen=True):
    """An answer to each note."""

    success: bool
    answers: list[Noted | Any]


class StartedAnswers(msgspec.Struct, frozen=True):
    """An answer to each claim."""

    success: bool
    answers: list[Started | Any]


class Standings(msgspec.Struct, frozen=True):
    """How each claim stands."""

    standings: list[ClaimStatus]

    def to_model(self) -> list[ClaimStatus]:
        """The status of each claim."""
        return self.standings


class DueIn(msgspec.Struct, frozen=True):
    """Seconds until time alone makes something claimable; null where nothing waits for the clock."""

    seconds: float | None

    def to_model(self) -> float | None:
        """The seconds."""
        return self.seconds


# Checkpoints


class CheckpointBody(OfClaim, frozen=True):
    """A value to keep for later attempts."""

    name: Annotated[Name, Meta(description="What it is called within the task.")]
    value: Annotated[Any, Meta(description="Any JSON value.")]

    @classmethod
    def from_model(cls, ref: AnyClaim, name: str, value: Any) -> Self:
        """The checkpoint to send; a value that dibs does not store is refused."""
        return cls(
            worker_id=ref.worker_id,
            token=ref.token,
            name=check_name(name, "The name of a checkpoint"),
            value=checked_json(value, "value"),
        )


class Checkpoints(msgspec.Struct, frozen=True):
    """What is kept, by name."""

    checkpoints: JsonObject

    def to_model(self) -> dict[str, Any]:
        """The values by name."""
        return self.checkpoints


class Kept(msgspec.Struct, frozen=True):
    """The value that is kept."""

    success: bool
    value: Any

    def to_model(self) -> Any:
        """The value."""
        return self.value
