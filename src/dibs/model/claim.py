"""Claims: requests, the claims themselves, the outcomes that end them, and the store's results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from dibs.codec import MAX_ERROR_TEXT, check_name
from dibs.errors import DibsError, InvalidValue
from dibs.model.checks import check_integer, check_names, check_seconds, check_worker_id
from dibs.model.task import FINAL, MAX_MAX_ATTEMPTS, Failure, State, Task
from dibs.model.workflow import NewStep

DEFAULT_LEASE = 60.0
MAX_BATCH = 1000

_REQUEST = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Order(StrEnum):
    """Which pending task a claim takes first."""

    PRIORITY = "priority"  # highest first, oldest within
    PRIORITY_LIFO = "priority_lifo"  # highest first, newest within
    PRIORITY_ASC = "priority_asc"  # lowest first, oldest within
    FIFO = "fifo"  # oldest first
    LIFO = "lifo"  # newest first
    RANDOM = "random"  # every task equally likely
    WEIGHTED = "weighted"  # likelier the higher its priority


ORDERS = frozenset(order.value for order in Order)


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which pending tasks may be claimed, and which of them first."""

    queues: Sequence[str] | None = None
    types: Sequence[str] | None = None
    max_attempts_remaining: int | None = None
    order: str = Order.PRIORITY
    count: int = 1

    def __post_init__(self) -> None:
        check_names(self.queues, "queues", "The queue")
        check_names(self.types, "types", "The task type")
        if self.max_attempts_remaining is not None:
            check_integer(self.max_attempts_remaining, "max_attempts_remaining", 0, MAX_MAX_ATTEMPTS)
        if self.order not in ORDERS:
            raise InvalidValue(f"There is no order {self.order!r}.", hint=f"Use one of: {', '.join(Order)}.")
        check_integer(self.count, "count", 1, MAX_BATCH)


class ClaimRequest(Filters, frozen=True, kw_only=True):
    """A worker's request for up to `count` tasks under a lease of `lease` seconds.

    `ahead`: the tasks will wait in the worker's memory before they start; if the worker dies, no attempt is counted.
    `wait`: seconds for which a server may delay its response until a task is pending; a database ignores it.
    `request`: an id of this request. If the response was lost and the worker repeats the request with the same id, the
    store returns the tasks that it claimed the first time and that the worker still holds.
    """

    worker_id: str
    incarnation: str | None = None
    lease: float = DEFAULT_LEASE
    ahead: bool = False
    wait: float = 0
    request: str | None = None

    def __post_init__(self) -> None:
        Filters.__post_init__(self)
        check_worker_id(self.worker_id)
        check_lease(self.lease)
        _check_flag(self.ahead, "ahead")
        check_seconds(self.wait, "wait")
        if self.incarnation is not None:
            check_name(self.incarnation, "The incarnation")
        if self.request is not None:
            _check_request(self.request)


class ClaimRef(msgspec.Struct, frozen=True):
    """A reference to a claim: enough to renew it or to write an outcome, also in another process."""

    task_id: int
    token: int
    worker_id: str

    def __post_init__(self) -> None:
        check_integer(self.task_id, "task_id", 0, 2**63 - 1)
        check_integer(self.token, "token", 0, 2**63 - 1)
        check_worker_id(self.worker_id)


class Claim(msgspec.Struct, frozen=True):
    """The right to run a task until the lease ends. Every later write is fenced by `token`."""

    task: Task
    token: int
    worker_id: str
    lease_until: datetime

    @property
    def task_id(self) -> int:
        """The id of the claimed task."""
        return self.task.id

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self.task.attempts + 1


class Completed(msgspec.Struct, frozen=True, tag=True):
    """The handler returned. `steps`: steps to add to its workflow; steps that wait for this one also wait for them."""

    result: Any = None
    steps: Sequence[NewStep] = ()


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The handler raised. The task is retried after `retry_in` seconds (or the task's backoff) unless `permanent`."""

    failure: Failure
    retry_in: float | None = None
    permanent: bool = False

    def __post_init__(self) -> None:
        if self.retry_in is not None:
            check_seconds(self.retry_in, "retry_in")
        _check_flag(self.permanent, "permanent")


class Released(msgspec.Struct, frozen=True, tag=True):
    """The task returns to the queue, at once or after `delay` seconds, without counting an attempt."""

    delay: float = 0

    def __post_init__(self) -> None:
        check_seconds(self.delay, "delay")


class Cancelled(msgspec.Struct, frozen=True, tag=True):
    """The handler stopped because of a request to cancel the task."""


Outcome = Completed | Failed | Released | Cancelled


class Finished(msgspec.Struct, frozen=True):
    """The result of writing an outcome: the state of the task afterwards."""

    task_id: int
    state: State
    attempts: int
    run_at: datetime | None = None
    repeated: bool = False
    finalize: int | None = None
    """The workflow that has no more steps to run after this outcome, and is due for finalization."""

    @property
    def will_retry(self) -> bool:
        """True when the task will be claimed again."""
        return self.state not in FINAL


class Renewed(msgspec.Struct, frozen=True):
    """The result of a renewal: the new end of the lease, and whether the cancellation of the task was requested."""

    task_id: int
    lease_until: datetime
    cancel_requested: bool


class ClaimStatus(StrEnum):
    """The status of a claim."""

    HELD = "held"  # the claim is valid
    STOPPING = "stopping"  # the claim is valid, and the cancellation of the task was requested
    LOST = "lost"  # the claim is no longer valid


def _check_request(request: Any) -> None:
    if type(request) is not str or not _REQUEST.fullmatch(request):
        raise InvalidValue(
            f"The request id {str(request)[:80]!r} is not allowed.",
            hint="Use 1 to 64 letters, digits, dashes and underscores.",
        )


def check_lease(lease: Any) -> int:
    """Check a lease in seconds, and return it in microseconds."""
    return check_seconds(lease, "lease", least=0.001)


def _check_flag(value: Any, what: str) -> None:
    if type(value) is not bool:
        raise InvalidValue(f"{what} must be True or False, not {value!r}.")


AnyClaim = Claim | ClaimRef
_OUTCOMES = frozenset({Completed, Failed, Released, Cancelled})

OutcomeReport = tuple[AnyClaim, Outcome]
FinishResult = Finished | DibsError
ProgressReport = tuple[AnyClaim, int, str | None]
"""A progress report: the claim, percent, a message."""

ClaimName = tuple[int, int, str]
"""What identifies a claim: task id, token, worker id."""


def check_claims(claims: Sequence[AnyClaim]) -> None:
    """Check that all values are claims: `claim()` returns None when there is no task."""
    for claim in claims:
        if not isinstance(claim, (Claim, ClaimRef)):
            raise InvalidValue(
                f"{claim!r} is not a claim.", hint="claim() returns None when there is no task to claim."
            )


def outcome_size(outcome: Outcome) -> int:
    """The approximate size of the outcome as JSON, in bytes; 0 for a result that is not JSON, which the store
    refuses."""
    if isinstance(outcome, Failed):
        return min(len(outcome.failure.message), MAX_ERROR_TEXT) + min(
            len(outcome.failure.traceback or ""), MAX_ERROR_TEXT
        )
    if not isinstance(outcome, Completed) or (outcome.result is None and not outcome.steps):
        return 0
    try:
        return len(msgspec.json.encode((outcome.result, outcome.steps)))
    except Exception:
        return 0


def check_reports(reports: Sequence[OutcomeReport]) -> None:
    """Check that all values are claims with outcomes, and that no claim occurs twice."""
    check_claims([ref for ref, _ in reports])
    for _, outcome in reports:
        if type(outcome) not in _OUTCOMES:
            raise InvalidValue(f"{outcome!r} is not an outcome.", hint="Use Completed, Failed, Released or Cancelled.")
    if len({claim_name(ref) for ref, _ in reports}) < len(reports):
        raise InvalidValue("Two outcomes are for the same claim.", hint="Send one outcome for each claim.")


def claim_name(ref: AnyClaim) -> ClaimName:
    """The task id, token and worker id of the claim."""
    return ref.task_id, ref.token, ref.worker_id
