"""What a worker asks for, what it holds, and what it says back."""

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
    """A worker's wish for up to `count` tasks under a lease of `lease` seconds.

    `ahead`: they will wait in the worker's memory before they begin; if it dies, they are not charged an attempt.
    `wait`: seconds for which a server may hold the request back until there is a task; a database ignores it.
    `request`: a name for this wish. Asked again under the same name, because the answer was lost, the store gives what
    the worker got the first time and still holds.
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
    """A claim by its name: enough to write about a task, wherever the claim was made."""

    task_id: int
    token: int
    worker_id: str

    def __post_init__(self) -> None:
        check_integer(self.task_id, "task_id", 0, 2**63 - 1)
        check_integer(self.token, "token", 0, 2**63 - 1)
        check_worker_id(self.worker_id)


class Claim(msgspec.Struct, frozen=True):
    """The right to run a task now, until the lease ends; `token` proves it in every later write."""

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
    """The handler returned. `steps`: what it adds to its workflow; who waits for it waits for these as well."""

    result: Any = None
    steps: Sequence[NewStep] = ()


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The handler raised. Tried again after `retry_in` seconds (or the task's backoff) unless permanent."""

    failure: Failure
    retry_in: float | None = None
    permanent: bool = False

    def __post_init__(self) -> None:
        if self.retry_in is not None:
            check_seconds(self.retry_in, "retry_in")
        _check_flag(self.permanent, "permanent")


class Released(msgspec.Struct, frozen=True, tag=True):
    """Not done and not failed: back to the queue, now or after `delay` seconds, no attempt spent."""

    delay: float = 0

    def __post_init__(self) -> None:
        check_seconds(self.delay, "delay")


class Cancelled(msgspec.Struct, frozen=True, tag=True):
    """The handler saw the request to stop, and stopped."""


Outcome = Completed | Failed | Released | Cancelled


class Finished(msgspec.Struct, frozen=True):
    """The store's answer to an outcome: where the task stands now."""

    task_id: int
    state: State
    attempts: int
    run_at: datetime | None = None
    repeated: bool = False
    finalize: int | None = None
    """The workflow that has nothing more to run because of this, and now waits for its finalization."""

    @property
    def will_retry(self) -> bool:
        """True when the task will be claimed again."""
        return self.state not in FINAL


class Renewed(msgspec.Struct, frozen=True):
    """The store's answer to a renewal: the new end of the lease, and whether somebody asked the task to stop."""

    task_id: int
    lease_until: datetime
    cancel_requested: bool


class ClaimStatus(StrEnum):
    """How a claim stands, for a worker that only asks."""

    HELD = "held"  # its token is live
    STOPPING = "stopping"  # its token is live, and somebody asked the task to stop
    LOST = "lost"  # its token is dead, or another worker's


def _check_request(request: Any) -> None:
    if type(request) is not str or not _REQUEST.fullmatch(request):
        raise InvalidValue(
            f"The request id {str(request)[:80]!r} is not allowed.",
            hint="Use 1 to 64 letters, digits, dashes and underscores.",
        )


def check_lease(lease: Any) -> int:
    """A lease in seconds, as microseconds."""
    return check_seconds(lease, "lease", least=0.001)


def _check_flag(value: Any, what: str) -> None:
    if type(value) is not bool:
        raise InvalidValue(f"{what} must be True or False, not {value!r}.")


AnyClaim = Claim | ClaimRef
_OUTCOMES = frozenset({Completed, Failed, Released, Cancelled})

OutcomeReport = tuple[AnyClaim, Outcome]
FinishResult = Finished | DibsError
ProgressReport = tuple[AnyClaim, int, str | None]
"""How far a task is: its claim, percent, a message."""

ClaimName = tuple[int, int, str]
"""What names a claim: task, token, worker."""


def check_claims(claims: Sequence[AnyClaim]) -> None:
    """Claims, and nothing else (None, most often: there was no task to claim)."""
    for claim in claims:
        if not isinstance(claim, (Claim, ClaimRef)):
            raise InvalidValue(f"{claim!r} is no claim.", hint="claim() gives None when there is no task to claim.")


def outcome_size(outcome: Outcome) -> int:
    """About how many bytes the outcome takes as JSON; 0 for one that has no JSON and will be refused on its own."""
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
    """Outcomes of claims, one for each claim."""
    check_claims([ref for ref, _ in reports])
    for _, outcome in reports:
        if type(outcome) not in _OUTCOMES:
            raise InvalidValue(f"{outcome!r} is no outcome.", hint="Use Completed, Failed, Released or Cancelled.")
    if len({claim_name(ref) for ref, _ in reports}) < len(reports):
        raise InvalidValue("Two outcomes name the same claim.", hint="A claim ends once: send one outcome for each.")


def claim_name(ref: AnyClaim) -> ClaimName:
    """Task, token and worker of the claim."""
    return ref.task_id, ref.token, ref.worker_id
