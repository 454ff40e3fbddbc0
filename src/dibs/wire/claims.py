"""Claims as JSON: requests to claim, start, renew and finish tasks, to store progress and checkpoints; the answers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from dibs.errors import InvalidValue
from dibs.json_values import check_name, clean_text
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
from dibs.model.task import Failure, SetAside, State
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

# Filters and order

_SORTS = {
    ("priority", "desc"): Order.PRIORITY,
    ("priority", "asc"): Order.PRIORITY_ASC,
    ("created_at", "asc"): Order.FIFO,
    ("created_at", "desc"): Order.LIFO,
    ("random", "asc"): Order.RANDOM,
    ("random", "desc"): Order.RANDOM,
}
_DEFAULT_SORT_ORDER = {"priority": "desc", "created_at": "asc", "random": "asc"}


class OrderOptions(RequestBody, frozen=True):
    """The order of a claim: the name of an order, or `sort_by` and `sort_order`, which map to an order."""

    rules = (not_both("order", "sort_by"), not_both("order", "sort_order"))

    order: Annotated[Order, Meta(description="Instead of sort_by and sort_order.")] | None = None
    sort_by: (
        Annotated[Literal["priority", "created_at", "random"], Meta(description="The sort key; by default priority.")]
        | None
    ) = None
    sort_order: (
        Annotated[
            Literal["asc", "desc"],
            Meta(description="By default desc for priority, asc for created_at; random has none."),
        ]
        | None
    ) = None

    def requested_order(self) -> Order:
        """The requested order; priority if the request has none."""
        if self.order is not None:
            if self.sort_by is not None or self.sort_order is not None:
                raise InvalidValue("Give either order, or sort_by and sort_order.")
            return self.order
        sort_by = self.sort_by or "priority"
        return _SORTS[sort_by, self.sort_order or _DEFAULT_SORT_ORDER[sort_by]]


def _order(order: str) -> Order | None:
    """The order to send; None for the default order, which the server uses anyway."""
    return None if order == Order.PRIORITY else Order(order)


def _list(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


OfQueues = Annotated[Names, Meta(description="Only tasks of these queues.")]
OfTypes = Annotated[Names, Meta(description="Only tasks of these types.")]


class PeekBody(OrderOptions, frozen=True):
    """Which pending tasks to read, and in which order."""

    queues: OfQueues | None = None
    types: OfTypes | None = field(name="task_types", default=None)
    max_attempts_remaining: AttemptsRemaining | None = None
    count: Annotated[Count, Meta(description="The largest number of tasks.")] = 1

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
        """The filters, checked. `queues`: the requested queues that the caller has access to."""
        return model_claim.Filters(
            queues=queues,
            types=self.types,
            max_attempts_remaining=self.max_attempts_remaining,
            order=self.requested_order(),
            count=self.count,
        )


class ClaimOptions(OrderOptions, frozen=True):
    """Which tasks to claim, how many, and for how long."""

    queues: OfQueues | None = None
    types: OfTypes | None = field(name="task_types", default=None)
    max_attempts_remaining: AttemptsRemaining | None = None
    count: Annotated[Count, Meta(description="The largest number of tasks; the answer then has `tasks`.")] | None = None
    lease: Lease = field(name="lease_seconds", default=DEFAULT_LEASE)
    incarnation: Annotated[Name, Meta(description="Tells two processes with the same worker id apart.")] | None = None
    ahead: Annotated[
        bool, Meta(description="Claim ahead: a task starts with a call of /start, and no attempt is charged before.")
    ] = False
    request: RequestId | None = field(name="request_id", default=None)

    @classmethod
    def from_model(cls, request: ClaimRequest) -> Self:
        """The request to send, with a request id: a repetition of the request gets the same tasks."""
        return cls(**_claim_options(request))

    def to_model(self, worker_id: str, queues: Sequence[str] | None) -> ClaimRequest:
        """The request, checked. `queues`: the requested queues that the caller has access to."""
        return ClaimRequest(
            queues=queues,
            types=self.types,
            max_attempts_remaining=self.max_attempts_remaining,
            order=self.requested_order(),
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


class ClaimBody(ClaimOptions, frozen=True, kw_only=True):
    """A claim of tasks by a worker."""

    worker_id: WorkerId
    wait: Wait = field(name="wait_seconds", default=0)

    @classmethod
    def from_model(cls, request: ClaimRequest) -> Self:
        """The request to send, with a request id: a repetition of the request gets the same tasks."""
        return cls(**_claim_options(request), worker_id=request.worker_id, wait=request.wait)


class ClaimByIdBody(RequestBody, frozen=True):
    """A claim of this task by a worker."""

    worker_id: WorkerId
    lease: Lease = field(name="lease_seconds", default=DEFAULT_LEASE)
    request: RequestId | None = field(name="request_id", default=None)

    @classmethod
    def from_model(cls, request: ClaimRequest) -> Self:
        """The request to send, with a request id: a repetition of the request gets the same task."""
        return cls(worker_id=request.worker_id, lease=request.lease, request=_request_id(request))

    def to_model(self) -> ClaimRequest:
        """The request, checked."""
        return ClaimRequest(worker_id=self.worker_id, lease=self.lease, request=self.request)


class Claimed(msgspec.Struct, frozen=True):
    """The first claimed task; with `count` in the request also all claimed tasks, in the order of the claim."""

    success: bool
    task: Task
    message: str
    tasks: list[Task] | UnsetType = UNSET

    @classmethod
    def from_model(cls, claims: Sequence[Claim], several: bool = False) -> Self:
        """The claims as an answer. `several`: the request has a `count`."""
        tasks = [Task.from_claim(claim) for claim in claims]
        message = "Task claimed successfully" if len(tasks) == 1 else f"{len(tasks)} tasks claimed successfully"
        return cls(success=True, task=tasks[0], message=message, tasks=tasks if several else UNSET)

    def to_model(self) -> list[Claim]:
        """The claims."""
        return [task.to_claim() for task in ([self.task] if self.tasks is UNSET else self.tasks)]


class Filters(msgspec.Struct, frozen=True):
    """The filters of the request."""

    types: list[str] | None = field(name="task_types")
    max_attempts_remaining: int | None
    queues: list[str] | UnsetType = UNSET


class NoneAvailable(msgspec.Struct, frozen=True):
    """The answer to a claim if no pending task passes its filters."""

    success: bool
    message: str
    filters: Filters

    @classmethod
    def from_request(cls, body: ClaimOptions) -> Self:
        """The answer to this request."""
        queues = UNSET if body.queues is None else body.queues
        filters = Filters(types=body.types, max_attempts_remaining=body.max_attempts_remaining, queues=queues)
        return cls(success=False, message="No pending tasks available", filters=filters)


# References to claims

Text = Annotated[str, Meta(description="Any text; of a very long text the end is stored.")]
Batch = Meta(max_length=MAX_BATCH)


class ClaimHolder(RequestBody, frozen=True):
    """The holder of a claim: the worker and the token of its claim."""

    worker_id: WorkerId
    token: Token

    def ref(self, task_id: int) -> ClaimRef:
        """The claim of this task."""
        return ClaimRef(task_id=task_id, token=self.token, worker_id=self.worker_id)


class ClaimFields(RequestBody, frozen=True):
    """A claim by task and token; the worker is named in the request."""

    task_id: TaskId
    token: Token

    def ref(self, worker_id: str) -> ClaimRef:
        """The claim of this worker."""
        return ClaimRef(task_id=self.task_id, token=self.token, worker_id=worker_id)


class OneClaim(ClaimFields, frozen=True):
    """A claim by task and token."""

    @classmethod
    def from_model(cls, ref: AnyClaim) -> Self:
        """The claim to send."""
        return cls(task_id=ref.task_id, token=ref.token)


# Outcomes

Result = Annotated[Any, Meta(description="Any JSON value.")]
Retryable = Annotated[bool, Meta(description="False: straight to the dead letter.")]
RetryIn = Annotated[Seconds, Meta(description="Seconds until the next attempt, instead of the task's backoff.")]
ReleaseDelay = Annotated[Seconds, Meta(description="Seconds until the task can be claimed again.")]
AddedSteps = Annotated[
    list[StepBody],
    Meta(description="Steps to add to the workflow, named after this step. Its children wait for them as well."),
]
OneResult = Annotated[
    Any,
    Meta(
        description="Any JSON value. If dibs cannot store it (NUL, integers beyond 64 bits), only this outcome fails.",
        extra_json_schema={"type": ["null", "boolean", "number", "string", "array", "object"]},
    ),
]


class CompleteBody(ClaimHolder, frozen=True):
    """The attempt succeeded."""

    result: Result = None
    steps: AddedSteps = field(default_factory=list)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return Completed(result=self.result, steps=steps_of(self.steps))


class FailBody(ClaimHolder, frozen=True):
    """The attempt failed."""

    message: Text = field(name="error_message")
    type: Text = field(name="error_code", default="Error")
    traceback: Text | None = None
    retryable: Retryable = True
    retry_in: RetryIn | None = field(name="retry_in_seconds", default=None)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return _failed(self)


class ReleaseBody(ClaimHolder, frozen=True):
    """The task goes back to its queue without spending an attempt."""

    delay: ReleaseDelay = field(name="delay_seconds", default=0)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return Released(delay=self.delay)


class CompletedOutcome(ClaimFields, frozen=True, tag_field="outcome", tag="completed"):
    """The attempt succeeded."""

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
    """The attempt failed."""

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
    """The task goes back to its queue without spending an attempt."""

    delay: ReleaseDelay = field(name="delay_seconds", default=0)

    @classmethod
    def from_model(cls, ref: AnyClaim, outcome: Released) -> Self:
        """The outcome to send."""
        return cls(task_id=ref.task_id, token=ref.token, delay=outcome.delay)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return Released(delay=self.delay)


class CancelledOutcome(ClaimFields, frozen=True, tag_field="outcome", tag="cancelled"):
    """The attempt stopped because the cancellation of the task was requested."""

    @classmethod
    def from_model(cls, ref: AnyClaim, outcome: Cancelled) -> Self:
        """The outcome to send."""
        return cls(task_id=ref.task_id, token=ref.token)

    def to_model(self) -> Outcome:
        """The outcome, checked."""
        return Cancelled()


def _failed(body: FailBody | FailedOutcome) -> Failed:
    failure = Failure(type=body.type, message=body.message, traceback=body.traceback)
    return Failed(failure=failure, retry_in=body.retry_in, permanent=not body.retryable)


AnyOutcome = CompletedOutcome | FailedOutcome | ReleasedOutcome | CancelledOutcome
Outcomes = Annotated[list[AnyOutcome], Batch, Meta(description="One outcome for each claim.")]

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
    """The outcomes of several tasks."""

    worker_id: WorkerId
    outcomes: Outcomes


class ExchangeBody(FinishBody, frozen=True):
    """The outcomes of the last tasks, and what to claim next."""

    claim: Annotated[ClaimOptions, Meta(description="What to claim next.")]


class Finished(msgspec.Struct, frozen=True):
    """The state of the task after its outcome. `repeated`: the outcome was stored before, and nothing was written."""

    success: bool
    task_id: int
    state: State = field(name="status")
    attempts: int
    will_retry: bool
    run_at: Timestamp | None
    repeated: bool
    set_aside: (
        Annotated[SetAside, Meta(description="Why the failed task is not in the dead letter; left out otherwise.")]
        | UnsetType
    ) = UNSET

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
            set_aside=UNSET if done.set_aside is None else done.set_aside,
        )

    def to_model(self) -> model_claim.Finished:
        """The result. The server finalizes workflows itself, so `finalize` is left out."""
        return model_claim.Finished(
            task_id=self.task_id,
            state=self.state,
            attempts=self.attempts,
            run_at=to_datetime_or_none(self.run_at),
            repeated=self.repeated,
            set_aside=None if self.set_aside is UNSET else self.set_aside,
        )


# In a list of answers, the answer to a refused claim is a Refusal. The lists are declared with Any, because msgspec
# cannot tell two structs without tags apart; `server/openapi/schemas.py` adds Refusal to the OpenAPI document.


class FinishedAnswers(msgspec.Struct, frozen=True):
    """An answer to each outcome, in the order of the request."""

    success: bool
    answers: list[Finished | Any]


class Exchanged(msgspec.Struct, frozen=True):
    """An answer to each outcome, and the next tasks, if there are any."""

    success: bool
    answers: list[Finished | Any]
    tasks: list[Task]


# Renewals and progress


class RenewBody(ClaimHolder, frozen=True):
    """Prolong the lease."""

    lease: Lease = field(name="lease_seconds", default=DEFAULT_LEASE)


class ProgressBody(ClaimHolder, frozen=True):
    """The progress of the task."""

    progress: Percent
    message: Text | None = None


class ClaimsBody(RequestBody, frozen=True):
    """Claims of one worker."""

    worker_id: WorkerId
    claims: Annotated[list[OneClaim], Batch, Meta(description="The claims, each by its task and token.")]


class RenewManyBody(ClaimsBody, frozen=True):
    """Leases to prolong."""

    lease: Lease = field(name="lease_seconds", default=DEFAULT_LEASE)


class TaskProgress(ClaimFields, frozen=True):
    """The progress of one task."""

    progress: Percent
    message: Text | None = None

    @classmethod
    def from_model(cls, ref: AnyClaim, percent: int, message: str | None) -> Self:
        """The progress to send."""
        cleaned = None if message is None else clean_text(message)
        return cls(task_id=ref.task_id, token=ref.token, progress=percent, message=cleaned)


class ProgressManyBody(RequestBody, frozen=True):
    """The progress of several tasks."""

    worker_id: WorkerId
    notes: Annotated[list[TaskProgress], Batch, Meta(description="The progress of each task.")]


class Renewed(msgspec.Struct, frozen=True):
    """The new end of the lease, and whether the cancellation of the task was requested."""

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


class ProgressSaved(msgspec.Struct, frozen=True):
    """The progress was stored; whether the cancellation of the task was requested."""

    success: bool
    task_id: int
    cancel_requested: bool

    @classmethod
    def from_model(cls, task_id: int, cancel_requested: bool) -> Self:
        """The result as an answer."""
        return cls(success=True, task_id=task_id, cancel_requested=cancel_requested)

    def to_model(self) -> bool:
        """True if the cancellation of the task was requested."""
        return self.cancel_requested


class Started(msgspec.Struct, frozen=True):
    """The task that was claimed ahead has started."""

    success: bool
    task_id: int

    @classmethod
    def from_model(cls, task_id: int) -> Self:
        """The result as an answer."""
        return cls(success=True, task_id=task_id)

    def to_model(self) -> None:
        """None: a start has no result."""


class RenewedAnswers(msgspec.Struct, frozen=True):
    """An answer to each claim."""

    success: bool
    answers: list[Renewed | Any]


class ProgressSavedAnswers(msgspec.Struct, frozen=True):
    """An answer to each progress report."""

    success: bool
    answers: list[ProgressSaved | Any]


class StartedAnswers(msgspec.Struct, frozen=True):
    """An answer to each claim."""

    success: bool
    answers: list[Started | Any]


class ClaimStatuses(msgspec.Struct, frozen=True):
    """The status of each claim, in the order of the request."""

    statuses: list[ClaimStatus] = field(name="standings")

    def to_model(self) -> list[ClaimStatus]:
        """The status of each claim."""
        return self.statuses


class DueIn(msgspec.Struct, frozen=True):
    """Seconds until a task becomes claimable because its time has come; null if no task has such a time."""

    seconds: float | None

    def to_model(self) -> float | None:
        """The seconds."""
        return self.seconds


# Checkpoints


class CheckpointBody(ClaimHolder, frozen=True):
    """A value to keep for later attempts."""

    name: Annotated[Name, Meta(description="Unique within the task.")]
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
    """The checkpoints of a task, by name."""

    checkpoints: JsonObject

    def to_model(self) -> dict[str, Any]:
        """The values by name."""
        return self.checkpoints


class KeptCheckpoint(msgspec.Struct, frozen=True):
    """The value that is kept under the name."""

    success: bool
    value: Any

    def to_model(self) -> Any:
        """The value."""
        return self.value
